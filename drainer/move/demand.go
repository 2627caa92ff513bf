package move

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/export"
	"example.com/memcached-operator/drainer/memcache"
)

// demand counts the requests of a member's clients for items that move. At a leaving member these are all of its
// commands; clients that follow make theirs at the owners. A member that stays logs the keys: the share of the logged
// requests that are for items of others is also the share of its commands, because memcached may leave lines out.
type demand struct {
	l   *runningMember
	now counters
	// own is how many commands of ours the member has counted since it was last read.
	own atomic.Int64
	// list is the CAS of the leaving member's item with the list, and lists how often its supervisor has stored it.
	list  uint64
	lists int64
	// log is nil at a leaving member, and while no requests are counted. whole is the time of the first look that
	// pending is from: commands of which the log has said nothing yet, reads those of them that read.
	log            *requestLog
	pending, reads float64
	whole          time.Time
	// seen is the time since then, at most mostSeen of each look. idle is for how much of that there has been no command, and
	// without the longest such time.
	seen, idle, without time.Duration
	// apart is how long it took to read the numbers that the look is compared to.
	apart time.Duration
	// others are the reads at owners since then.
	others float64
	// sampled are the commands of a member that stays before the rate was measured.
	sampled struct{ commands, reads float64 }
	// owners are those that get a leaving member's items: in a large cluster the first ones of order, which is another one for
	// each mover. asked is how many reads they had. Only reads are counted where other movers may be storing items; these
	// read there what late clients have stored anew.
	owners []link
	order  []int
	asked  int64
}

// hear is told how long no client had called before the first look.
func (d *demand) hear(s *export.Silence) {
	if d.l.leaving != nil && d.now.at.IsZero() {
		d.now.commands, d.l.clients.before = s.Commands, time.Duration(s.Seconds*float64(time.Second))
	}
}

// mostOwners bounds the owners that are asked. If all are, the sum of reads stays the same while clients follow, also those of
// one key that is read far more often than others.
const mostOwners = 64

// resume begins to count. A member that stays has to log requests; known is false if it doesn't.
func (d *demand) resume(ctx context.Context) (known bool, err error) {
	d.pause()
	if d.l.leaving == nil {
		if d.log, err = d.l.logRequests(ctx); err != nil {
			fmt.Fprintf(d.l.log, "how many clients have followed the list is not known, because the member logs no requests: %v\n", err)
			return false, ctx.Err()
		}
	}
	if d.order == nil {
		d.order = rand.Perm(len(d.l.servers))
	}
	for _, i := range d.order {
		if d.l.leaving != nil && len(d.owners) < mostOwners && (d.l.lost == nil || !d.l.lost[i]) {
			d.owners = append(d.owners, d.l.link(d.l.servers[i]))
		}
	}
	const tries, within = 4, time.Second
	for n, began := 1, time.Now(); ; n++ {
		if err := d.baseline(ctx); err != nil || d.apart <= lookEvery || n == tries || n > 1 && time.Since(began) >= within {
			return err == nil, err
		}
	}
}

// baseline reads the numbers that the first look is compared to.
func (d *demand) baseline(ctx context.Context) (err error) {
	began, before := time.Now(), d.now.commands
	d.now, err = d.l.counters(ctx)
	if own := d.own.Swap(0); d.l.leaving != nil && err == nil && d.now.commands != before+own {
		d.l.clients.unseen()
	}
	d.pending, d.idle = 0, 0
	if err == nil {
		d.atOwners(ctx)
	}
	d.renew(time.Since(began))
	return err
}

// renew begins with the numbers of the next look. It took so long to read those of the last one.
func (d *demand) renew(apart time.Duration) {
	d.reads, d.others, d.whole, d.seen, d.without, d.apart = 0, 0, d.now.at, 0, 0, apart
}

// atOwners returns the number of reads at the owners since it was last called. If one doesn't answer at once,
// none is asked any more.
func (d *demand) atOwners(ctx context.Context) (n float64) {
	before := d.asked
	reads, errs := make([]int64, len(d.owners)), make([]error, len(d.owners))
	var all sync.WaitGroup
	for i := range d.owners {
		all.Go(func() { reads[i], errs[i] = readsAt(ctx, &d.owners[i]) })
	}
	all.Wait()
	if errors.Join(errs...) != nil {
		d.leaveOwners()
		return 0
	}
	d.asked = 0
	for _, n := range reads {
		d.asked += n
	}
	return float64(max(0, d.asked-before))
}

func readsAt(ctx context.Context, owner *link) (int64, error) {
	conn, err := owner.get(ctx, time.Second)
	if err != nil {
		return 0, err
	}
	stats, err := conn.Stats("")
	if err != nil {
		return 0, err
	}
	return memcache.Reads(stats)
}

func (d *demand) leaveOwners() {
	for i := range d.owners {
		d.owners[i].close()
	}
	d.owners = nil
}

// pause stops counting, because the mover's own requests would be counted, too.
func (d *demand) pause() {
	if d.log != nil {
		d.log.close()
		d.log = nil
	}
	d.leaveOwners()
}

