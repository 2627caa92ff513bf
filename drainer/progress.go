package drainer

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"example.com/memcached-operator/drainer/contract"
)

// report calls Progress with the state of the moment.
func (m *Migration) report() {
	if m.Progress == nil {
		return
	}
	done := m.skipped.Load()
	for _, w := range m.writers {
		done += w.Done()
	}
	now := m.phase.Load().(running)
	// Another pass over the source begins at its beginning; that is no progress.
	for read := m.Source.Done(); ; {
		before := m.bytesRead.Load()
		if read <= before || m.bytesRead.CompareAndSwap(before, read) {
			break
		}
	}
	m.Progress(contract.Progress{
		Phase:      now.Phase,
		ItemsDone:  done,
		ItemsTotal: max(done, m.Source.Expected()),
		BytesDone:  m.bytesRead.Load(),
		BytesTotal: m.Source.Size(),
		Seconds:    time.Since(now.began).Seconds(),
		Message:    m.silent.message(),
	})
}

// reportEverySecond returns a function that ends it.
func (m *Migration) reportEverySecond() (stop func()) {
	ticker := time.NewTicker(time.Second)
	quit := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-ticker.C:
				m.report()
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

// progressLines writes JSON lines and remembers the last.
type progressLines struct {
	w    io.Writer
	mu   sync.Mutex
	last contract.Progress
}

func (l *progressLines) write(p contract.Progress) {
	b, err := json.Marshal(p)
	if err != nil {
		return // no value of the type's can cause it
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = p
	// Whoever reads the lines may be gone; the receipt counts.
	_, _ = l.w.Write(append(b, '\n'))
}

// sortedFew sorts a list for a message and cuts it after three.
func sortedFew(names []string) []string {
	const few = 3
	slices.Sort(names)
	if len(names) > few {
		names = append(names[:few:few], fmt.Sprintf("and %d more", len(names)-few))
	}
	return names
}
