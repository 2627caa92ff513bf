package ringchange_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/ringchange"
)

// leased is the answer to the ma that makes a placeholder.
const leased = "VA 20 c7\r\n" + ringchange.LeaseValue + "\r\n"

// pair are the two owners of a key, with the state that an incr in Move needs: the old one has the item.
type pair struct{ leased, moved bool }

func (p *pair) answer(s ringchange.Step) string {
	switch {
	case s.Action == ringchange.Lease:
		p.leased = true
		return leased
	case s.Action == ringchange.Guarded || s.Action == ringchange.Ask || s.Action == ringchange.AskUpdate:
		if s.Place == ringchange.New {
			return "NOT_FOUND\r\n"
		}
		p.moved = true
		return "6\r\n"
	case s.Action == ringchange.Look && s.Place == ringchange.Old:
		return "HD f0 s1 c3 t-1\r\n"
	case s.Action == ringchange.Look && p.leased:
		return "HD f0 s1 c7 t-1\r\n"
	case s.Action == ringchange.Look:
		return "EN\r\n"
	}
	return "HD c8\r\n"
}

// run runs a task to its end, each step of which takes some time, and returns the time of the end.
func run(t *testing.T, job *ringchange.Task, answer func(ringchange.Step) string, takes time.Duration) (now int64) {
	t.Helper()
	now = 1
	step := job.Start()
	for range 20 {
		switch step.Action {
		case ringchange.Done:
			return now
		case ringchange.Wait:
			job.Wait(now)
			now += int64(ringchange.WaitStep)
			if !job.Due(now) {
				t.Fatal("a wait takes longer than a step")
			}
			step = job.Waited(now, time.Second)
			continue
		}
		if text := job.Append(nil, true, now, 0); !strings.Contains(string(text), "n") {
			t.Fatalf("%v: it says %q", step, text)
		}
		said := answer(step)
		if said == "" {
			step = job.Unreachable()
			continue
		}
		now += int64(takes)
		job.Take([]byte(said))
		step = job.Heard(now)
	}
	t.Fatal("it does not end")
	return 0
}

func incr() *ringchange.Task {
	job := ringchange.OfText([]byte("incr n 1\r\n"), false, ringchange.Move, 0)
	return &job
}

func TestAnUpdateOfAnItemThatHasNotMovedIsAnswered(t *testing.T) {
	t.Parallel()
	var owners pair
	job := incr()
	now := run(t, job, owners.answer, time.Millisecond)
	if answer, why := job.Answer(now, false); string(answer) != "6\r\n" {
		t.Errorf("%q, %q", answer, why)
	}
	if !owners.leased || !owners.moved {
		t.Errorf("it was carried out without its lease: %+v", owners)
	}
}

// The result of a write is unknown if its lease may have expired, or its owner was lost.
func TestAWriteWithoutASureLeaseIsAnError(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		takes       time.Duration
		reconnected bool
	}{
		"its lease may have expired": {time.Minute, false},
		"an owner was reconnected":   {time.Millisecond, true},
	} {
		var owners pair
		job := incr()
		now := run(t, job, owners.answer, c.takes)
		if answer, _ := job.Answer(now, c.reconnected); answer != nil {
			t.Errorf("%s: %q", name, answer)
		}
	}
}

func TestAnOwnerThatCannotBeReachedIsAnError(t *testing.T) {
	t.Parallel()
	job := incr()
	now := run(t, job, func(ringchange.Step) string { return "" }, 0)
	if answer, why := job.Answer(now, false); answer != nil || why != "" {
		t.Errorf("%q, %q", answer, why)
	}
}

func TestAnOwnersErrorIsKept(t *testing.T) {
	t.Parallel()
	job := incr()
	const trouble = "SERVER_ERROR out of memory\r\n"
	now := run(t, job, func(s ringchange.Step) string {
		if s.Action == ringchange.Lease {
			return trouble
		}
		return "NOT_FOUND\r\n"
	}, time.Millisecond)
	if answer, why := job.Answer(now, false); answer != nil || why != trouble {
		t.Errorf("%q, %q", answer, why)
	}
}

// An item is not copied in place of a lease that is older than the time between the two flushes.
func TestAMoveLeavesAnItemThatCameLate(t *testing.T) {
	t.Parallel()
	for takes, want := range map[time.Duration]bool{time.Millisecond: true, time.Second: false} {
		read := incr()
		move := read.Move(0)
		if !move.Moves() || read.Moves() {
			t.Fatal("a move is not told from a request")
		}
		copied := false
		run(t, &move, func(s ringchange.Step) string {
			switch s.Action {
			case ringchange.Lease:
				return leased
			case ringchange.Fetch:
				return "VA 1 f0 c3 l0 t-1\r\n5\r\n"
			case ringchange.Copy:
				copied = true
			}
			return fmt.Sprintf("HD c%d\r\n", 7)
		}, takes)
		if copied != want {
			t.Errorf("steps of %v: copied=%t", takes, copied)
		}
	}
}
