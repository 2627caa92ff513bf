package move

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/pace"
)

// A copy from volumes that was interrupted must not begin again from its start: clients may have deleted an item that
// had been copied, and nothing tells that from one that wasn't. So the servers remember how far the copy is, in an item
// of their own, which is stored before the items up to there are sent. The next run goes on after the farthest place
// that a server remembers. What was not sent yet when the copy was interrupted is left out, and counted: what the writers
// had in their batches, and, if the copy could not tell the servers where it has ended, what was read in about a second.

const (
	// leastAhead and mostAhead are how far the servers' place is ahead of what is read, in places of a volume
	// (item.Item.Place): 200 KiB and 12 MiB. The less a second reads, the less is lost.
	leastAhead, mostAhead = 1 << 12, 1 << 18
	// The servers are told about once in a second: more often than oftenEnough, the next place is farther ahead.
	oftenEnough, seldomEnough = 100 * time.Millisecond, time.Second
	// placeSeconds is how long, in seconds, a server remembers the place, and endSeconds how long the end: this is for a
	// copy that is killed before it has written its receipt.
	placeSeconds, endSeconds = 7 * 24 * 3600, 3600
)

// copyPlace is how far a copy from volumes is.
type copyPlace struct {
	c   *copying
	key string
	// layer and at are where the earlier runs have come: to the place at in that layer of layers, from 0 on.
	// sent is how many items up to there had an outcome.
	layers int
	layer  int
	at     int64
	sent   int64
	// decided has the keys of the items before that, if there is an older layer: its values of them are older ones.
	decided once
	// earlier counts the items before that place.
	earlier atomic.Int64

	// now is the present layer. told is the place there that the servers remember, read the farthest one that was read.
	now   int
	told  atomic.Int64
	read  atomic.Int64
	mu    sync.Mutex
	ahead int64
	last  time.Time
}

// copyInOrder copies the items of volumes in their order.
func (c *copying) copyInOrder(ctx context.Context) (complete bool, err error) {
	layers := item.LayersOf(c.e.Source)
	spread := pace.New(c.e.Limit)
	for n, layer := range layers {
		if err := c.e.flush(); err != nil {
			return false, err
		}
		if c.place != nil {
			layer = c.place.of(ctx, n, layer)
		}
		err := c.e.readBand(ctx, layer, spread, func(*item.Item) bool { return true })
		if err == nil {
			err = layer.Lacking()
		}
		if err != nil { // items that were handed over are not read again
			return false, cmp.Or(c.e.flush(), err)
		}
	}
	if err := c.e.flush(); err != nil {
		return false, err
	}
	if p := c.place; p != nil {
		_, _ = p.set(ctx, c.e.UnreachableTimeout, p.layers, 0) // a server that is away has an earlier place
	}
	return true, nil
}

