package item

import (
	"context"
	"iter"
)

// Source is where the items of a member are read from.
type Source interface {
	// Items yields every item; each is valid until the next one. An error is
	// the last thing yielded, and says that not all items were. It may be called
	// again, for another pass.
	Items(ctx context.Context) iter.Seq2[*Item, error]
	// Expected number of items, 0 unknown; an estimate unless Clean.
	Expected() int64
	// Size of the source and how much of it has been read, in bytes.
	Size() int64
	Done() int64
	// Used is how much of it the items can take at most, in bytes.
	Used() int64
	// Clean: the member had saved.
	Clean() bool
	// Version of the memcached that wrote the source, "" unknown.
	Version() string
}

// Layered is a Source in several layers, newest first. A layer is read after
// everything in the ones before it has an outcome, so that the newest value of
// a key is the one that is added.
type Layered interface {
	Source
	Layers() []Source
}

// LayersOf a source: the source itself, if it has no layers.
func LayersOf(s Source) []Source {
	if l, ok := s.(Layered); ok {
		return l.Layers()
	}
	return []Source{s}
}

// InvalidatedWhen is a Source whose live items count as invalidated as soon as flushed
// is true: clients have flushed something newer.
func InvalidatedWhen(s Source, flushed func() bool) Source { return &invalidated{s, flushed} }

type invalidated struct {
	Source
	flushed func() bool
}

// Items are those of the source, with their state.
func (s *invalidated) Items(ctx context.Context) iter.Seq2[*Item, error] {
	return func(yield func(*Item, error) bool) {
		for it, err := range s.Source.Items(ctx) {
			if err == nil && it.State == Live && s.flushed() {
				it.State = Invalidated
			}
			if !yield(it, err) {
				return
			}
		}
	}
}
