package move

import (
	"sync"
	"time"

	"example.com/memcached-operator/drainer/contract"
)

// report calls Progress with the present state.
func (e *Engine) report() {
	if e.Progress == nil {
		return
	}
	done := e.skipped.Load()
	for _, w := range e.writers {
		done += w.Done()
	}
	now := e.phase.Load().(running)
	waitsFor, waiting, source := e.waits.Message()
	member, live := e.Source.(*runningMember)
	leaves := live && member.leaving != nil
	late := 0.0
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
		BytesDone:      e.bytesRead.Load(),
		BytesTotal:     e.Source.Size(),
		NothingLeft:    leaves && member.leaving.empty.Load(),
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
