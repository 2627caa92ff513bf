package move

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/pace"
)

// pass copies what the sources have now. Before the first item, all sources have been listed.
func (c *copying) pass(ctx context.Context) error {
	first := c.made == 0
	defer func() {
		for _, s := range c.sources {
			s.endList()
		}
	}()
	demand, ages, now, listed := make([]int64, len(c.e.Servers)), newAgeSizes(), presentAges(), int64(0)
	all := first && !c.resumes() // none is at its owner yet
	if err := c.each(sourcesAtOnce, func(_ int, s *copySource) error { return s.list(ctx, all) }); err != nil {
		return err
	}
	var samples samples
	if first {
		samples = c.newSamples()
	}
	for _, s := range c.sources {
		n, err := s.sum(demand, ages, now, samples)
		if err != nil {
			return err
		}
		listed += n
	}
	if first {
		if err := c.ask(ctx, samples); err != nil {
			return err
		}
		if err := c.begin(demand, listed); err != nil {
			return err
		}
	} else if c.AsMuchAsFits {
		if err := c.readRoom(ctx); err != nil {
			return err
		}
	}
	c.passes.begin(listed, c.e.done())
	before, found := c.outcomes()
	c.leftOut.Store(0)
	c.noTextForm.Store(0)
	bands := ages.bands(false)
	if first && c.streams() {
		bands = everyAge // each stream has the most recently used items first
	}
	err := c.read(ctx, bands, now, all)
	for _, s := range c.sources {
		if err == nil {
			err = s.stillRuns(ctx)
		}
	}
	after, foundNow := c.outcomes()
	if err == nil && !first {
		err = c.deleteGone(ctx)
	}
	if err != nil {
		return err
	}
	c.lastAdded, c.lastFound = max(0, after-before), max(listed, foundNow-found)
	return nil
}

// read copies what was listed, band by band, and waits until the servers have answered.
func (c *copying) read(ctx context.Context, bands []band, now ageClock, all bool) (err error) {
	workers := min(mostReaders, len(c.sources)) // even with one CPU: their answers take time
	if c.e.Limit != (pace.Limit{}) {
		workers = 1
	}
	spread := pace.New(c.e.Limit)
	shares := make([]*share, workers)
	for n := range shares {
		shares[n] = &share{Engine: c.e, pace: spread}
		for _, w := range c.e.writers {
			f := w.Feeder
			if n > 0 {
				f = w.NewFeeder()
			}
			shares[n].feeders = append(shares[n].feeders, f)
		}
	}
	for _, b := range bands {
		if err = c.each(workers, func(worker int, s *copySource) error {
			return shares[worker].read(ctx, s.items(ctx, b, now, all), func(*item.Item) bool { return true })
		}); err != nil {
			break
		}
	}
	for _, s := range shares {
		c.e.counts.add(&s.counts)
	}
	if flushed := c.e.flush(); err == nil {
		err = flushed
	}
	return err
}

// begin is called when everything was listed, before the first item is copied.
func (c *copying) begin(demand []int64, listed int64) error {
	if err := c.fits(demand); err != nil && !c.AsMuchAsFits {
		return err
	}
	for i, w := range c.e.writers {
		c.room[i].Store(w.Limits().Room)
	}
	c.seen.Begin(listed)
	c.e.beginPhase(contract.PhaseAdding)
	return nil
}

