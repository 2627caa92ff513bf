package cluster

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// Report tells a person about the present work. Each line has the seconds since the start.
type Report struct {
	out   io.Writer
	start time.Time
	mu    sync.Mutex
}

// NewReport starts the clock.
func NewReport(out io.Writer) *Report { return &Report{out: out, start: time.Now()} }

func (r *Report) say(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.out, "%6.1fs  %s\n", time.Since(r.start).Seconds(), fmt.Sprintf(format, args...))
}

// plain prints a line without the time, so that it can be copied.
func (r *Report) plain(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.out, format+"\n", args...)
}
