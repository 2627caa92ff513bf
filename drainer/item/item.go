// Package item is what readers of a source give to the writers: one cached item.
package item

// State says whether clients could still get an item from its server.
type State uint8

// The states of an item.
const (
	// Live items are drained or moved.
	Live State = iota
	// Expired items are past their time of expiry.
	Expired
	// Invalidated items were flushed, or marked stale by a client, or have been replayed: what
	// became of them then is in what is newer.
	Invalidated
)

// Item is one cached item. Its slices belong to whoever produced it and are
// valid until the next one is asked for.
type Item struct {
	// Key is 1 to 250 bytes, any bytes.
	Key []byte
	// Value is without memcached's trailing "\r\n".
	Value []byte
	// Flags are the client's own. Only a memcached that was built for it takes more than
	// 32 bits.
	Flags uint64
	// ExpireAt is in Unix seconds; 0 never.
	ExpireAt int64
	// LastAccess is in Unix seconds, as exact as memcached keeps it (a minute).
	LastAccess int64
	// CAS is the item's unique number on its server, 0 if that keeps none.
	CAS uint64
	// BinaryKey: the key was sent base64-encoded, and answers show it so.
	BinaryKey bool
	State     State
	// Page is the memory that Value lies in; nil if that can't be held.
	Page *Page
	// Place is where the item lies in its source, counted from 1, the same in every pass; 0 if
	// the source doesn't say.
	Place int64
}

// Size is the number of bytes of key and value.
func (it *Item) Size() int { return len(it.Key) + len(it.Value) }
