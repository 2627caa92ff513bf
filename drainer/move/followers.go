package move

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/memcache"
)

// nameEvery is how often the clients that are late are looked for.
const nameEvery = 5 * time.Second

// followers looks at the clients of a running member while these follow a new list.
type followers struct {
	demand  demand
	clients clients
	// looked is when the member was last looked at, and named when clients were last looked for. counting
	// means that requests are counted.
	looked, named time.Time
	counting      bool
	// missed counts clients' deletes that found nothing, since they were told.
	missed int64

	saying  sync.Mutex
	callers string
	calling time.Time
	late    float64
}

// counts tells whether requests are counted.
func (l *runningMember) counts() bool { return l.counting }

// resume counts requests from now on.
func (l *runningMember) resume(ctx context.Context) (err error) {
	if l.counting, err = l.demand.resume(ctx); !l.counting {
		l.clients.forget()
	}
	l.looked = time.Now()
	return err
}

// observe looks at the requests since the last look, and returns their number, 0 if it is not known. After a look, requests may
// not be counted any more.
func (l *runningMember) observe(ctx context.Context) (requests float64, err error) {
	if !l.counting {
		return 0, nil
	}
	before := l.demand.now
	seen, known, lost, err := l.demand.look(ctx)
	if err != nil {
		return 0, err
	}
	l.looked = time.Now()
	if lost {
		l.demand.pause()
		l.counting = false
		l.clients.forget()
	}
	if known {
		l.clients.add(seen)
	}
	if l.until.IsZero() { // clients have not been told yet
		return seen.requests, nil
	}
	if l.named.IsZero() {
		l.named = l.looked.Add(time.Second - nameEvery)
	}
	l.missed += max(0, l.demand.now.missed-before.missed)
	if l.looked.Sub(l.named) >= nameEvery {
		l.named = l.looked
		err = l.name(ctx)
	}
	return seen.requests, err
}

// name records which clients still call, and the share of the requests that is late.
func (l *runningMember) name(ctx context.Context) error {
	callers := ""
	rate, late := l.clients.recent()
	if rate > 0 {
		var from func(conn int) bool
		if l.demand.log != nil {
			asking := l.demand.log.takeCallers()
			from = func(conn int) bool { return asking[conn] }
		}
		var peers *memcache.Peers
		if err := l.ask(ctx, &l.watch, func(c *memcache.Conn) (err error) {
			peers, err = c.Peers(nameEvery, from)
			return err
		}); err != nil {
			return err
		}
		callers = fmt.Sprintf("clients still call it: %.0f commands a second", math.Ceil(rate))
		if l.leaving == nil {
			callers = fmt.Sprintf("clients still ask it for items of others: %.0f requests a second", math.Ceil(rate))
		}
		if late > 0 {
			callers += fmt.Sprintf(", %.0f%% of those before", math.Ceil(100*late))
		}
		if l.leaving != nil && l.missed > 0 { // the item may have been moved
			callers += fmt.Sprintf("; %d of their deletes found nothing", l.missed)
		}
		callers += peers.String()
		callers = callers[:min(len(callers), contract.MaxCallers)]
	}
	l.saying.Lock()
	defer l.saying.Unlock()
	if l.callers == "" {
		l.calling = time.Now()
	}
	l.callers, l.late = callers, late
	return nil
}

// waitsFor returns which clients still call, how long the move has waited for them, and the share of the requests
// that is late.
func (l *runningMember) waitsFor() (callers string, waiting time.Duration, late float64) {
	l.saying.Lock()
	defer l.saying.Unlock()
	if l.callers != "" {
		waiting = time.Since(l.calling)
	}
	return l.callers, waiting, l.late
}