// findPlace asks the servers how far the copy is.
func (c *copying) findPlace(ctx context.Context) error {
	sum := sha256.Sum256([]byte(c.Resume))
	p := &copyPlace{c: c, layers: len(item.LayersOf(c.e.Source)), key: contract.CopiedPrefix + base64.RawURLEncoding.EncodeToString(sum[:16]), ahead: leastAhead, last: time.Now()}
	for i := range c.targets {
		err := p.ask(ctx, c.e.UnreachableTimeout, i, func(conn *memcache.Conn) error {
			v, err := conn.Get([]byte(p.key))
			if err != nil || v == nil {
				return err
			}
			var layer int
			var at, sent int64
			if _, err := fmt.Sscanf(string(v.Data), "%d %d %d", &layer, &at, &sent); err == nil && (layer > p.layer || layer == p.layer && at > p.at) {
				p.layer, p.at, p.sent = layer, at, sent
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if p.layer < 0 || p.layer > p.layers { // the place is of other volumes, or another client has written it
		p.layer, p.at, p.sent = 0, 0, 0
	}
	if p.layer+1 < p.layers && p.begun() {
		p.decided.Begin(c.Source.Expected())
	}
	c.place = p
	return nil
}

// begun tells whether an earlier run has copied something.
func (p *copyPlace) begun() bool { return p != nil && (p.layer > 0 || p.at > 0) }

func (p *copyPlace) ask(ctx context.Context, patience time.Duration, server int, do func(*memcache.Conn) error) error {
	t := &p.c.targets[server]
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ask(ctx, patience, p.c.e.waits.Set, false, do)
}

// of leaves out the items of earlier runs, and tells the servers of a place before items up to there are sent.
func (p *copyPlace) of(ctx context.Context, n int, layer item.Source) item.Source {
	p.now = n
	p.told.Store(0)
	p.read.Store(0)
	if n == p.layer {
		p.told.Store(p.at)
	}
	keeps := len(p.decided.words) > 0
	return item.Through{Source: layer, Sequence: func(items iter.Seq2[*item.Item, error]) iter.Seq2[*item.Item, error] {
		return func(yield func(*item.Item, error) bool) {
			read := int64(0)
			defer func() { p.hasRead(read) }()
			for it, err := range items {
				switch {
				case err != nil:
				case contract.IsMembersOwn(it.Key):
					continue
				case n < p.layer || n == p.layer && it.Place <= p.at && it.Place > 0:
					p.had(it, keeps)
					continue
				case it.Place > p.told.Load():
					err = p.tell(ctx, n, it.Place)
				}
				if err == nil && keeps && n > p.layer && p.wasDecided(it.Key) {
					it.State = item.Invalidated
				}
				if err == nil {
					read = max(read, it.Place)
				}
				if !yield(it, err) || err != nil {
					return
				}
			}
		}
	}}
}

// hasRead records how far one of the readers has come.
func (p *copyPlace) hasRead(at int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.read.Store(max(p.read.Load(), at))
}

// leftOut is how many items the earlier runs had not sent.
func (p *copyPlace) leftOut() int64 { return max(0, p.earlier.Load()-p.sent) }

// had counts an item of an earlier run.
func (p *copyPlace) had(it *item.Item, keeps bool) {
	p.earlier.Add(1)
	p.c.e.skipped.Add(1)
	if keeps {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.decided.Had(it.Key)
	}
}

func (p *copyPlace) wasDecided(key []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.decided.Has(key)
}

// tell has the servers remember that the items up to a place, and a few more, may have been sent. At least one server
// has to.
func (p *copyPlace) tell(ctx context.Context, layer int, at int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at <= p.told.Load() {
		return nil // another reader was faster
	}
	now := time.Now()
	switch took := now.Sub(p.last); {
	case took < oftenEnough:
		p.ahead = min(2*p.ahead, mostAhead)
	case took > seldomEnough:
		p.ahead = max(p.ahead/2, leastAhead)
	}
	p.last = now
	stored, err := p.set(ctx, p.c.e.UnreachableTimeout, layer, at+p.ahead)
	if err == nil && stored == 0 {
		err = fmt.Errorf("%w: no server has memory to remember how far the copy is", memcache.ErrProtocol)
	}
	if err == nil {
		p.told.Store(at + p.ahead)
	}
	return err
}

// set has the servers remember a place, and returns how many do.
func (p *copyPlace) set(ctx context.Context, patience time.Duration, layer int, at int64) (int64, error) {
	sent := p.sent + max(0, p.c.e.done()-p.earlier.Load())
	text, seconds := fmt.Sprintf("%d %d %d", layer, at, sent), placeSeconds
	if layer == p.layers {
		seconds = endSeconds
	}
	request := fmt.Appendf(nil, "set %s 0 %d %d\r\n%s\r\n", p.key, seconds, len(text), text)
	var stored atomic.Int64
	err := p.c.e.each(func(i int, _ *memcache.Writer) error {
		return p.ask(ctx, patience, i, func(conn *memcache.Conn) error {
			if err := conn.Send(request); err != nil {
				return err
			}
			line, err := conn.Line()
			if err == nil && string(line) == "STORED" {
				stored.Add(1)
			} else if err == nil && !strings.HasPrefix(string(line), "SERVER_ERROR") { // it has no memory
				err = fmt.Errorf("%w to set: %.80q", memcache.ErrProtocol, line)
			}
			return err
		})
	})
	return stored.Load(), err
}

// interrupted has the servers remember what was read, and not what would have been read next. The writers have ended.
func (p *copyPlace) interrupted(ctx context.Context) {
	const patience = 2 * time.Second
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if at := p.read.Load(); at > 0 {
		_, _ = p.set(ctx, patience, p.now, at) // otherwise more is left out
	}
}
