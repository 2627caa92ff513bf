package onmiss

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/memcache"
)

// worker has its own connections, for one goroutine.
type worker struct {
	*Source
	members map[string]*peer
	source  map[string]*peer
	value   []byte
	// asker means that a member that doesn't answer soon is a miss. A write waits for it as for any other request.
	asker bool
	// ctx ends the worker, and closes its connections.
	ctx context.Context
}

// peer is a connection to a server of the source.
type peer struct {
	*memcache.Conn
	// classic means that the server has no meta commands.
	classic bool
	// stop ends the watch of the context that closes the connection.
	stop func() bool
}

func (p *peer) close() {
	p.stop()
	p.Close()
}

func newPeer(ctx context.Context, c *memcache.Conn) *peer {
	return &peer{Conn: c, stop: context.AfterFunc(ctx, func() { c.Close() })}
}

// firstMeta is the first memcached whose mg tells an item's time to live.
const firstMeta = "1.6.0"

func (s *Source) newWorker() *worker {
	return &worker{Source: s, members: map[string]*peer{}, source: map[string]*peer{}}
}

func (w *worker) run(ctx context.Context, asked <-chan question, tasks <-chan task) {
	defer w.close()
	w.asker, w.ctx = asked != nil, ctx
	for {
		select {
		case q := <-asked:
			key := q.key
			w.copy(ctx, q)
			w.mu.Lock()
			all := w.waiting[key]
			delete(w.waiting, key)
			w.waits -= len(all)
			w.mu.Unlock()
			for _, done := range all {
				done()
			}
		case t := <-tasks:
			var err error
			if t.pull {
				w.copy(ctx, t.question)
			}
			if t.mark {
				err = w.mark(ctx, t.key)
			}
			t.done(err)
		case <-ctx.Done():
			return
		}
	}
}

// copy copies a key from the source, unless it has waited for too long.
func (w *worker) copy(ctx context.Context, q question) {
	if time.Since(q.asked) > w.config.Timeout || w.flushed.Load() {
		return
	}
	if err := w.pull(ctx, q.key); err != nil && ctx.Err() == nil {
		w.failures.Add(1)
	}
}

func (w *worker) close() {
	for _, p := range w.members {
		p.close()
	}
	for _, p := range w.source {
		p.close()
	}
}

// onMember calls do with a connection to a member. If a kept connection turns out to be broken, do is called
// again with another one.
func (w *worker) onMember(ctx context.Context, address string, do func(*memcache.Conn) error) error {
	patience := w.config.MemberTimeout
	if w.asker {
		if patience = w.config.Timeout; w.rests(address) {
			return errRests
		}
	}
	err := w.tryMember(ctx, address, patience, do)
	if err != nil && w.asker && ctx.Err() == nil && !errors.Is(err, memcache.ErrProtocol) {
		w.failed(address, err)
	}
	return err
}

// errRests means that a member has just failed.
var errRests = errors.New("the member has just failed")

func (w *worker) tryMember(ctx context.Context, address string, patience time.Duration, do func(*memcache.Conn) error) error {
	for {
		p := w.members[address]
		kept := p != nil
		if !kept {
			dialling, cancel := context.WithTimeout(ctx, patience)
			c, err := w.config.Members.Dial(dialling, address)
			cancel()
			if err != nil {
				return err
			}
			w.forgetMembers()
			p = newPeer(ctx, c)
			w.members[address] = p
		}
		err := p.SetDeadline(time.Now().Add(patience))
		if err == nil {
			err = do(p.Conn)
		}
		if err == nil {
			return nil
		}
		p.close()
		delete(w.members, address)
		if !kept || ctx.Err() != nil || errors.Is(err, memcache.ErrProtocol) || isTimeout(err) {
			return err
		}
	}
}

// forgetMembers closes the connections to servers that have left.
func (w *worker) forgetMembers() {
	present := map[string]bool{}
	for _, s := range w.config.Table().Servers() {
		present[s.Address()] = true
	}
	for address, p := range w.members {
		if !present[address] {
			p.close()
			delete(w.members, address)
		}
	}
}

