package member

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/move"
	"example.com/memcached-operator/drainer/start"
	"example.com/memcached-operator/drainer/volume"
	"example.com/memcached-operator/drainer/warmfile"
)

// replay adds the items of the generations to the running memcached, after live traffic, newest first. A
// generation is removed when all of its items have an outcome. If the replay ends before that, the next start
// continues with the items that have not been sent yet; the others are not sent again, because clients may
// have deleted them since. During a replay nothing is moved to the member or from it.
type replay struct {
	s       *supervisor
	address string
	// life ends with memcached; all that was sent to memcached has an outcome by then.
	life context.Context
	// left means that the generation being replayed is no longer on the volume.
	left atomic.Bool
}

// replaySource wraps a generation's source. Tests replace it.
var replaySource = func(_ context.Context, s item.Source) item.Source { return s }

// run replays until all is done or ctx ends.
func (r *replay) run(ctx context.Context) {
	r.all(ctx)
	if !r.s.pending || ctx.Err() != nil {
		return // the member is ending: items that drains and moves added now would win over the rest of the replay
	}
	err := memcache.Insist(ctx, maxSilence, func(string) {}, func(timeout time.Duration) error {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		conn, err := r.s.Dialer.Dial(ctx, r.address)
		if err != nil {
			return err
		}
		defer conn.Close()
		defer context.AfterFunc(ctx, func() { conn.Close() })()
		return conn.Replayed()
	})
	if err != nil && ctx.Err() == nil {
		r.s.std.Logf("drains and moves keep waiting, because memcached can't be told that the replay has ended: %v", err)
	}
}

func (r *replay) all(ctx context.Context) {
	kept, err := volume.Kept(r.s.Volume)
	if err != nil {
		r.s.std.Logf("nothing is replayed: %v", err)
		return
	}
	if !volume.Replayable(kept) {
		return
	}
	select {
	case <-r.s.manifest.answered:
	case <-ctx.Done():
		return
	}
	for ; volume.Replayable(kept) && err == nil; kept, err = volume.Kept(r.s.Volume) {
		name := filepath.Base(kept[0].Dir)
		goOn, err := r.one(ctx, kept[0], kept[1:])
		switch {
		case err == nil:
		case r.left.Load():
			r.s.std.Logf("the items of %s that have not been replayed are lost: %s", name, contract.OneLine(err))
		case ctx.Err() != nil:
			r.s.std.Logf("the replay of %s was interrupted: the next start continues it", name)
		default:
			r.s.std.Logf("%s stays on the volume, because its replay failed: %s", name, contract.OneLine(err))
		}
		if ctx.Err() != nil || err != nil || !goOn {
			return
		}
	}
}

// one replays one generation and tells whether the next older one may follow.
func (r *replay) one(ctx context.Context, g volume.Generation, older []volume.Generation) (goOn bool, err error) {
	name := filepath.Base(g.Dir)
	reader, err := volume.Open(g.Dir, volume.Options{})
	switch {
	case start.Undescribed(err):
		r.s.std.Logf("%s can't be replayed: it is removed, with all older generations: %s", name, contract.OneLine(err))
		return false, volume.DiscardAll(append([]volume.Generation{g}, older...))
	case errors.Is(err, warmfile.ErrUnrecoverable):
		return false, errors.Join(err, volume.GiveUp(g))
	case err != nil:
		return false, err
	}
	defer reader.Close()
	notes, err := r.notesOn(g, older, reader.Size())
	if err != nil {
		return false, err
	}
	defer notes.close()
	r.s.std.Logf("replaying %s: about %d items", name, reader.Expected())
	logs := contract.LogWork(contract.WorkReplaying, r.s.std.Logf)
	m := move.Replay{Source: replaySource(ctx, reader), Sending: notes.set, Dialer: r.s.Dialer, Address: r.address, Silence: maxSilence, Log: r.s.std.Err,
		Progress: func(p contract.Progress) { logs(p.ItemsDone, p.ItemsTotal) }}
	receipt, err := m.Run(r.life, ctx)
	if err != nil {
		return false, err
	}
	lacking := reader.Lacking()
	switch {
	case receipt.Reason == string(warmfile.ReasonSaveIncomplete):
		// All items that are there have been restored. Older generations may have older values of the missing
		// items.
	case receipt.ExitCode == contract.ExitUnrecoverable && !r.left.Load():
		return false, errors.Join(errors.New(receipt.Message), volume.GiveUp(g))
	case !receipt.Complete || receipt.Failed > 0:
		return false, errors.New(receipt.Message)
	}
	r.s.std.Logf("replayed %s: %s", name, receipt.Summary())
	if lacking != nil {
		r.s.std.Logf("only a part of %s was replayed: %s", name, contract.OneLine(lacking))
		r.s.manifest.note("the replay restored only a part of the items: " + contract.OneLine(lacking))
	}
	if receipt.Rejected > 0 {
		r.s.std.Logf("%s", receipt.Message)
		r.s.manifest.note("the replay lost items: " + receipt.Message)
	}
	if err := r.s.manifest.secure(); err != nil {
		return false, err
	}
	if reader.Flushed() || lacking != nil {
		return false, volume.DiscardAll(append([]volume.Generation{g}, older...))
	}
	return true, volume.Discard(g)
}

// maxSilence bounds how long the member may leave its own replay without an answer.
const maxSilence = time.Minute

// notes record which items of a generation have been sent to memcached.
type notes struct {
	// leave removes the generation and all older ones.
	leave func(why error) error
	mu    sync.Mutex
	// marks are nil if the generation has left the volume.
	marks *volume.Marks
}

// notesOn begins the notes. If they can't be written, the generation leaves the volume, with all older ones,
// before its next item is sent. The replay continues from the open file, and an interruption loses the items
// that are not sent yet. If the generation stayed, the next start would send again items that clients have
// deleted since.
func (r *replay) notesOn(g volume.Generation, older []volume.Generation, size int64) (*notes, error) {
	name := filepath.Base(g.Dir)
	n := &notes{leave: func(why error) error {
		r.s.std.Logf("%s is removed from the volume during its replay, because its replayed items can't be recorded: %s", name, contract.OneLine(why))
		if err := volume.DiscardAll(append([]volume.Generation{g}, older...)); err != nil {
			return fmt.Errorf("record which items have been replayed: %w", errors.Join(why, err))
		}
		r.left.Store(true)
		return nil
	}}
	marks, err := volume.OpenMarks(r.s.Volume, g, size, r.s.std.Logf)
	if err != nil {
		return n, n.leave(err)
	}
	n.marks = marks
	return n, nil
}

// set notes items by their places before they are sent.
func (n *notes) set(places []int64) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.marks == nil {
		return nil
	}
	err := n.marks.Set(places)
	if err == nil {
		return nil
	}
	if err := n.leave(err); err != nil {
		return err
	}
	err = n.marks.Close()
	n.marks = nil
	return err
}

func (n *notes) close() {
	if n.marks != nil {
		_ = n.marks.Close()
	}
}
