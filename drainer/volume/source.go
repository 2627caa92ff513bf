package volume

import (
	"context"
	"errors"
	"iter"

	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/warmfile"
)

// Departed is a Source of all generations on a departed member's volume.
type Departed struct {
	generations []item.Source
	readers     []*warmfile.Reader
}

// OpenAll opens the generations in dir. Each readable generation must be drained even if an older one is
// unreadable. So only a refusal of the newest is an error here; the others are reported when they are read.
// neverStarted means that no memcached ever started on the volume, unless its supervisor left a trace there.
func OpenAll(dir string, neverStarted bool) (*Departed, error) {
	if neverStarted {
		if untouched, err := Untouched(dir); err != nil || untouched {
			return empty(), err
		}
	}
	if unused, err := Unused(dir, Options{}); err != nil {
		return nil, err
	} else if unused {
		return empty(), nil
	}
	found, err := Generations(dir)
	if err != nil {
		return nil, err
	}
	v := &Departed{}
	flushed := false
	for _, g := range found {
		r, err := Open(g.Dir, Options{})
		if err != nil && len(v.readers) == 0 {
			return nil, g.named(err)
		}
		if err != nil {
			v.generations = append(v.generations, unreadable{err: g.named(err)})
			break
		}
		v.readers = append(v.readers, r)
		layer := g.source(r)
		if flushed {
			layer = item.Flushed(layer) // the present servers may not know of that flush
		}
		v.generations = append(v.generations, layer)
		flushed = flushed || r.Flushed()
	}
	return v, nil
}

func empty() *Departed { return &Departed{generations: []item.Source{nothing{}}} }

// Layers returns the generations, newest first.
func (v *Departed) Layers() []item.Source { return v.generations }

// Items yields the items of the layers, one layer after the other.
func (v *Departed) Items(ctx context.Context) iter.Seq2[*item.Item, error] {
	return func(yield func(*item.Item, error) bool) {
		for _, layer := range v.generations {
			for it, err := range layer.Items(ctx) {
				if !yield(it, err) {
					return
				}
			}
			if err := layer.Lacking(); err != nil {
				yield(nil, err) // an older layer may have an older value of a missing item
				return
			}
		}
	}
}

func (v *Departed) sum(of func(item.Source) int64) (sum int64) {
	for _, layer := range v.generations {
		sum += of(layer)
	}
	return sum
}

// Expected returns the expected number of items of all generations.
func (v *Departed) Expected() int64 { return v.sum(item.Source.Expected) }

// Size returns the size of all generations, in bytes.
func (v *Departed) Size() int64 { return v.sum(item.Source.Size) }

// Done returns how much of all generations has been read, in bytes.
func (v *Departed) Done() int64 { return v.sum(item.Source.Done) }

// Used returns how much of all generations items can take at most, in bytes.
func (v *Departed) Used() int64 { return v.sum(item.Source.Used) }

// Clean tells whether every generation was saved.
func (v *Departed) Clean() bool {
	for _, layer := range v.generations {
		if !layer.Clean() {
			return false
		}
	}
	return true
}

// Lacking returns the layers' errors about missing parts.
func (v *Departed) Lacking() error {
	var errs []error
	for _, layer := range v.generations {
		errs = append(errs, layer.Lacking())
	}
	return errors.Join(errs...)
}

// Version returns the version of the memcached that wrote the newest generation.
func (v *Departed) Version() string { return v.generations[0].Version() }

// Close closes the files.
func (v *Departed) Close() error {
	var errs []error
	for _, r := range v.readers {
		errs = append(errs, r.Close())
	}
	return errors.Join(errs...)
}

// source returns a generation's source, whose errors have the generation's name.
func (g Generation) source(s item.Source) item.Source {
	return item.Through{Source: s, Err: g.named, Sequence: func(items iter.Seq2[*item.Item, error]) iter.Seq2[*item.Item, error] {
		return func(yield func(*item.Item, error) bool) {
			for it, err := range items {
				if !yield(it, g.named(err)) {
					return
				}
			}
		}
	}}
}

// nothing is the Source of a volume on which nothing was ever stored.
type nothing struct{}

func (nothing) Items(context.Context) iter.Seq2[*item.Item, error] {
	return func(func(*item.Item, error) bool) {}
}
func (nothing) Expected() int64 { return 0 }
func (nothing) Size() int64     { return 0 }
func (nothing) Done() int64     { return 0 }
func (nothing) Used() int64     { return 0 }
func (nothing) Clean() bool     { return false }
func (nothing) Version() string { return "" }
func (nothing) Lacking() error  { return nil }

// unreadable is a Source that could not be opened.
type unreadable struct {
	nothing
	err error
}

func (u unreadable) Items(context.Context) iter.Seq2[*item.Item, error] {
	return func(yield func(*item.Item, error) bool) { yield(nil, u.err) }
}
