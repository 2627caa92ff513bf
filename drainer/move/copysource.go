package move

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"iter"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/export"
	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/ringchange"
	"example.com/memcached-operator/drainer/routing"
)

// copySource is a memcached that items are copied from. Nothing that it sends is trusted: its lists, values and
// numbers are bounded.
type copySource struct {
	c      *copying
	index  int
	server routing.Server
	// from is in its marks. The others are those of the same process as well: its start is known to a second.
	from [3]uint64
	// reader reads items, and checks asks about them again, each for one goroutine at a time.
	reader link
	checks [2]struct {
		mu sync.Mutex
		link
	}
	targets []link

	version string
	// classic means that it is asked by gets, because it has no meta commands, or other ones.
	classic bool
	// started is when its process began, by its own clock; behind is by how much that clock is behind ours.
	started, behind int64
	// bytes and count are the size and the number of its items, as it says.
	bytes, count int64
	keys         *List
	stream       *export.Stream
	streamed     bool
	part         copyPart
	value        []byte
	item         item.Item
	// unsent means that the item that was yielded last is not sent: its owner would refuse it.
	unsent bool
}

func newCopySource(c *copying, index int, s routing.Server) *copySource {
	d := c.Dialer
	d.AnyServer = true
	cs := &copySource{c: c, index: index, server: s, reader: link{server: s, dialer: d}}
	for i := range cs.checks {
		cs.checks[i].link = link{server: s, dialer: d}
	}
	for _, t := range c.e.Servers {
		cs.targets = append(cs.targets, link{server: t, dialer: c.e.Dialer})
	}
	return cs
}

func (s *copySource) close() {
	s.endList()
	s.reader.close()
	for i := range s.checks {
		s.checks[i].close()
	}
	for i := range s.targets {
		s.targets[i].close()
	}
}

func (s *copySource) endList() {
	if s.keys != nil {
		s.keys.Close()
		s.keys = nil
	}
	if s.stream != nil {
		s.stream.Close()
		s.stream = nil
	}
}

// ask repeats do on a connection to the source until it succeeds.
func (s *copySource) ask(ctx context.Context, k *link, do func(*memcache.Conn) error) error {
	return k.ask(ctx, s.c.e.UnreachableTimeout, s.c.e.waits.Set, true, do)
}

// A copy's mark is its CAS at its owner. No server's own count gets so far, and JavaScript can still tell
// such numbers apart. A mark has the source's address, when its process began, and the item's CAS there: when a
// source has restarted, its clients have not deleted the items that it has lost.
const (
	markBit     = 1 << 52
	addressBits = 14 // there may be hundreds of sources
	startBits   = 14 // of the time in seconds
	casBits     = 52 - addressBits - startBits
)

func isMark(cas uint64) bool { return cas>>52 == 1 }

// identify sets the part of marks that tells the source's process. No two sources have the same address there.
func (c *copying) identify() {
	taken := map[uint64]bool{}
	for _, s := range slices.SortedFunc(slices.Values(c.sources), func(a, b *copySource) int { return strings.Compare(a.server.Address(), b.server.Address()) }) {
		h := fnv.New64a()
		fmt.Fprint(h, s.server.Address())
		address := scramble(h.Sum64()) >> (64 - addressBits) // FNV's high bits don't depend on the last digit
		for taken[address] {
			address = (address + 1) % (1 << addressBits)
		}
		taken[address] = true
		for i := range s.from {
			start := uint64(s.started+int64(i+1)%3-1) % (1 << startBits) // its own, the next and the one before
			s.from[i] = markBit | (address<<startBits|start)<<casBits
		}
	}
}

// marked tells whether a copy is of this process of the source.
func (s *copySource) marked(cas uint64) bool {
	return slices.ContainsFunc(s.from[:], func(from uint64) bool { return cas>>casBits == from>>casBits })
}

// markedBefore tells whether a copy is of an earlier process of the source.
func (s *copySource) markedBefore(cas uint64) bool {
	const processBits = startBits + casBits
	return cas>>processBits == s.from[0]>>processBits && !s.marked(cas)
}

// mark returns the mark of an item with that CAS at the source.
func (s *copySource) mark(cas uint64) uint64 {
	return s.from[0] | scramble(cas)>>(64-casBits)
}