// readRoom reads how much room the servers have now: what replaces a large copy counts as if it needed more.
func (c *copying) readRoom(ctx context.Context) error {
	for i := range c.targets {
		t := &c.targets[i]
		t.mu.Lock()
		err := t.ask(ctx, c.e.UnreachableTimeout, c.e.waits.Set, false, func(conn *memcache.Conn) error {
			l, err := conn.Limits()
			c.room[i].Store(l.Room)
			return err
		})
		t.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// resumes tells whether the servers may have an earlier run's copies. These are not asked for again: if they were, a copy
// that takes longer than its deadline would never end.
func (c *copying) resumes() bool {
	const empty = 1 << 20 // members have a few items of their own
	return slices.ContainsFunc(c.e.writers, func(w *memcache.Writer) bool { return w.Limits().Taken > empty })
}

// short tells whether a server may be short of memory.
func (c *copying) short() bool { return slices.ContainsFunc(c.e.writers, (*memcache.Writer).Short) }

// streams tells whether a source is streamed.
func (c *copying) streams() bool {
	for _, s := range c.sources {
		if s.stream != nil {
			return true
		}
	}
	return false
}

// outcomes returns how many items were added and stay, and how many were found.
func (c *copying) outcomes() (added, found int64) {
	for _, w := range c.e.writers {
		added += w.Tally().Added
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return added - c.withdrawn, c.e.counts.found
}

// each calls do for all sources, for so many at the same time. The first error ends it.
func (c *copying) each(workers int, do func(worker int, s *copySource) error) error {
	workers = min(workers, len(c.sources))
	errs, next := make([]error, workers), make(chan *copySource)
	var all sync.WaitGroup
	c.failing.Store(false)
	var failed sync.Once
	stop := make(chan struct{})
	for n := range workers {
		all.Go(func() {
			for s := range next {
				if errs[n] = do(n, s); errs[n] != nil {
					c.failing.Store(true)
					failed.Do(func() { close(stop) })
					return
				}
			}
		})
	}
give:
	for _, s := range c.sources {
		select {
		case next <- s:
		case <-stop:
			break give
		}
	}
	close(next)
	all.Wait()
	return firstCause(errs)
}

// takes tells whether an item is copied: if there may be too little room, only as long as its owner has some. An
// outdated copy leaves room for one of usual size, in bytes.
func (c *copying) takes(it *item.Item, usual int64) bool {
	size := int64(it.Size() + itemOverhead)
	if !c.AsMuchAsFits || it.Over != 0 && size <= usual {
		return true
	}
	if c.room[c.e.Owner.Owner(it.Key)].Add(-size-size/slack) >= 0 {
		return true
	}
	c.leftOut.Add(1)
	return false
}

// unsent is called for items that a writer doesn't send, by the one who hands them over.
func (c *copying) unsent(it *item.Item, _ bool) {
	if c.Volumes == nil {
		c.sources[it.Place-1].unsent = true
	}
}

// answered asks the sources whether they still have what a server was given, and deletes there what has changed.
func (c *copying) answered(server, _ int, a memcache.Answered) error {
	if c.Volumes != nil {
		return nil
	}
	var outdated []int
	of := make([][]int, len(c.sources))
	for i := range a.Len() {
		place, _ := a.Place(i)
		of[place-1] = append(of[place-1], i)
	}
	for n, s := range c.sources {
		mine := of[n]
		changed, err := s.changed(c.ctx, mine, a.Key)
		if err != nil {
			c.withdrawUnchecked(server, a)
			return err
		}
		outdated = append(outdated, changed...)
	}
	if c.Marks {
		marked, err := c.marked(server, a.Len(), func(i int) []byte { key, _ := a.Key(i); return key })
		if err != nil {
			c.withdrawUnchecked(server, a)
			return err
		}
		outdated = append(outdated, marked...)
		slices.Sort(outdated)
		outdated = slices.Compact(outdated)
	}
	if c.Passes != 1 {
		c.see(a, outdated)
	}
	return c.withdraw(c.ctx, c.e.UnreachableTimeout, server, a, outdated)
}

// marked returns those of n items that a client has changed: the server's router has marked their keys before. The look
// comes after the item was added, so a client that changes it later finds it.
func (c *copying) marked(server, n int, key func(int) []byte) (marked []int, err error) {
	if n == 0 {
		return nil, nil
	}
	t := &c.targets[server]
	t.mu.Lock()
	defer t.mu.Unlock()
	all := []int{n} // stands for all keys
	for i := range n {
		all = append(all, i)
	}
	mark := func(i int) []byte {
		if i == n {
			return []byte(contract.OutdatedAll)
		}
		return []byte(contract.OutdatedKey(key(i)))
	}
	err = t.ask(c.ctx, c.e.UnreachableTimeout, c.e.waits.Set, false, func(conn *memcache.Conn) error {
		marked = marked[:0]
		flushed := false
		return lookAll(conn, all, mark, c.e.UnreachableTimeout, false, func(i int, _ uint64, found bool) {
			flushed = flushed || found && i == n
			if i < n && (found || flushed) {
				marked = append(marked, i)
			}
		})
	})
	return marked, err
}

// see records that a server has the items, except those that are outdated.
func (c *copying) see(a memcache.Answered, outdated []int) {
	gone := map[int]bool{}
	for _, i := range outdated {
		gone[i] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range a.Len() {
		if key, cas := a.Key(i); !gone[i] {
			c.seen.Had(c.versionOf(key, cas))
			c.had++
		}
	}
}

// versionOf returns what stands for an item in seen, until the next call.
func (c *copying) versionOf(key []byte, cas uint64) []byte {
	c.version = binary.LittleEndian.AppendUint64(append(c.version[:0], key...), cas)
	return c.version
}

// withdraw deletes copies at a server, if they are still there.
func (c *copying) withdraw(ctx context.Context, patience time.Duration, server int, a memcache.Answered, outdated []int) error {
	var marked memcache.Deletions
	var unmarked []item.Item
	for _, i := range outdated {
		key, cas := a.Key(i)
		place, hasMark := a.Place(i)
		if hasMark {
			if err := marked.Append(key, c.sources[place-1].mark(cas)); err != nil {
				return err
			}
		} else if a.MayBeOurs(i) {
			value, flags := a.Value(i)
			unmarked = append(unmarked, item.Item{Key: key, Value: value, Flags: flags})
		}
	}
	if marked.Len() == 0 && len(unmarked) == 0 {
		return nil
	}
	taken, err := c.delete(ctx, patience, server, &marked, unmarked)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.withdrawn += taken
	return err
}

// withdrawUnchecked deletes copies, if they are still there, that the source can't be asked about: it has died, or the copy
// ends. A client may have deleted such an item at both, while it was on its way.
func (c *copying) withdrawUnchecked(server int, a memcache.Answered) {
	const patience = 2 * time.Second
	if c.Volumes != nil {
		return
	}
	all := make([]int, a.Len())
	for i := range all {
		all[i] = i
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), patience)
	defer cancel()
	if err := c.withdraw(ctx, patience, server, a, all); err != nil {
		fmt.Fprintf(c.e.Log, "%d items at %s were copied, and not compared with their source again: %v\n", len(all), c.e.Servers[server], contract.OneLine(err))
	}
}

// delete deletes copies at a server: marked ones by their CAS, others if their value is the same.
func (c *copying) delete(ctx context.Context, patience time.Duration, server int, marked *memcache.Deletions, unmarked []item.Item) (taken int64, err error) {
	t := &c.targets[server]
	t.mu.Lock()
	defer t.mu.Unlock()
	err = t.ask(ctx, patience, c.e.waits.Set, false, func(conn *memcache.Conn) error {
		deleted, err := conn.Delete(marked)
		if err == nil {
			taken += marked.Len() - int64(len(deleted.Changed)+len(deleted.Missing))
			marked.Reset() // if the connection breaks now, they are not deleted twice
			var n int64
			n, err = conn.TakeBack(unmarked)
			taken += n
		}
		return err
	})
	return taken, err
}

// deleteCopies deletes earlier copies at a server.
func (c *copying) deleteCopies(ctx context.Context, server int, copies *memcache.Deletions) error {
	taken, err := c.delete(ctx, c.e.UnreachableTimeout, server, copies, nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deleted += taken
	return err
}

// deleteGone deletes the copies whose item is gone at the source: its client has deleted it, or it has expired or was
// evicted.
func (c *copying) deleteGone(ctx context.Context) error {
	for i, s := range c.e.Servers {
		if !c.e.writers[i].Limits().Marks() {
			continue
		}
		list, err := ListItems(ctx, func(ctx context.Context) (*memcache.Conn, error) { return c.e.Dialer.Dial(ctx, s.Address()) },
			c.Scratch, longestList, func(e *Entry) bool { return isMark(e.CAS) && c.sourceOf(e.CAS) != nil })
		if errors.As(err, new(*listRefusedError)) {
			c.cantTell[contract.CantTellCopies] = true
			continue
		}
		if err != nil {
			return c.e.withServer(i, err)
		}
		err = c.deleteListed(ctx, i, list.All())
		list.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// sourceOf returns the source of a copy with that mark; nil if it is none of these, or was another process then.
func (c *copying) sourceOf(mark uint64) *copySource {
	if i := slices.IndexFunc(c.sources, func(s *copySource) bool { return s.marked(mark) }); i >= 0 {
		return c.sources[i]
	}
	return nil
}

// deleteListed deletes those of a server's copies that are gone, or that a client has changed.
func (c *copying) deleteListed(ctx context.Context, server int, copies iter.Seq2[*Entry, error]) error {
	parts := make([]copyPart, len(c.sources))
	flush := func(s *copySource, p *copyPart) error {
		all := make([]int, len(p.listed))
		for i := range all {
			all[i] = i
		}
		gone, err := s.gone(ctx, all, p.key)
		if err == nil && len(gone) > 0 {
			err = s.stillRuns(ctx) // an empty source has lost its items, and its clients have deleted none
		}
		if err == nil && c.Marks { // a run that was killed has not looked
			var marked []int
			marked, err = c.marked(server, len(p.listed), p.key)
			gone = append(gone, marked...)
			slices.Sort(gone)
			gone = slices.Compact(gone)
		}
		if err != nil {
			return err
		}
		var d memcache.Deletions
		for _, i := range gone {
			if err := d.Append(p.key(i), p.listed[i].cas); err != nil {
				return err
			}
		}
		p.reset()
		if d.Len() == 0 {
			return nil
		}
		return c.deleteCopies(c.ctx, server, &d)
	}
	for e, err := range copies {
		if err != nil {
			return err
		}
		s := c.sourceOf(e.CAS)
		p := &parts[s.index]
		if p.add(e); len(p.listed) == copyItems {
			if err := flush(s, p); err != nil {
				return err
			}
		}
	}
	for n, s := range c.sources {
		if p := &parts[n]; len(p.listed) > 0 {
			if err := flush(s, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// ageOf returns the age of a listed item.
func (c ageClock) ageOf(e *Entry) int {
	it := item.Item{LastAccess: e.LastAccess}
	return c.Of(&it)
}

// sourcesAtOnce bounds the sources that are listed together, and so the memory for it.
const sourcesAtOnce = 8

// copyItems bounds the keys that are asked for together.
const copyItems = 4096

// copyPart is a part of a list.
type copyPart struct {
	listed []copyEntry
	keys   []byte
}

// copyEntry is an entry. Its key is in the part's keys, up to keyEnd.
type copyEntry struct {
	expireAt, lastAccess int64
	cas, over            uint64
	keyEnd               int
	skip                 bool
	// outdated means that the copy, whose CAS is over, is not replaced.
	outdated bool
}

func (p *copyPart) reset() { p.listed, p.keys = p.listed[:0], p.keys[:0] }

func (p *copyPart) add(e *Entry) {
	p.keys = append(p.keys, e.Key...)
	p.listed = append(p.listed, copyEntry{expireAt: e.ExpireAt, lastAccess: e.LastAccess, cas: e.CAS, keyEnd: len(p.keys)})
}

func (p *copyPart) key(i int) []byte {
	from := 0
	if i > 0 {
		from = p.listed[i-1].keyEnd
	}
	return p.keys[from:p.listed[i].keyEnd:p.listed[i].keyEnd]
}

// refresh is how often, in items, the time for an answer begins again.
const refresh = 64

func extend(conn *memcache.Conn, n int, timeout time.Duration) error {
	if n%refresh != 0 {
		return nil
	}
	return conn.SetDeadline(time.Now().Add(timeout))
}
