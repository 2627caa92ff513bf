// Package item has one cached item, as the readers of a source pass it to the writers.
package item

// State says whether clients could still get an item from its server.
type State uint8

// The states of an item.
const (
	// Live items are drained or moved.
	Live State = iota
	// Expired items are past their time of expiry.
	Expired
	// Invalidated items were flushed, or marked stale by a client, or have been replayed: then a newer layer
	// or the running memcached has their present state.
	Invalidated
)

// Item is one cached item. Its slices belong to its producer and are valid until the next item is asked for.
type Item struct {
	// Key has 1 to 250 bytes of any value.
	Key []byte
	// Value is without memcached's trailing "\r\n".
	Value []byte
	// Flags are the client's. Only a memcached that was built for it accepts more than 32 bits.
	Flags uint64
	// ExpireAt is in Unix seconds; 0 means never.
	ExpireAt int64
	// LastAccess is in Unix seconds, with memcached's own resolution of a minute.
	LastAccess int64
	// CAS is the item's unique number on its server, 0 if the server keeps none.
	CAS uint64
	// BinaryKey means that the key was sent base64-encoded, and answers show it encoded.
	BinaryKey bool
	State     State
	// Mark, if not 0, is the CAS that the item gets at its owner, if the owner can give it one. Over, if not 0, is
	// the CAS of the value that the item replaces there.
	Mark, Over uint64
	// Page is the memory of Value; nil if it can't be held.
	Page *Page
	// Place is the item's position in its source, counted from 1, and the same in every pass; 0 if the source
	// doesn't have it.
	Place int64
}

// Size is the number of bytes of key and value.
func (it *Item) Size() int { return len(it.Key) + len(it.Value) }
