package warmfile

import (
	"context"
	"errors"

	"example.com/memcached-operator/drainer/item"
)

// FlagsBytes returns how many bytes the client flags of the file's items take; 0 if no item has flags.
// memcached has told the number, or the items show it. If the items don't show it, the error is an
// ErrUnknownLayout.
//
// The right layout fits every item, so a layout that doesn't fit some item is wrong. A single item can fit both
// layouts, if its value ends as a shorter value would.
func (r *Reader) FlagsBytes(ctx context.Context) (int, error) {
	r.layout.Lock()
	defer r.layout.Unlock()
	if r.image.FlagsBytes != 0 {
		return r.image.FlagsBytes, nil
	}
	_, err := r.fits(ctx, item.LargeFlags)
	if errors.Is(err, ErrUnrecoverable) {
		r.image.FlagsBytes = item.SmallFlags // each item is checked against it when it is read
		return item.SmallFlags, nil
	}
	if err != nil {
		return 0, err
	}
	flagged, err := r.fits(ctx, item.SmallFlags)
	switch {
	case errors.Is(err, ErrUnrecoverable):
		r.image.FlagsBytes = item.LargeFlags
		return item.LargeFlags, nil
	case err == nil && flagged:
		err = Refuse(ReasonUnknownLayout, "it isn't known whether its memcached was built with 64-bit client flags (--enable-large-client-flags), and every item fits both")
	}
	return 0, err
}

// knownFlags returns image.FlagsBytes.
func (r *Reader) knownFlags() int {
	r.layout.Lock()
	defer r.layout.Unlock()
	return r.image.FlagsBytes
}

// fits returns why some item doesn't fit flags of flagsBytes bytes, nil if all do, and whether any item has
// flags.
func (r *Reader) fits(ctx context.Context, flagsBytes int) (flagged bool, err error) {
	s := scan{Reader: r, flagsBytes: flagsBytes, yield: func(_ *item.Item, problem error) bool {
		err = problem
		return true
	}}
	newPass(r, 1, false, func(int64) {}).run(ctx, &s)
	return s.flagged, err
}
