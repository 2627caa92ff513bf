package move

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"example.com/memcached-operator/drainer/crawl"
	"example.com/memcached-operator/drainer/memcache"
)

// demand counts the requests of a member's clients for items that move. At a leaving member these are all of its
// commands. A member that stays logs the keys: the share of the logged requests that are for items of others is
// also the share of its commands, because memcached may leave lines out.
type demand struct {
	l   *runningMember
	now counters
	// log is nil at a leaving member, and while no requests are counted. whole is the time of the first look that
	// pending is from: commands of which the log has said nothing yet.
	log     *requestLog
	pending float64
	whole   time.Time
}

// resume begins to count. A member that stays has to log requests; known is false if it doesn't.
func (d *demand) resume(ctx context.Context) (known bool, err error) {
	d.pause()
	if d.l.leaving == nil {
		if d.log, err = d.l.logRequests(ctx); err != nil {
			fmt.Fprintf(d.l.log, "how many clients have followed the list is not known, because the member logs no requests: %v\n", err)
			return false, ctx.Err()
		}
	}
	d.now, err = d.l.counters(ctx)
	d.pending, d.whole = 0, d.now.at
	return err == nil, err
}

// pause stops counting, because what the mover asks for would be counted, too.
func (d *demand) pause() {
	if d.log != nil {
		d.log.close()
		d.log = nil
	}
}

// look returns the requests since the last look. known is false if the log has to tell more first, and lost is
// true if it doesn't.
func (d *demand) look(ctx context.Context) (l look, known, lost bool, err error) {
	before := d.now.commands
	if d.now, err = d.l.counters(ctx); err != nil {
		return l, false, false, err
	}
	d.pending += float64(max(0, d.now.commands-before)) // less if the counters were reset
	share := 1.0
	if d.l.leaving == nil {
		ofOthers, all, ended := d.log.take()
		late := d.now.at.Sub(d.whole) >= quietFor
		if share = 0; all > 0 {
			share = float64(ofOthers) / float64(all)
		} else if d.pending > 0 || ended {
			return l, false, ended || late, nil
		}
	}
	l = look{took: d.now.at.Sub(d.whole), requests: d.pending * share}
	d.pending, d.whole = 0, d.now.at
	return l, true, false, nil
}

// counters are a member's counters at one time.
type counters struct {
	at time.Time
	// commands counts clients' commands, missed their deletes that found nothing.
	commands, missed int64
	// linked is how many items were stored.
	linked string
}

// clientCommands are the counters of commands with which clients use caches. They leave out the commands of
// the supervisor and of monitoring: "me", "version", "mn" and "stats".
var clientCommands = []string{"cmd_get", "cmd_set", "cmd_touch", "cmd_flush", "delete_hits", "delete_misses", "incr_hits", "incr_misses", "decr_hits", "decr_misses"}

// counters reads the counters. Between two passes the mover itself sends no command that counts.
func (l *runningMember) counters(ctx context.Context) (now counters, err error) {
	restarted := false
	err = l.ask(ctx, &l.watch, func(c *memcache.Conn) error {
		stats, err := c.Stats("")
		if err != nil {
			return err
		}
		now = counters{at: time.Now(), linked: stats["total_items"]}
		for _, name := range clientCommands {
			n, err := strconv.ParseInt(stats[name], 10, 64)
			if err != nil {
				return fmt.Errorf("%w to stats: %s=%q", memcache.ErrProtocol, name, stats[name])
			}
			if now.commands += n; name == "delete_misses" {
				now.missed = n
			}
		}
		restarted, err = l.isAnother(stats)
		return err
	})
	if restarted && err == nil {
		err = &sourceError{l.member.String(), errRestarted}
	}
	return now, err
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
	var requests *crawl.Requests
	if err = conn.SetDeadline(time.Now().Add(l.timeout)); err == nil {
		requests, err = crawl.WatchRequests(conn)
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
			r.note(l.owner.Owner(key) != l.self, caller)
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

// calling tells whether a connection has asked for keys of others since the last call of forgetCallers.
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
