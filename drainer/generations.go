package drainer

import (
	"context"
	"errors"
	"iter"

	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/warmfile"
)

// layered is a Source in several layers, newest first. A layer is read after
// everything in the ones before it has an outcome, so that the newest value of
// a key is the one that is added.
type layered interface{ layers() []Source }

func layersOf(s Source) []Source {
	if l, ok := s.(layered); ok {
		return l.layers()
	}
	return []Source{s}
}

// reader is a Source that reads one generation.
type reader interface {
	Source
	// Flushed tells whether clients flushed everything while the generation
	// was in use: what older ones hold was stored before that.
	Flushed() bool
	Close() error
}

// opener opens the generation in a directory.
type opener func(dir string) (reader, error)

// openWarmFile reads the file itself.
func openWarmFile(dir string) (reader, error) { return warmfile.Open(dir, warmfile.Options{}) }

// volume is a Source: all generations that lie on a released volume.
type volume struct {
	Source
	generations []Source
	readers     []reader
}

// openVolume opens the generations in dir. What is readable has to move even
// where something older isn't, so only the newest one's refusal is an error
// here; another's comes when its turn has come.
func openVolume(dir string, open opener) (*volume, error) {
	if unused, err := warmfile.Unused(dir, warmfile.Options{}); err != nil {
		return nil, err
	} else if unused {
		return emptyVolume(), nil
	}
	found, err := warmfile.Generations(dir)
	if err != nil {
		return nil, err
	}
	v := &volume{}
	flushed := false
	for _, g := range found {
		r, err := open(g.Dir)
		if err != nil && len(v.readers) == 0 {
			return nil, err
		}
		if err != nil {
			v.generations = append(v.generations, unreadable{err: err})
			break
		}
		v.readers = append(v.readers, r)
		newer := flushed
		v.generations = append(v.generations, &flushable{Source: r, newer: func() bool { return newer }})
		flushed = flushed || r.Flushed()
	}
	v.Source = v.generations[0]
	return v, nil
}

func emptyVolume() *volume { return &volume{Source: nothing{}, generations: []Source{nothing{}}} }

func (v *volume) layers() []Source { return v.generations }

// Items yields the layers' one after the other.
func (v *volume) Items(ctx context.Context) iter.Seq2[*item.Item, error] {
	return func(yield func(*item.Item, error) bool) {
		for _, layer := range v.generations {
			for it, err := range layer.Items(ctx) {
				if !yield(it, err) {
					return
				}
			}
		}
	}
}

func (v *volume) sum(of func(Source) int64) (sum int64) {
	for _, layer := range v.generations {
		sum += of(layer)
	}
	return sum
}

func (v *volume) Expected() int64 { return v.sum(Source.Expected) }
func (v *volume) Size() int64     { return v.sum(Source.Size) }
func (v *volume) Done() int64     { return v.sum(Source.Done) }
func (v *volume) Used() int64     { return v.sum(Source.Used) }

// Clean: every generation was saved.
func (v *volume) Clean() bool {
	for _, layer := range v.generations {
		if !layer.Clean() {
			return false
		}
	}
	return true
}

// Close closes the files.
func (v *volume) Close() error {
	var errs []error
	for _, r := range v.readers {
		errs = append(errs, r.Close())
	}
	return errors.Join(errs...)
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

// unreadable is a Source that could not be opened.
type unreadable struct {
	nothing
	err error
}

func (u unreadable) Items(context.Context) iter.Seq2[*item.Item, error] {
	return func(yield func(*item.Item, error) bool) { yield(nil, u.err) }
}

// flushable is a Source whose live items count as flushed from the moment on
// that something newer than it is known to have been.
type flushable struct {
	Source
	newer func() bool
}

// Items are those of the source, with their state.
func (f *flushable) Items(ctx context.Context) iter.Seq2[*item.Item, error] {
	return func(yield func(*item.Item, error) bool) {
		for it, err := range f.Source.Items(ctx) {
			if err == nil && it.State == item.Live && f.newer() {
				it.State = item.Invalidated
			}
			if !yield(it, err) {
				return
			}
		}
	}
}