// set stores a mark at a member.
func (w *worker) set(ctx context.Context, address, mark string) error {
	return w.onMember(ctx, address, func(c *memcache.Conn) error {
		if err := c.Send([]byte("ms " + mark + " 1 T" + strconv.Itoa(markSeconds) + "\r\n1\r\n")); err != nil {
			return err
		}
		line, err := c.Line()
		if err == nil && !bytes.HasPrefix(line, []byte("HD")) {
			err = fmt.Errorf("%w: %.80q", errNotStored, line)
		}
		return err
	})
}

// errNotStored means that a member has no memory for a mark.
var errNotStored = fmt.Errorf("%w to a mark", memcache.ErrProtocol)

// mark marks a key, wherever it may be.
func (w *worker) mark(ctx context.Context, key string) error {
	owners, _ := w.owners(key)
	for _, address := range owners {
		var err error
		for range attempts {
			if err = w.set(ctx, address, markOf(key)); !errors.Is(err, errNotStored) {
				break
			}
		}
		if errors.Is(err, errNotStored) {
			// A write must not depend on memory for a mark: a delete may be the way to make room. So the
			// source, whose value may be outdated from now on, is not asked any more, by any router that can
			// be told.
			w.config.Logf("member %s has no memory for the mark of a key that is written (%s): the other cache is not asked any more", address, contract.OneLine(err))
			w.Flushed()
			return nil
		}
		if err != nil {
			return unmarked(err)
		}
	}
	return nil
}

// have tells whether a member has one of the keys.
func (w *worker) have(ctx context.Context, address string, keys ...string) (has []bool, err error) {
	err = w.onMember(ctx, address, func(c *memcache.Conn) error {
		var request []byte
		for _, key := range keys {
			if request, err = memcache.AppendLook(request, []byte(key)); err != nil {
				return err
			}
		}
		if err := c.Send(request); err != nil {
			return err
		}
		has = has[:0]
		for range keys {
			_, found, err := c.Looked()
			if err != nil {
				return err
			}
			has = append(has, found)
		}
		return nil
	})
	return has, err
}

// outdated tells whether the key is marked. Movers bring a mark to the member that owns the mark's own key.
func (w *worker) outdated(ctx context.Context, key string) (bool, error) {
	mark := markOf(key)
	asked := map[string][]string{}
	for of, marks := range map[string][]string{key: {mark, markAll}, mark: {mark}, markAll: {markAll}} {
		owners, _ := w.owners(of)
		for _, address := range owners {
			asked[address] = append(asked[address], marks...)
		}
	}
	for address, marks := range asked {
		has, err := w.have(ctx, address, marks...)
		if err != nil {
			return false, err
		}
		for _, is := range has {
			if is {
				return true, nil
			}
		}
	}
	return false, nil
}

// pull copies a key from the source to its member, if the member has none and the key isn't marked.
func (w *worker) pull(ctx context.Context, key string) error {
	owners, stable := w.owners(key)
	if !stable || !memcache.HasTextForm([]byte(key)) {
		return nil
	}
	owner := owners[0]
	if has, err := w.have(ctx, owner, key); err != nil || has[0] {
		return err
	}
	if is, err := w.outdated(ctx, key); err != nil || is {
		return err
	}
	it, err := w.fetch(ctx, key)
	if err != nil {
		return nil //nolint:nilerr // the server is left alone, and the key is a miss
	}
	if it == nil {
		w.misses.Add(1)
		return nil
	}
	w.hits.Add(1)
	added, err := w.add(ctx, owner, it)
	if err != nil || !added {
		return err
	}
	if is, err := w.outdated(ctx, key); err == nil && !is && !w.flushed.Load() {
		if now, stable := w.owners(key); stable && now[0] == owner {
			return nil
		}
	}
	return w.onMember(ctx, owner, func(c *memcache.Conn) error {
		_, err := c.TakeBack([]item.Item{*it})
		return err
	})
}

