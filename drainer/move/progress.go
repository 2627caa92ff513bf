package move

import (
	"sync"
	"sync/atomic"
	"time"

	"example.com/memcached-operator/drainer/contract"
)

// pass is a list of a running member's items that is being moved. before is how many items had an outcome when it
// began.
type pass struct {
	number        int
	before, total int64
}

// passes are the passes of a move or a copy.
type passes struct {
	expected atomic.Int64
	present  atomic.Pointer[pass]
}

// begin begins a pass over that many items, when done items have an outcome.
func (l *passes) begin(items, done int64) {
	l.expected.Add(items)
	next := pass{number: 1, before: done, total: items}
	if p := l.present.Load(); p != nil {
		next.number += p.number
	}
	l.present.Store(&next)
}

// expect begins a pass over that many items.
func (l *runningMember) expect(items int64) { l.passes.begin(items, l.done()) }

// listed returns the present pass, when done items have an outcome. A pass may have more items than expected,
// because a stream only estimates their number.
func (l *passes) listed(done int64) pass {
	p := pass{before: done}
	if present := l.present.Load(); present != nil {
		p = *present
		p.before = min(p.before, done)
		p.total = max(p.total, done-p.before)
	}
	return p
}

// done is how many items have an outcome.
func (e *Engine) done() int64 {
	done := e.skipped.Load()
	for _, w := range e.writers {
		done += w.Done()
	}
	return done
}

// report calls Progress with the present state.
func (e *Engine) report() {
	if e.Progress == nil {
		return
	}
	done := e.done()
	now := e.phase.Load().(running)
	waitsFor, waiting, source := e.waits.Message()
	member, live := e.Source.(*runningMember)
	leaves := live && member.leaving != nil
	late, present := 0.0, pass{before: done}
	if live {
		present = member.listed(done)
	}
	warm := false
	if c, copies := e.Source.(*copying); copies {
		present, warm = c.listed(done), c.warm.Load()
	}
	if live && waitsFor == "" && now.Phase == contract.PhaseSettling {
		waitsFor, waiting, late = member.waitsFor()
	}
	// Another pass over the source starts at its beginning, which must not look like a step back.
	for read := e.Source.Done(); ; {
		before := e.bytesRead.Load()
		if read <= before || e.bytesRead.CompareAndSwap(before, read) {
			break
		}
	}
	e.Progress(contract.Progress{
		Phase:          now.Phase,
		ItemsDone:      done,
		ItemsTotal:     max(done, e.Source.Expected()),
		Pass:           present.number,
		PassDone:       done - present.before,
		PassTotal:      present.total,
		BytesDone:      e.bytesRead.Load(),
		BytesTotal:     e.Source.Size(),
		NothingLeft:    leaves && member.leaving.empty.Load(),
		Warm:           warm,
		Late:           late,
		Seconds:        time.Since(now.began).Seconds(),
		Message:        waitsFor,
		WaitingSeconds: waiting.Seconds(),
		SourceSilent:   source,
	})
}

// reportEverySecond reports until stop is called.
func (e *Engine) reportEverySecond() (stop func()) {
	ticker := time.NewTicker(time.Second)
	quit := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-ticker.C:
				e.report()
			case <-quit:
				return
			}
		}
	})
	return func() {
		ticker.Stop()
		close(quit)
		wg.Wait()
	}
}
