// Package terminal runs a program as a person does: in a pseudo-terminal, of which it keeps each screen.
package terminal

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"example.com/memcached-operator/test/wait"
)

// Terminal is a pseudo-terminal in which one program runs.
type Terminal struct {
	tb     testing.TB
	cmd    *exec.Cmd
	master *os.File
	ended  chan error

	mu     sync.Mutex
	screen *screen
	frames []Timed
	more   chan struct{} // closed and replaced when something was written
}

// Timed is a frame, and when it was whole.
type Timed struct {
	Frame
	At time.Time
}

// Start starts the command in a terminal of that size. The program ends with the test.
func Start(tb testing.TB, cmd *exec.Cmd, columns, rows int) *Terminal {
	tb.Helper()
	master, slave, err := Open(uint16(columns), uint16(rows))
	if err != nil {
		tb.Fatalf("open a terminal: %v", err)
	}
	t := &Terminal{tb: tb, cmd: cmd, master: master, ended: make(chan error, 1), screen: newScreen(columns, rows), more: make(chan struct{})}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true} // so that ^C interrupts it
	err = cmd.Start()
	slave.Close()
	if err != nil {
		master.Close()
		tb.Fatalf("%s: %v", cmd, err)
	}
	go t.read()
	tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = master.Close()
	})
	return t
}

// read shows the program's output until the program has ended.
func (t *Terminal) read() {
	text := make([]byte, 4096)
	for {
		n, err := t.master.Read(text)
		t.mu.Lock()
		t.screen.write(text[:n], func() { t.frames = append(t.frames, Timed{t.screen.frame(), time.Now()}) })
		close(t.more)
		t.more = make(chan struct{})
		t.mu.Unlock()
		if err != nil { // EIO: the last process has closed its side
			t.ended <- t.cmd.Wait()
			return
		}
	}
}

// Type types the text. ^C is "\x03".
func (t *Terminal) Type(text string) {
	t.tb.Helper()
	if _, err := t.master.WriteString(text); err != nil {
		t.tb.Fatalf("type %q: %v\n%s", text, err, t.Text())
	}
}

// Interrupt types ^C.
func (t *Terminal) Interrupt() { t.tb.Helper(); t.Type("\x03") }

// Text is the terminal's present text.
func (t *Terminal) Text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.screen.frame().Text()
}

// Frames are the screens that a program has redrawn.
func (t *Terminal) Frames() []Timed {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]Timed(nil), t.frames...)
}

// Until waits until is accepts the terminal's text, and returns the text. If the program ends before, or the
// test's time is over, the test ends with the last screen.
func (t *Terminal) Until(what string, is func(text string) bool) string {
	t.tb.Helper()
	over := wait.Over()
	for {
		t.mu.Lock()
		text, more := t.screen.frame().Text(), t.more
		t.mu.Unlock()
		if is(text) {
			return text
		}
		select {
		case <-more:
		case err := <-t.ended:
			t.ended <- err
			if text = t.Text(); is(text) {
				return text
			}
			t.tb.Fatalf("%s ended (%v) before %s; its last screen:\n%s", t.cmd, err, what, text)
		case <-over:
			t.tb.Fatalf("the test's time is over, and %s has not shown that %s; its last screen:\n%s", t.cmd, what, text)
		}
	}
}

// Shows waits until the terminal shows each part, which may go on at the beginning of the next line.
func (t *Terminal) Shows(parts ...string) string {
	t.tb.Helper()
	return t.Until(fmt.Sprintf("it shows %q", parts), func(text string) bool {
		for _, part := range parts {
			if !strings.Contains(text, part) && !strings.Contains(strings.ReplaceAll(text, "\n", ""), part) {
				return false
			}
		}
		return true
	})
}

// Ends waits until the program has ended, with this exit code, and returns the last screen.
func (t *Terminal) Ends(code int) string {
	t.tb.Helper()
	var err error
	select {
	case err = <-t.ended:
		t.ended <- err
	case <-wait.Over():
		t.tb.Fatalf("the test's time is over, and %s has not ended; its last screen:\n%s", t.cmd, t.Text())
	}
	if failed := (*exec.ExitError)(nil); err != nil && !errors.As(err, &failed) {
		t.tb.Fatalf("%s: %v", t.cmd, err)
	}
	if got := t.cmd.ProcessState.ExitCode(); got != code {
		t.tb.Fatalf("%s ended with %d, want %d; its last screen:\n%s", t.cmd, got, code, t.Text())
	}
	return t.Text()
}

// Open opens a pseudo-terminal of that size.
func Open(columns, rows uint16) (master, slave *os.File, err error) {
	if master, slave, err = pty.Open(); err != nil {
		return nil, nil, err
	}
	if err = pty.Setsize(master, &pty.Winsize{Cols: columns, Rows: rows}); err != nil {
		master.Close()
		slave.Close()
		return nil, nil, err
	}
	return master, slave, nil
}
