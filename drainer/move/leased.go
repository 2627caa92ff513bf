package move

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/export"
	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/pace"
	"example.com/memcached-operator/drainer/ringchange"
)

// leased moves the keys of a running member as routers do during a ring change: each under its lease, so that
// no client of a router misses a key or sees an older value. Leases are for clusters that only routers use: other
// clients would take a lease for a value. Streams and listings only say which keys there are; the item is read
// under the lease.
type leased struct {
	l *runningMember
	e *Engine
	// passes are the moves to the servers, by the servers' indexes.
	passes leasedPass

	mu sync.Mutex
	// tallies and refusals are by server.
	tallies  []memcache.Tally
	refusals []string
	// read and told count keys of the present pass: those that it has found, and those whose outcome is
	// known.
	read, told int64
	// noTextForm counts the last pass's items whose keys have no text form.
	noTextForm int64
	// own deletes items that no server is given.
	own *remover
}

// lease makes the move use leases from now on.
func (l *runningMember) lease(e *Engine) {
	if l.leased != nil {
		return
	}
	v := &leased{l: l, e: e, tallies: make([]memcache.Tally, len(l.servers)), refusals: make([]string, len(l.servers))}
	v.passes = leasedPass{Dialer: l.dialer, From: l.member.Address(), Timeout: l.timeout, Moved: v.moved,
		KeepsCAS: func(i int) bool { return ringchange.KeepsCAS(e.writers[i].Limits().Version) },
		Waiting:  func(i int, why string) { l.waiting(v.name(i), why) },
	}
	for _, s := range l.servers {
		v.passes.To = append(v.passes.To, s.Address())
	}
	l.leased, e.leased = v, v
}

func (v *leased) name(server int) string {
	if server == theMember {
		return v.l.member.String()
	}
	return v.l.servers[server].String()
}

// streamed makes one pass over the stream of the member's supervisor.
func (v *leased) streamed(ctx context.Context, s *export.Stream) (rejected bool, err error) {
	if err := v.l.sameProcess(ctx); err != nil {
		return false, err
	}
	v.l.once.Begin(s.Expected)
	v.noTextForm = 0
	rejected, err = v.pass(ctx, func(yield func(misplacedKey, error) bool) {
		for it, err := range s.Items() {
			if err != nil {
				yield(misplacedKey{}, &brokenStream{err})
				return
			}
			if v.leavesOut(it.Key) {
				continue
			}
			if !yield(misplacedKey{Key: it.Key, Size: int64(it.Size())}, nil) {
				return
			}
		}
	})
	s.End.Items -= v.noTextForm
	return rejected, err
}

// leavesOut tells whether no client of a router can ask for a key, because the text protocol can't carry it.
// Its item is not moved, and the move doesn't wait for it.
func (v *leased) leavesOut(key []byte) bool {
	if memcache.HasTextForm(key) {
		return false
	}
	v.noTextForm++
	return true
}

// listed moves the items of a list.
func (v *leased) listed(ctx context.Context, list *List) (found, error) {
	v.l.once.Begin(list.Len())
	rejected, err := v.pass(ctx, func(yield func(misplacedKey, error) bool) {
		for entry, err := range list.All() {
			if err != nil {
				yield(misplacedKey{}, err)
				return
			}
			if !yield(misplacedKey{Key: entry.Key, Size: entry.Size}, nil) {
				return
			}
		}
	})
	if rejected {
		return refused, err
	}
	return some, err
}

// pass moves each key once, at the allowed pace, and tells whether an owner refused some.
func (v *leased) pass(ctx context.Context, keys iter.Seq2[misplacedKey, error]) (rejected bool, err error) {
	v.own = v.l.remover()
	defer v.own.close()
	before := v.rejected()
	v.read, v.told = 0, 0
	spread := pace.New(v.l.limit)
	err = v.passes.Move(ctx, func(yield func(misplacedKey, error) bool) {
		for k, err := range keys {
			if err != nil {
				yield(k, err)
				return
			}
			if v.l.once.Had(k.Key) || contract.IsMembersOwn(k.Key) {
				continue
			}
			if v.l.limit != (pace.Limit{}) {
				if ahead := spread.Next(time.Now(), int(k.Size)); ahead > 0 {
					err = pace.Sleep(ctx, ahead)
				}
			}
			if k.Owner = v.l.owner.Owner(k.Key); k.Owner == v.l.self {
				err = &brokenStream{errOtherRouting}
			}
			k.Key = bytes.Clone(k.Key)
			if err == nil {
				v.finds()
			}
			if err == nil && v.l.isLost(k.Key) {
				if err = v.moved(ctx, k.Owner, []LeasedKey{{Key: k.Key, Outcome: keyOutdated}}); err == nil {
					continue
				}
			}
			if !yield(k, err) || err != nil {
				return
			}
		}
	})
	if err != nil { // the rest is found again
		v.e.counts.found -= v.read - v.told
	}
	var at *passError
	switch {
	case !errors.As(err, &at):
	case at.Server == theMember:
		err = &sourceError{v.name(at.Server), at.Err}
	default:
		err = &survivorError{v.name(at.Server), at.Err}
	}
	return v.rejected() > before, err
}

// finds counts a key.
func (v *leased) finds() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.read++
	v.e.counts.found++
}

// moved counts the outcomes of the keys, and deletes outdated items. Keys whose lease another process has are
// left for the next pass, which finds them again.
func (v *leased) moved(ctx context.Context, server int, keys []LeasedKey) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	t := &v.tallies[server]
	for i := range keys {
		k := &keys[i]
		v.told++
		switch k.Outcome {
		case keyLater, keyNoTextForm:
			v.e.counts.found--
			continue
		case keyMoved:
			t.Added++
			t.Bytes += k.Bytes
		case keyPresent:
			t.Present++
		case keyRefused:
			if t.Rejected++; v.refusals[server] == "" {
				v.refusals[server] = k.Why
			}
		case keyOutdated:
			if err := v.own.resolve(ctx, &misplaced{Item: item.Item{Key: k.Key, State: item.Invalidated}}); err != nil {
				return err
			}
			t.Invalidated++
		case keyGone, keyFlushed:
			t.Invalidated++
		}
		v.e.skipped.Add(1)
	}
	return nil
}

func (v *leased) rejected() (sum int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i := range v.tallies {
		sum += v.tallies[i].Rejected
	}
	return sum
}