// scramble is the finalizer of SplitMix64 (Steele, Lea, Flood 2014).
func scramble(n uint64) uint64 {
	z := n + 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// tooOldError means that a source lists no items.
type tooOldError struct{ name, version string }

func (e *tooOldError) Error() string {
	return fmt.Sprintf("source %s says that it is %.40q: a copy needs memcached %s or later", e.name, e.version, contract.OldestSource)
}

// Failure returns the reason and the exit code: no retry helps.
func (e *tooOldError) Failure() (reason string, exitCode int) {
	return contract.ReasonSourceTooOld, contract.ExitUsage
}

// errCopyRestarted: what was listed is gone.
var errCopyRestarted = errors.New("it restarted during the copy")

// check asks the sources for their versions, clocks and sizes.
func (c *copying) check(ctx context.Context) error {
	err := c.each(sourcesAtOnce, func(_ int, s *copySource) error {
		err := s.ask(ctx, &s.reader, func(conn *memcache.Conn) (err error) {
			if s.version, err = conn.Version(); err != nil {
				return err
			}
			return s.look(conn)
		})
		if err != nil {
			return err
		}
		if memcache.IsOlder(s.version, contract.OldestSource) {
			return &tooOldError{s.server.String(), s.version}
		}
		// Versions that are no numbers are asked as all versions can be.
		s.classic = !memcache.IsOlder(contract.OldestMemcached, s.version) && s.version != contract.OldestMemcached
		if s.classic {
			c.cannotTell(contract.CantTellBinaryKeys)
		}
		return s.isNoServer(ctx)
	})
	c.identify()
	return err
}

func (c *copying) cannotTell(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cantTell[what] = true
}

// look reads the source's clock, and what it has.
func (s *copySource) look(conn *memcache.Conn) error {
	stats, err := conn.Stats("")
	if err != nil {
		return err
	}
	now, began, err := times(stats)
	if err != nil {
		return err
	}
	const exact = 1 // in seconds
	switch {
	case s.started == 0:
		s.started = began
	case began > s.started+exact:
		return errCopyRestarted
	}
	s.behind = time.Now().Unix() - now
	s.bytes, _ = strconv.ParseInt(stats["bytes"], 10, 64)
	s.count, _ = strconv.ParseInt(stats["curr_items"], 10, 64)
	const most = 1 << 40 // it may say anything
	s.bytes, s.count = min(max(0, s.bytes), 1<<50), min(max(0, s.count), most)
	return nil
}

// stillRuns returns an error if the source is another process than at the beginning.
func (s *copySource) stillRuns(ctx context.Context) error {
	c := &s.checks[0]
	c.mu.Lock()
	defer c.mu.Unlock()
	restarted := false
	err := s.ask(ctx, &c.link, func(conn *memcache.Conn) error {
		err := s.look(conn)
		restarted = errors.Is(err, errCopyRestarted)
		if restarted {
			return nil
		}
		return err
	})
	if err == nil && restarted {
		return &sourceError{s.server.String(), errCopyRestarted}
	}
	return err
}

// isNoServer returns an error if the source is one of the servers: between two looks at the source, its counters
// have those of the server. Services that hide some counters are not compared.
func (s *copySource) isNoServer(ctx context.Context) error {
	for i := range s.targets {
		same := true
		for range 3 {
			var before, between, after memcache.Usage
			hidden := false
			usage := func(u *memcache.Usage) func(*memcache.Conn) error {
				return func(conn *memcache.Conn) (err error) {
					if *u, err = conn.Usage(); errors.Is(err, memcache.ErrProtocol) {
						hidden, err = true, nil
					}
					return err
				}
			}
			err := s.ask(ctx, &s.reader, usage(&before))
			if err == nil {
				err = s.targets[i].ask(ctx, s.c.e.UnreachableTimeout, s.c.e.waits.Set, false, usage(&between))
			}
			if err == nil {
				err = s.ask(ctx, &s.reader, usage(&after))
			}
			if err != nil {
				return err
			}
			if hidden || !between.After(before) || !after.After(between) {
				same = false
				break
			}
		}
		s.targets[i].close() // there may be hundreds of sources and servers
		if same {
			return &isServerError{s.server.String(), s.c.e.Servers[i].String()}
		}
	}
	return nil
}

// copyRefusedError means that a source doesn't list its items.
type copyRefusedError struct {
	name string
	err  *listRefusedError
}

func (e *copyRefusedError) Error() string {
	return fmt.Sprintf("source %s does not list its items, it answers %.80q, so nothing was copied: "+
		"start it without -X (--disable-dumping) and with its crawler (lru_crawler; before 1.5 it is off unless it is asked for), or let the routers ask it for what they miss (warmFrom.onMiss, drainer route --on-miss)", e.name, e.err.answer)
}

// Failure returns the reason and the exit code: no retry helps.
func (e *copyRefusedError) Failure() (reason string, exitCode int) {
	return contract.ReasonListingRefused, contract.ExitUsage
}

// list lists the source's keys in a file, or, if all are copied, opens the stream of its supervisor.
func (s *copySource) list(ctx context.Context, all bool) error {
	if all && s.c.ExportPort != 0 && !s.c.short() { // what is streamed is added without a look at its owner
		if s.openStream(ctx); s.stream != nil {
			return nil
		}
	}
	if err := s.stillRuns(ctx); err != nil {
		return err
	}
	const more = 1 << 20 // clients go on while it is listed
	// Each key is listed once, or a few times if it moves between the LRUs.
	l := &List{most: min(longestList, (4*s.count+more)*longestRecord), mostLines: 4*s.count + more}
	l.from(s.version)
	var file *listFileError
	err := s.ask(ctx, &s.reader, func(*memcache.Conn) (err error) {
		s.keys, err = l.list(ctx, func(ctx context.Context) (*memcache.Conn, error) {
			return s.reader.dialer.Dial(ctx, s.server.Address())
		}, s.c.Scratch, s.copied)
		if errors.As(err, &file) {
			return nil
		}
		return err
	})
	var refused *listRefusedError
	switch {
	case err == nil && file != nil:
		return file
	case errors.As(err, &refused):
		return &copyRefusedError{s.server.String(), refused}
	case err == nil && s.keys.Cut():
		return &listFileError{fmt.Errorf("source %s lists more than %d bytes of keys; copy a part of its servers at a time", s.server, int64(longestList))}
	case err == nil && s.keys.byAge:
		s.c.cannotTell(contract.CantTellAll)
	}
	return err
}

// openStream opens the stream of the source's supervisor, if there is one.
func (s *copySource) openStream(ctx context.Context) {
	r := export.Request{Client: s.c.Client, KeyPrefix: s.c.KeyPrefix, Self: export.NoServer}
	for _, t := range s.c.e.Servers {
		r.Servers = append(r.Servers, export.Listed{Name: t.Name, Host: t.Host, Port: t.Port})
	}
	stream, err := export.Open(ctx, s.reader.dialer, net.JoinHostPort(s.server.Host, strconv.Itoa(s.c.ExportPort)), &r, s.c.e.UnreachableTimeout)
	if err != nil {
		fmt.Fprintf(s.c.e.Log, "source %s streams no items, and its memcached is asked for each of them: %v\n", s.server, contract.OneLine(err))
		return
	}
	s.stream, s.streamed = stream, true
}

// copied tells whether a listed item is copied.
func (s *copySource) copied(e *Entry) bool {
	return !contract.IsMembersOwn(e.Key) && !bytes.HasPrefix(e.Key, []byte(contract.OutdatedPrefix)) && (s.c.Looks == nil || s.c.Looks.Owner(e.Key) == s.index)
}

// sampled is about how many items of a list have their owner computed to find out whether all fit.
const sampled = 100_000

// sum adds the sizes of what was listed, by owner and by age, and returns the number of items.
func (s *copySource) sum(demand []int64, ages ageSizes, now ageClock, samples samples) (int64, error) {
	if s.stream != nil {
		for i := range demand {
			demand[i] += s.bytes / int64(len(demand))
		}
		ages[0] += max(1, s.bytes)
		return s.stream.Expected, nil
	}
	average, n := s.bytes/max(1, s.count), int64(0)
	each := 1 + s.keys.Len()/sampled // an owner takes as long to compute as the rest
	few := 1 + int64(len(s.c.sources))*s.keys.Len()/each/askedFor
	for e, err := range s.keys.All() {
		if err != nil {
			return 0, err
		}
		size := min(max(e.Size, 0), 1<<30)
		if size == 0 {
			size = average
		}
		ages[now.ageOf(e)] += size
		if n++; n%each == 0 {
			owner := s.c.e.Owner.Owner(e.Key)
			demand[owner] += size * each
			if n/each%few == 0 {
				samples.add(owner, e.Key, size)
			}
		}
	}
	return s.keys.Len(), nil
}

// items yields the source's items in the band, each valid until the next one.
func (s *copySource) items(ctx context.Context, b band, now ageClock, all bool) iter.Seq2[*item.Item, error] {
	return func(yield func(*item.Item, error) bool) {
		if s.stream != nil {
			s.streamItems(yield)
			return
		}
		err := s.listedItems(ctx, b, now, all, func(it *item.Item) bool { return yield(it, nil) })
		if err != nil && !errors.Is(err, errEnough) {
			yield(nil, err)
		}
	}
}

// errEnough means that no more items are wanted.
var errEnough = errors.New("enough")

func (s *copySource) streamItems(yield func(*item.Item, error) bool) {
	for it, err := range s.stream.Items() {
		if err != nil { // the rest is found by the next pass
			fmt.Fprintf(s.c.e.Log, "the stream of source %s ended early, and its memcached is asked for the rest: %v\n", s.server, contract.OneLine(err))
			s.streamed = false
			return
		}
		if s.c.failing.Load() {
			return
		}
		if s.c.Looks != nil && s.c.Looks.Owner(it.Key) != s.index {
			continue
		}
		if bytes.HasPrefix(it.Key, []byte(contract.OutdatedPrefix)) || it.Flags == 0 && string(it.Value) == ringchange.LeaseValue {
			continue
		}
		it.ExpireAt, it.LastAccess = s.ours(it.ExpireAt), it.LastAccess+s.behind
		it.Mark, it.Place = s.mark(it.CAS), int64(s.index+1)
		if s.c.takes(it, 0) && !yield(it, nil) {
			return
		}
	}
}

func (s *copySource) listedItems(ctx context.Context, b band, now ageClock, all bool, yield func(*item.Item) bool) error {
	defer s.release()
	p, most := &s.part, copyItems
	if n := s.c.e.Limit.Items; n > 0 {
		most = int(min(int64(most), n))
	}
	p.reset()
	flush := func() error {
		if !all || s.c.short() { // a refused add would remove a client's value
			if err := s.classify(ctx, p); err != nil {
				return err
			}
		}
		err := s.fetch(ctx, p, yield)
		p.reset()
		return err
	}
	for e, err := range s.keys.All() {
		if err != nil {
			return err
		}
		if s.c.failing.Load() { // another source has failed
			return errEnough
		}
		if !b.Has(now.ageOf(e)) {
			continue
		}
		if p.add(e); len(p.listed) >= most {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if s.c.failing.Load() {
		return errEnough
	}
	return flush()
}

// release frees what a source needs only while it is read: there may be hundreds of sources and servers.
func (s *copySource) release() {
	s.part, s.value, s.item = copyPart{}, nil, item.Item{}
	s.reader.close()
	for i := range s.targets {
		s.targets[i].close()
	}
}

// askable tells whether the source can be asked for a key.
func (s *copySource) askable(key []byte) bool {
	if s.classic {
		return memcache.HasClassicForm(key)
	}
	return memcache.HasTextForm(key)
}

// classify looks at the owners, and leaves out what they have: values of clients, and copies that are up to date.
func (s *copySource) classify(ctx context.Context, p *copyPart) error {
	of := make([][]int, len(s.targets))
	for i := range p.listed {
		if key := p.key(i); memcache.HasTextForm(key) {
			owner := s.c.e.Owner.Owner(key)
			of[owner] = append(of[owner], i)
		}
	}
	for owner, mine := range of {
		if len(mine) == 0 {
			continue
		}
		k := &s.targets[owner]
		if err := k.ask(ctx, s.c.e.UnreachableTimeout, s.c.e.waits.Set, false, func(conn *memcache.Conn) error {
			return lookAll(conn, mine, p.key, s.c.e.UnreachableTimeout, false, func(i int, cas uint64, found bool) { s.judge(p, i, cas, found) })
		}); err != nil {
			return err
		}
	}
	return nil
}

// judge decides what becomes of an item, by the CAS that its owner has for it.
func (s *copySource) judge(p *copyPart, i int, cas uint64, found bool) {
	e := &p.listed[i]
	e.over, e.skip = 0, true
	switch {
	case !found:
		s.c.mu.Lock()
		if e.skip = s.c.seen.Has(s.c.versionOf(p.key(i), e.cas)); e.skip && s.c.seen.Overfull(s.c.had) {
			s.c.leftOut.Add(1)
		}
		s.c.mu.Unlock()
	case s.marked(cas) && cas != s.mark(e.cas), s.markedBefore(cas):
		e.over, e.skip = cas, false
	}
}

// lookAll asks for the CAS of items: by mg, or by gets for a classic server.
func lookAll(conn *memcache.Conn, all []int, key func(int) []byte, timeout time.Duration, classic bool, see func(i int, cas uint64, found bool)) error {
	var request []byte
	for _, i := range all {
		if classic {
			request = memcache.AppendGets(request, key(i))
		} else if b, err := memcache.AppendLook(request, key(i)); err == nil {
			request = b
		}
	}
	if classic { // the values are not needed
		conn.Bound(1)
		defer conn.Bound(0)
	}
	return converse(conn, request, func() error {
		var v memcache.Value
		for n, i := range all {
			if err := extend(conn, n, timeout); err != nil {
				return err
			}
			cas, found, err := uint64(0), false, error(nil)
			if classic {
				_, found, err = conn.AppendGot(&v, nil)
				cas = v.CAS
			} else {
				cas, found, err = conn.Looked()
			}
			if err != nil {
				return err
			}
			see(i, cas, found)
		}
		return nil
	})
}

// converse sends requests while it reads the answers: a server that can't send its answers stops reading.
func converse(conn *memcache.Conn, request []byte, read func() error) error {
	sent := make(chan error, 1)
	go func() { sent <- conn.Send(request) }()
	err := read()
	if err != nil {
		conn.Close()
	}
	return errors.Join(err, <-sent)
}

// maxValue is the largest value that any server takes, in bytes.
func (c *copying) maxValue() int {
	most := 0
	for _, w := range c.e.writers {
		if n := w.Limits().ItemSizeMax; n == 0 {
			return 1 << 30 // unknown
		} else if n > most {
			most = n
		}
	}
	return most
}

// wanted are those of a part that the source is asked for.
func (s *copySource) wanted(p *copyPart) []int {
	wanted := make([]int, 0, len(p.listed))
	for i := range p.listed {
		switch {
		case !s.askable(p.key(i)):
			s.c.noTextForm.Add(1)
		case !p.listed[i].skip:
			wanted = append(wanted, i)
		}
	}
	s.c.e.skipped.Add(int64(len(p.listed) - len(wanted)))
	return wanted
}

// fetch asks the source for a part, and yields what it has. If the connection breaks, it goes on where it was.
func (s *copySource) fetch(ctx context.Context, p *copyPart, yield func(*item.Item) bool) error {
	wanted := s.wanted(p)
	most := s.c.maxValue()
	for enough := false; len(wanted) > 0; {
		if err := s.ask(ctx, &s.reader, func(conn *memcache.Conn) error {
			conn.Bound(most)
			var request []byte
			for _, i := range wanted {
				if s.classic {
					request = memcache.AppendGets(request, p.key(i))
				} else {
					request, _ = memcache.AppendFetch(request, p.key(i))
				}
			}
			asked, before := time.Now().Unix(), len(wanted)
			err := converse(conn, request, func() error {
				for n := 0; len(wanted) > 0; n++ {
					if err := extend(conn, n, s.c.e.UnreachableTimeout); err != nil {
						return err
					}
					it, err := s.next(conn, p, wanted[0], asked)
					if err != nil {
						return err
					}
					e := &p.listed[wanted[0]]
					wanted = wanted[1:]
					if it == nil {
						s.c.e.skipped.Add(1)
						continue
					}
					if s.unsent = false; !yield(it) {
						enough = true
						return errEnough
					}
					if e.outdated = e.outdated || e.over != 0 && s.unsent; e.over != 0 && !e.outdated {
						s.c.replaced.Add(1)
					}
				}
				return nil
			})
			if err != nil && (enough || len(wanted) < before && !errors.Is(err, memcache.ErrProtocol)) {
				s.reader.close()
				return nil // it was alive: begin anew
			}
			return err
		}); err != nil {
			return err
		}
		if enough {
			return errEnough
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return s.deleteOutdated(ctx, p)
}

// deleteOutdated deletes the copies of a part that the source has other versions of, which are not copied.
func (s *copySource) deleteOutdated(ctx context.Context, p *copyPart) error {
	if !slices.ContainsFunc(p.listed, func(e copyEntry) bool { return e.outdated }) {
		return nil
	}
	if err := s.stillRuns(ctx); err != nil { // otherwise the source may have lost its items
		return err
	}
	of := make([]memcache.Deletions, len(s.targets))
	for i := range p.listed {
		if e := &p.listed[i]; e.outdated {
			if err := of[s.c.e.Owner.Owner(p.key(i))].Append(p.key(i), e.over); err != nil {
				return err
			}
		}
	}
	for owner := range of {
		if of[owner].Len() == 0 {
			continue
		}
		if err := s.c.deleteCopies(ctx, owner, &of[owner]); err != nil {
			return err
		}
	}
	return nil
}

// next reads the answer for an entry; nil if there is nothing to copy.
func (s *copySource) next(conn *memcache.Conn, p *copyPart, i int, asked int64) (it *item.Item, err error) {
	e, key := &p.listed[i], p.key(i)
	var v memcache.Value
	found := false
	if s.classic {
		s.value, found, err = conn.AppendGot(&v, s.value[:0])
	} else {
		s.value, found, err = conn.AppendFetched(&v, s.value[:0])
	}
	if err != nil {
		return nil, err
	}
	if e.outdated = e.over != 0; !found {
		return nil, nil
	}
	if v.Flags == 0 && string(s.value) == ringchange.LeaseValue {
		return nil, nil // a router of the source has its lease
	}
	if s.classic && e.cas != 0 && v.CAS != e.cas {
		return nil, nil // only the next listing tells its time to live
	}
	if v.TooLarge {
		s.c.tooLarge.Add(1)
		return nil, nil
	}
	it = &s.item
	*it = item.Item{Key: key, Value: s.value, Flags: v.Flags, CAS: v.CAS, BinaryKey: v.BinaryKey, LastAccess: e.lastAccess + s.behind,
		ExpireAt: e.expireAt, Place: int64(s.index + 1), Mark: s.mark(v.CAS), Over: e.over}
	if v.CAS == 0 {
		s.c.cannotTell(contract.CantTellChanges)
	}
	now := time.Now().Unix()
	its := now - s.behind
	if !s.classic {
		it.ExpireAt, it.LastAccess = v.ExpireAt(e.expireAt, its), asked-v.Idle
	}
	it.ExpireAt = s.ours(it.ExpireAt)
	switch {
	case v.Outdated():
		it.State = item.Invalidated
	case it.ExpireAt != 0 && it.ExpireAt <= now:
		it.State = item.Expired
	}
	if it.State == item.Live && !s.c.takes(it, 2*s.bytes/max(1, s.count)) {
		return nil, nil
	}
	e.outdated = e.outdated && (it.State != item.Live || s.c.e.expiresSoon(it))
	return it, nil
}

// ours returns the time by our clock at which an item expires; 0 is never.
func (s *copySource) ours(at int64) int64 {
	if at == 0 {
		return 0
	}
	return at - item.Ahead(-s.behind, 0)
}

// changed returns those of the items that the source doesn't have any more as they were copied.
func (s *copySource) changed(ctx context.Context, all []int, key func(int) ([]byte, uint64)) (changed []int, err error) {
	return s.compare(ctx, all, func(i int) []byte { k, _ := key(i); return k }, func(i int, cas uint64) bool {
		_, was := key(i)
		return cas == was
	})
}

// gone returns those of the items that the source doesn't have any more.
func (s *copySource) gone(ctx context.Context, all []int, key func(int) []byte) ([]int, error) {
	return s.compare(ctx, all, key, func(int, uint64) bool { return true })
}

func (s *copySource) compare(ctx context.Context, all []int, key func(int) []byte, same func(i int, cas uint64) bool) (differ []int, err error) {
	if len(all) == 0 {
		return nil, nil
	}
	askable := all[:0:0]
	for _, i := range all {
		if s.askable(key(i)) {
			askable = append(askable, i)
		}
	}
	c := &s.checks[0]
	if !c.mu.TryLock() {
		c = &s.checks[1]
		c.mu.Lock()
	}
	defer c.mu.Unlock()
	err = s.ask(ctx, &c.link, func(conn *memcache.Conn) error {
		differ = differ[:0]
		return lookAll(conn, askable, key, s.c.e.UnreachableTimeout, s.classic, func(i int, cas uint64, found bool) {
			if !found || !same(i, cas) {
				differ = append(differ, i)
			}
		})
	})
	return differ, err
}

// Named reads a list of servers, [NAME=]HOST:PORT[,…].
func Named(list string) (all []routing.Server, err error) {
	for text := range strings.SplitSeq(list, ",") {
		s, err := routing.ParseServer(text)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}
