// Package drainer moves what a leaving memcached held to the servers where
// clients look for it from now on, and supervises memcached so that there is
// always something to read.
package drainer

import (
	"context"
	"iter"

	"example.com/memcached-operator/drainer/item"
)

// Source is where the items of a member are read from.
type Source interface {
	// Items yields every item; each is valid until the next one. An error is
	// the last thing yielded, and says that not all items were. It may be called
	// again, for another pass.
	Items(ctx context.Context) iter.Seq2[*item.Item, error]
	// Expected number of items, 0 unknown; an estimate unless Clean.
	Expected() int64
	// Size of the source and how much of it has been read, in bytes.
	Size() int64
	Done() int64
	// Used is the most that the items can take of it, in bytes.
	Used() int64
	// Clean: the member had saved.
	Clean() bool
	// Version of the memcached that wrote the source, "" unknown.
	Version() string
}
