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
	// Lacking is an error if parts of the source are missing, after Items has yielded the
	// items of all others.
	Lacking() error
	// Clean: the member had saved.
	Clean() bool
	// Version of the memcached that wrote the source, "" unknown.
	Version() string
}

// Shared is a Source that several goroutines can read together.
type Shared interface {
	Source
	// Shares are n sequences, one for each goroutine, which together yield every item once.
	// All must be read; if one goroutine has had enough, the others may be told an error.
	// Items may lie in mapped memory: see Faults.
	Shares(ctx context.Context, n int) []iter.Seq2[*Item, error]
}

// Shares of a source: one, if it is not Shared.
func Shares(ctx context.Context, s Source, n int) []iter.Seq2[*Item, error] {
	if shared, ok := s.(Shared); ok {
		return shared.Shares(ctx, n)
	}
	return []iter.Seq2[*Item, error]{s.Items(ctx)}
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

// Through is a Source of which each sequence of items, and what it lacks, passes through functions.
type Through struct {
	Source
	// Sequence is what becomes of one of items; nil: nothing.
	Sequence func(iter.Seq2[*Item, error]) iter.Seq2[*Item, error]
	// Err is what becomes of the error that says what the source lacks; nil: nothing.
	Err func(error) error
}

func (t Through) sequence(items iter.Seq2[*Item, error]) iter.Seq2[*Item, error] {
	if t.Sequence == nil {
		return items
	}
	return t.Sequence(items)
}

// Items are those of the source.
func (t Through) Items(ctx context.Context) iter.Seq2[*Item, error] {
	return t.sequence(t.Source.Items(ctx))
}

// Shares are those of the source.
func (t Through) Shares(ctx context.Context, n int) []iter.Seq2[*Item, error] {
	shares := Shares(ctx, t.Source, n)
	for i := range shares {
		shares[i] = t.sequence(shares[i])
	}
	return shares
}

// Layers are those of the source.
func (t Through) Layers() []Source {
	layered, ok := t.Source.(Layered)
	if !ok {
		return []Source{t}
	}
	var layers []Source
	for _, layer := range layered.Layers() {
		layers = append(layers, Through{layer, t.Sequence, t.Err})
	}
	return layers
}

// Lacking is what the source lacks.
func (t Through) Lacking() error {
	err := t.Source.Lacking()
	if err == nil || t.Err == nil {
		return err
	}
	return t.Err(err)
}

// Flushed is a Source whose live items count as invalidated: clients have flushed
// everything since they were stored.
func Flushed(s Source) Source { return Through{Source: s, Sequence: allFlushed} }

func allFlushed(items iter.Seq2[*Item, error]) iter.Seq2[*Item, error] {
	return func(yield func(*Item, error) bool) {
		for it, err := range items {
			if err == nil && it.State == Live {
				it.State = Invalidated
			}
			if !yield(it, err) {
				return
			}
		}
	}
}