// look returns the requests since the last look. known is false if the log has to tell more first, and lost is
// true if it doesn't.
func (d *demand) look(ctx context.Context) (l look, known, lost bool, err error) {
	began, before := time.Now(), d.now
	if d.now, err = d.l.counters(ctx); err != nil {
		return l, false, false, err
	}
	n := d.now.commands - before.commands
	if n >= -1 { // less if the counters were reset, one less as withoutLists says
		d.pending += float64(n)
		d.reads += float64(max(0, d.now.reads-before.reads))
	}
	seen := min(d.now.at.Sub(before.at), mostSeen)
	d.seen, d.idle = d.seen+seen, d.idle+seen
	if d.without = max(d.without, d.idle); n > 0 {
		d.idle = 0
	}
	took, share := d.now.at.Sub(d.whole), 1.0
	if d.l.leaving != nil {
		if d.others += d.atOwners(ctx); len(d.owners) > 0 {
			l.others = d.reads + d.others
		} else {
			l.alone = true
		}
		// If one answers late, the numbers are not of one time. In ten times that time this changes little; longer than
		// quietFor is not waited.
		apart := max(d.apart, time.Since(began))
		if len(d.owners) > 0 && apart > max(lookEvery, took/10) && took < quietFor {
			return l, false, false, nil
		}
	} else {
		ofOthers, all, ended := d.log.take()
		if share = 0; all > 0 {
			share = float64(ofOthers) / float64(all)
		} else if d.pending > 0 || ended {
			return l, false, ended || took >= quietFor, nil
		}
	}
	l.took, l.requests, l.seen, l.without = took, max(0, d.pending*share), d.seen, d.without
	if d.l.leaving == nil {
		l.others = d.readsOfItsOwn(l.requests)
	}
	d.pending = min(0, d.pending)
	d.renew(time.Since(began))
	return l, true, false, nil
}

// readsOfItsOwn returns the reads of keys that stay, if so many requests were for items of others. memcached logs no
// difference between a request that reads and one that stores. So the share that reads is that of all commands before
// clients are told, when no mover stores.
func (d *demand) readsOfItsOwn(requests float64) float64 {
	if d.l.clients.rate == 0 {
		d.sampled.commands, d.sampled.reads = d.sampled.commands+d.pending, d.sampled.reads+d.reads
	}
	if d.sampled.commands <= 0 {
		return 0
	}
	return max(0, d.reads-requests*d.sampled.reads/d.sampled.commands)
}

// counters are a member's counters at one time.
type counters struct {
	at time.Time
	// commands counts clients' commands, reads the keys that they asked for, missed their deletes that found nothing.
	commands, reads, missed int64
	// linked is how many items were stored.
	linked string
}

// counters reads the counters. Between two passes the mover itself sends no command that counts.
func (l *runningMember) counters(ctx context.Context) (now counters, err error) {
	restarted := false
	err = l.ask(ctx, &l.watch, func(c *memcache.Conn) error {
		stats, err := c.Stats("")
		if err != nil {
			return err
		}
		now = counters{at: time.Now(), linked: stats["total_items"]}
		if now.commands, err = memcache.ClientCommands(stats); err != nil {
			return err
		}
		if now.reads, err = memcache.Reads(stats); err != nil {
			return err
		}
		if now.commands, err = l.withoutLists(c, now.commands); err != nil {
			return err
		}
		now.missed, _ = strconv.ParseInt(stats["delete_misses"], 10, 64) // ClientCommands has read it
		restarted, err = l.isAnother(stats)
		return err
	})
	if restarted && err == nil {
		err = &sourceError{l.member.String(), errRestarted}
	}
	return now, err
}

// withoutLists returns the commands of a leaving member without those of its supervisor, which stores the list when it
// changes. The last one of these may be missing in the commands, which were counted before.
func (l *runningMember) withoutLists(c *memcache.Conn, commands int64) (int64, error) {
	if l.leaving == nil {
		return commands, nil
	}
	d := &l.demand
	cas, err := c.CAS([]byte(contract.ListKey))
	if err == nil && cas != d.list {
		if cas != 0 && !d.now.at.IsZero() {
			d.lists++
		}
		d.list = cas
	}
	return commands - d.lists, err
}

// requestLog counts the requests that a member logs.
type requestLog struct {
	conn *memcache.Conn
	stop func() bool
	done chan struct{}

	mu sync.Mutex
	// all counts requests, ofOthers those for keys that others own; ended means that there will be no more.
	all, ofOthers int
	ended         bool
	// callers are the connections of these.
	callers map[int]bool
}

// mostCallers bounds the memory for connections.
const mostCallers = 1 << 16

// logRequests opens a log.
func (l *runningMember) logRequests(ctx context.Context) (*requestLog, error) {
	dialCtx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	conn, err := l.dialer.Dial(dialCtx, l.member.Address())
	if err != nil {
		return nil, err
	}
	var requests *watchedRequests
	if err = conn.SetDeadline(time.Now().Add(l.timeout)); err == nil {
		requests, err = watchRequests(conn)
	}
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	r := &requestLog{conn: conn, done: make(chan struct{}), callers: map[int]bool{}, stop: context.AfterFunc(ctx, func() { conn.Close() })}
	go func() {
		defer close(r.done)
		for {
			key, caller, err := requests.Next()
			if err != nil {
				r.mu.Lock()
				r.ended = true
				r.mu.Unlock()
				return
			}
			r.note(l.moves(key), caller)
		}
	}()
	return r, nil
}

func (r *requestLog) note(ofOthers bool, caller int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all++; ofOthers {
		if r.ofOthers++; len(r.callers) < mostCallers {
			r.callers[caller] = true
		}
	}
}

// take returns the numbers of requests since it was last called.
func (r *requestLog) take() (ofOthers, all int, ended bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ofOthers, all = r.ofOthers, r.all
	r.ofOthers, r.all = 0, 0
	return ofOthers, all, r.ended
}

// takeCallers returns the connections that have asked for keys of others since it was last called.
func (r *requestLog) takeCallers() map[int]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	callers := r.callers
	r.callers = map[int]bool{}
	return callers
}

func (r *requestLog) close() {
	r.stop()
	r.conn.Close()
	<-r.done
}
