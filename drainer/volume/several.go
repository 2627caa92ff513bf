package volume

import (
	"context"
	"errors"
	"iter"

	"example.com/memcached-operator/drainer/item"
)

// Several is a Source of several members' volumes.
type Several []*Departed

// Layers returns the generations of all of them.
func (s Several) Layers() (layers []item.Source) {
	for _, v := range s {
		layers = append(layers, v.Layers()...)
	}
	return layers
}

// Items yields the items of one volume after the other.
func (s Several) Items(ctx context.Context) iter.Seq2[*item.Item, error] {
	return func(yield func(*item.Item, error) bool) {
		for _, v := range s {
			for it, err := range v.Items(ctx) {
				if !yield(it, err) || err != nil {
					return
				}
			}
		}
	}
}

func (s Several) sum(of func(*Departed) int64) (sum int64) {
	for _, v := range s {
		sum += of(v)
	}
	return sum
}

// Expected returns the expected number of items.
func (s Several) Expected() int64 { return s.sum((*Departed).Expected) }

// Size returns the size of all generations, in bytes.
func (s Several) Size() int64 { return s.sum((*Departed).Size) }

// Done returns how much of all generations has been read, in bytes.
func (s Several) Done() int64 { return s.sum((*Departed).Done) }

// Used returns how much of all generations items can take at most, in bytes.
func (s Several) Used() int64 { return s.sum((*Departed).Used) }

// Clean tells whether every generation was saved.
func (s Several) Clean() bool {
	for _, v := range s {
		if !v.Clean() {
			return false
		}
	}
	return true
}

// Lacking returns the errors about missing parts.
func (s Several) Lacking() error {
	var errs []error
	for _, v := range s {
		errs = append(errs, v.Lacking())
	}
	return errors.Join(errs...)
}

// Version returns the version of the memcached that wrote the first volume.
func (s Several) Version() string { return s[0].Version() }