// add adds an item to a member, by a classic add if its key has such a form: a member without memory for an
// ms would delete its own item.
func (w *worker) add(ctx context.Context, owner string, it *item.Item) (added bool, err error) {
	err = w.onMember(ctx, owner, func(c *memcache.Conn) error {
		if err := c.Send(memcache.AppendAdd(nil, it)); err != nil {
			return err
		}
		line, err := c.Line()
		added = string(line) == "STORED" || bytes.HasPrefix(line, []byte("HD"))
		return err
	})
	return added, err
}

// fetch returns the source's item for a key; nil if there is none.
func (w *worker) fetch(ctx context.Context, key string) (it *item.Item, err error) {
	ring := w.ring.Load()
	address := ring.Servers[ring.Owner.Owner([]byte(key))].Address()
	if w.source[address] != nil {
		if it, err = w.ask(ctx, address, key); err == nil {
			return it, nil
		}
		if errors.Is(err, context.DeadlineExceeded) || isTimeout(err) {
			w.failed(address, err)
			return nil, err
		}
	}
	// The kept connection was idle, and its server has closed it.
	if it, err = w.ask(ctx, address, key); err != nil {
		w.failed(address, err)
		return nil, err
	}
	w.succeeded(address)
	return it, nil
}

func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.As(err, &timeout) && timeout.Timeout()
}

func (w *worker) ask(ctx context.Context, address, key string) (it *item.Item, err error) {
	ctx, cancel := context.WithTimeout(ctx, w.config.Timeout)
	defer cancel()
	p := w.source[address]
	if p == nil {
		if p, err = w.dial(ctx, address); err != nil {
			return nil, err
		}
		w.source[address] = p
	}
	deadline, _ := ctx.Deadline()
	if err = p.SetDeadline(deadline); err == nil {
		it, err = w.read(p, key)
	}
	if err != nil {
		p.close()
		delete(w.source, address)
	}
	return it, err
}

func (w *worker) dial(ctx context.Context, address string) (*peer, error) {
	c, err := w.config.Dialer.Dial(ctx, address)
	if err != nil {
		return nil, err
	}
	deadline, _ := ctx.Deadline()
	err = c.SetDeadline(deadline)
	version := ""
	if err == nil {
		version, err = c.Version()
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	c.Bound(min(w.config.MaxItem, mostValue))
	p := newPeer(w.ctx, c)
	p.classic = memcache.IsOlder(version, firstMeta) || !memcache.IsOlder("1.0.0", version)
	return p, nil
}

// read asks for an item.
func (w *worker) read(p *peer, key string) (*item.Item, error) {
	var request []byte
	var err error
	if p.classic {
		if !memcache.HasClassicForm([]byte(key)) {
			return nil, nil
		}
		request = memcache.AppendGets(nil, []byte(key))
	} else if request, err = memcache.AppendFetch(nil, []byte(key)); err != nil {
		return nil, nil //nolint:nilerr // no text form
	}
	if err := p.Send(request); err != nil {
		return nil, err
	}
	var v memcache.Value
	found := false
	if p.classic {
		w.value, found, err = p.AppendGot(&v, w.value[:0])
		if v.TTL = -1; w.config.TTL > 0 {
			v.TTL = int64(w.config.TTL / time.Second)
		}
	} else {
		w.value, found, err = p.AppendFetched(&v, w.value[:0])
	}
	const largest = 64 << 10 // a larger buffer is not kept
	value := w.value
	if cap(w.value) > largest {
		w.value = nil
	}
	if err != nil || !found || v.TooLarge || v.Outdated() || v.TTL == 0 {
		return nil, err
	}
	it := &item.Item{Key: []byte(key), Value: value, Flags: v.Flags, BinaryKey: v.BinaryKey}
	if v.TTL > 0 {
		it.ExpireAt = time.Now().Unix() + min(v.TTL, math.MaxInt32)
	}
	return it, nil
}
