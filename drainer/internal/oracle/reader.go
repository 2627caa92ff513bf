// Package oracle is for tests: it reads the items of a warm file by asking memcached itself, started on a
// private copy, and knows nothing of the file's layout. The direct reader has to find the same items. The
// oracle accepts only a file that was saved.
//
// The list of memcached is compared with memcached's count, so that an overlooked item is an error. So is a
// memcached that rejects the copy, which would start empty.
package oracle

import (
	"context"
	"fmt"
	"io"
	"iter"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"

	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/linux"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/move"
	"example.com/memcached-operator/drainer/volume"
	"example.com/memcached-operator/drainer/warmfile"
)

// Options of Open.
type Options struct {
	// Scratch is an existing directory for the copy and the list of its keys.
	Scratch string
	// Memcached is the program's name or path; "memcached" if it is empty.
	Memcached string
	// Log gets single lines for people; it may be nil.
	Log io.Writer
	// Now is the clock that items expire by; time.Now if it is nil.
	Now func() time.Time
	// BootID is that of the running kernel; asked for if it is empty.
	BootID string
	// free returns the room in a directory, in bytes; tests replace it.
	free func(dir string) (int64, error)
}

func (o Options) withDefaults() Options {
	if o.Memcached == "" {
		o.Memcached = "memcached"
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.free == nil {
		o.free = linux.FreeBytes
	}
	return o
}

// reasonRejected: memcached was started on a copy and did not resume from it.
const reasonRejected warmfile.Reason = "RestartRejected"

// restartable describes the warm file in dir if a memcached would resume from it: it was saved, its .meta is
// there and sound, and it has not been changed since.
func restartable(dir string, o volume.Options) (*warmfile.Image, error) {
	r, err := volume.Open(dir, o)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	image, err := volume.ReadMeta(dir)
	if err != nil {
		return nil, warmfile.Refuse(warmfile.ReasonNoEvidence, "memcached takes up only a file that it has saved: %v", err)
	}
	image.Version, image.Items = r.Version(), r.Expected()
	if m, err := volume.ReadManifest(dir); err == nil && m.Latest() != nil {
		known := m.Latest()
		image.ItemsExact = known.ItemsExact && known.StopTime == image.StopTime && known.ProcessStarted == image.ProcessStarted
	}
	return image, nil
}

// Reader reads one warm file. Each pass over Items works on a copy of its own.
type Reader struct {
	options Options
	dir     string
	program string
	image   warmfile.Image
	size    int64 // without holes, in bytes
	items   atomic.Int64
	done    atomic.Int64
}

// Open checks everything that can be checked before something is copied or started: that memcached would
// resume from the file in dir, that there is a memcached, and that there is room for the copy.
func Open(dir string, o Options) (*Reader, error) {
	o = o.withDefaults()
	image, err := restartable(dir, volume.Options{Now: o.Now, BootID: o.BootID})
	if err != nil {
		return nil, err
	}
	program, err := exec.LookPath(o.Memcached)
	if err != nil {
		return nil, fmt.Errorf("the restart reader needs a memcached: %w", err)
	}
	size, err := allocated(dir)
	if err != nil {
		return nil, err
	}
	r := &Reader{options: o, dir: dir, program: program, image: *image, size: size}
	r.items.Store(image.Items)
	return r, r.checkRoom()
}

// listBytes is a generous estimate of an item's size in the list of keys.
const listBytes = 256

// checkRoom returns an error if the scratch space is too small for the copy and the list.
func (r *Reader) checkRoom() error {
	free, err := r.options.free(r.options.Scratch)
	if err != nil {
		return err
	}
	if need := r.size + r.image.Items*listBytes; free < need {
		return &RoomError{Directory: r.options.Scratch, Need: need, Free: free}
	}
	return nil
}

// RoomError means that the scratch space is too small. The source is sound, and can be read with more room.
type RoomError struct {
	Directory  string
	Need, Free int64 // in bytes
}

func (e *RoomError) Error() string {
	const mib = 1 << 20
	return fmt.Sprintf("the restart reader needs %d MiB in %s for a copy of the warm file, %d MiB are free: give the node more ephemeral storage",
		(e.Need+mib-1)/mib, e.Directory, e.Free/mib)
}

// Close does nothing: every pass removes its own files.
func (r *Reader) Close() error { return nil }

// Lacking returns nil: only whole files are accepted.
func (r *Reader) Lacking() error { return nil }

// Clean returns true: only saved files are accepted.
func (r *Reader) Clean() bool { return true }

// Version returns the version of the memcached that wrote the file, "" if it isn't known.
func (r *Reader) Version() string { return r.image.Version }

// Expected returns the number of items, 0 unknown.
func (r *Reader) Expected() int64 { return r.items.Load() }

// Size returns the size of the file without its holes, in bytes.
func (r *Reader) Size() int64 { return r.size }

// Used returns how many bytes the items can take at most.
func (r *Reader) Used() int64 { return r.size }

// Done returns how much of the file has been copied, in bytes.
func (r *Reader) Done() int64 { return r.done.Load() }

// Flushed tells whether clients flushed everything while the file was in use.
func (r *Reader) Flushed() bool { return r.image.Flushed(r.options.Now()) }

// Items yields every item that memcached has after a restart from the file. Items that memcached doesn't
// list, because they have expired or were flushed, are yielded without a key. An error is the last thing
// yielded.
func (r *Reader) Items(ctx context.Context) iter.Seq2[*item.Item, error] {
	return func(yield func(*item.Item, error) bool) {
		if err := r.read(ctx, func(it *item.Item) bool { return yield(it, nil) }); err != nil {
			yield(nil, err)
		}
	}
}

// read copies, starts, lists and fetches. read also returns nil if yield returns false.
func (r *Reader) read(ctx context.Context, yield func(*item.Item) bool) (err error) {
	work, err := os.MkdirTemp(r.options.Scratch, "restart-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	fmt.Fprintf(r.options.Log, "starting memcached on a copy of %d MiB\n", r.size>>20)
	if err := r.copyTo(ctx, work); err != nil {
		return fmt.Errorf("copy the warm file to %s: %w", r.options.Scratch, err)
	}
	if err := r.copyMeta(ctx, work); err != nil {
		return err
	}
	s, err := start(ctx, r.program, arguments(&r.image), work)
	if err != nil && strings.Contains(err.Error(), "kilobytes") {
		s, err = start(ctx, r.program, argumentsIn(&r.image, 1<<10), work)
	}
	if err != nil {
		return err
	}
	defer s.stop()
	total, err := s.accepted(ctx, &r.image)
	if err != nil {
		return err
	}
	r.items.Store(total)
	list, err := s.list(ctx, work)
	if err != nil {
		return err
	}
	defer list.Close()
	if !r.yieldGone(total-list.Len(), yield) {
		return nil
	}
	return r.fetch(ctx, s, list, yield)
}

// yieldGone yields the n items that memcached counts and doesn't list.
func (r *Reader) yieldGone(n int64, yield func(*item.Item) bool) bool {
	gone := item.Item{State: item.Expired}
	if r.Flushed() {
		gone.State = item.Invalidated // or expired: they can't be told apart
	}
	for range n {
		if !yield(&gone) {
			return false
		}
	}
	return true
}

// fetch asks for every item of the list.
func (r *Reader) fetch(ctx context.Context, s *server, list *move.List, yield func(*item.Item) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn, err := s.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	asked := make(chan move.Entry, pipelined)
	failed := make(chan error, 1)
	go func() {
		defer close(asked)
		failed <- request(ctx, conn, list, asked)
	}()
	for e := range asked {
		err := conn.SetReadDeadline(time.Now().Add(silence))
		var value *memcache.Value
		if err == nil {
			value, err = conn.Fetched()
		}
		if err != nil {
			return fmt.Errorf("read %.60q from the private memcached: %w", e.Key, err)
		}
		it, err := r.item(&e, value)
		if err != nil {
			return err
		}
		if !yield(it) {
			return nil
		}
	}
	return <-failed
}

// item combines the list's entry and the server's answer.
func (r *Reader) item(e *move.Entry, v *memcache.Value) (*item.Item, error) {
	now := r.options.Now()
	it := &item.Item{Key: e.Key, ExpireAt: e.ExpireAt, LastAccess: e.LastAccess}
	if it.ExpireAt != 0 && it.ExpireAt <= now.Unix() {
		it.State = item.Expired
	}
	if v == nil {
		// The two clocks may be a second apart.
		if it.ExpireAt == 0 || it.ExpireAt > now.Unix()+2 {
			return nil, warmfile.Refuse(warmfile.ReasonCountMismatch, "memcached listed %.60q and doesn't have it", e.Key)
		}
		it.State = item.Expired
		return it, nil
	}
	it.Value, it.Flags, it.CAS, it.BinaryKey = v.Data, v.Flags, v.CAS, v.BinaryKey
	if it.State == item.Expired {
		return it, nil
	}
	if v.Stale || v.Claimed && len(v.Data) == 0 {
		it.State = item.Invalidated
	}
	if at := r.image.PendingFlush(e.LastAccess, now); at != 0 && (it.ExpireAt == 0 || it.ExpireAt > at) {
		it.ExpireAt = at
	}
	return it, nil
}
