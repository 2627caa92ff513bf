package item

import (
	"context"
	"iter"
)

// Source is where the items of a member are read from.
type Source interface {
	// Items yields every item; each is valid until the next one. An error is the last thing yielded, and
	// means that items are missing. Items may be called again, for another pass.
	Items(ctx context.Context) iter.Seq2[*Item, error]
	// Expected returns the expected number of items, 0 unknown; it is an estimate unless Clean.
	Expected() int64
	// Size is the size of the source, and Done how much of it has been read, in bytes.
	Size() int64
	Done() int64
	// Used is how many bytes of it the items can take at most.
	Used() int64
	// Lacking returns an error if parts of the source are missing, after Items has yielded the items of all
	// other parts.
	Lacking() error
	// Clean tells whether the member had saved.
	Clean() bool
	// Version returns the version of the memcached that wrote the source, "" unknown.
	Version() string
}

// Shared is a Source that several goroutines can read together.
type Shared interface {
	Source
	// Shares returns n sequences, one for each goroutine, which together yield every item once. All must be
	// read; if one goroutine stops early, the others may get an error. Items may be in mapped memory; see
	// Faults.
	Shares(ctx context.Context, n int) []iter.Seq2[*Item, error]
}

// Shares returns the shares of a source: one share, if it is not Shared.
func Shares(ctx context.Context, s Source, n int) []iter.Seq2[*Item, error] {
	if shared, ok := s.(Shared); ok {
		return shared.Shares(ctx, n)
	}
	return []iter.Seq2[*Item, error]{s.Items(ctx)}
}

// Layered is a Source with several layers, newest first. A layer is read after all items of the layers before
// it have an outcome, so that the newest value of a key is the one that is added.
type Layered interface {
	Source
	Layers() []Source
}

// LayersOf returns the layers of a source: the source itself, if it has no layers.
func LayersOf(s Source) []Source {
	if l, ok := s.(Layered); ok {
		return l.Layers()
	}
	return []Source{s}
}

// Through is a Source whose sequences of items, and whose errors about missing parts, pass through functions.
type Through struct {
	Source
	// Sequence returns the sequence that replaces one of Source; nil replaces none.
	Sequence func(iter.Seq2[*Item, error]) iter.Seq2[*Item, error]
	// Err returns the error that replaces one about missing parts; nil replaces none.
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

// Lacking returns the error about the source's missing parts.
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
