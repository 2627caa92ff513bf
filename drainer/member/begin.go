package member

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"example.com/memcached-operator/drainer/start"
)

// A memcached that restarts from its warm file looks at every item of it before it has a thread
// that could answer. With a sound file that takes seconds, with a large one on a slow disk an hour.
// So a start is not bounded by a time alone. memcached is killed, and its items are replayed or it
// starts cold, if it has not begun to serve, no thread of it waits for a disk, and one of these is
// true:
//
//   - it has used HangAfter of CPU time, and has mapped nothing more of the file meanwhile. A
//     sound start maps 1 MiB in less than a millisecond. One that has locked its memory (-k) has
//     mapped everything before it looks at anything, so this says nothing of it;
//   - for HangAfter it has used no CPU;
//   - it has taken startSpins times HangAfter, and HangAfter more for each GiB of the file.

// startSpins times HangAfter are the time for the smallest file.
const startSpins = 10

// mostThreads are those of a memcached that restarts from its file: the main one, and the log's.
const mostThreads = 2

// stage is what is seen of a memcached that starts.
type stage struct {
	// begun: it has threads that answer its clients.
	begun, diskWait bool
	// locked: all of the file was mapped at once.
	locked bool
	cpu    time.Duration
	// mapped is how much of its file it has mapped, in bytes, and faults how often it had to read
	// some from the disk.
	mapped, faults int64
}

// startJudgement of whether a start ever ends, from one look to the next.
type startJudgement struct {
	after, most time.Duration
	// took is how long the start takes; still is for how long it has mapped nothing more, and cpu
	// what it had used before.
	took, still, cpu time.Duration
	mapped, faults   int64
}

// look tells why the start never ends, "" if it may.
func (j *startJudgement) look(s stage, since time.Duration) (why string) {
	since = min(since, 2*lookAtVitals)
	if s.diskWait || s.mapped > j.mapped || s.faults > j.faults {
		j.still, j.cpu = 0, s.cpu
		j.mapped, j.faults = max(j.mapped, s.mapped), max(j.faults, s.faults)
	} else {
		j.still += since
	}
	if !s.diskWait {
		j.took += since
	}
	switch used := s.cpu - j.cpu; {
	case used >= j.after && !s.locked:
		return fmt.Sprintf("it has used %s of CPU time and has looked at nothing more of its file", used.Round(time.Second))
	case j.still >= j.after && used <= idleCPU:
		return fmt.Sprintf("it has done nothing for %s", j.still.Round(time.Second))
	case j.took >= j.most:
		return fmt.Sprintf("it has taken %s", j.took.Round(time.Second))
	}
	return ""
}

// watchStart kills a memcached whose start never ends, until it has answered or ctx ends.
func (s *supervisor) watchStart(ctx context.Context) {
	gib := time.Duration(start.MemoryLimit(s.Command) >> 30)
	j := startJudgement{after: s.HangAfter, most: (startSpins + gib) * s.HangAfter}
	for last := time.Now(); wait(ctx, lookAtVitals) == nil; {
		now := time.Now()
		seen, err := lookAtStart(s.child.pid)
		if err != nil || s.saving.Load() {
			return // it has ended, or is told to, and endHung looks at it
		}
		select {
		case <-s.manifest.answered:
			return
		default:
		}
		if seen.begun {
			return
		}
		if why := j.look(seen, now.Sub(last)); why != "" {
			s.std.Logf("memcached does not start: %s; it is killed, and starts again without its own restart", why)
			s.unstarted.Store(true)
			s.child.signal(syscall.SIGKILL)
			return
		}
		last = now
	}
}

// lookAtStart looks at a process.
func lookAtStart(pid int) (s stage, err error) {
	process := "/proc/" + strconv.Itoa(pid)
	threads, err := os.ReadDir(process + "/task")
	if err != nil {
		return s, err
	}
	if s.begun = len(threads) > mostThreads; s.begun {
		return s, nil
	}
	for _, t := range threads {
		stat, err := readStat(process + "/task/" + t.Name() + "/stat")
		if err != nil {
			continue // it has ended
		}
		s.diskWait = s.diskWait || stat.state == 'D'
		s.cpu += stat.cpu
		s.faults += stat.faults
	}
	s.mapped, s.locked, err = mappedBytes(process + "/status")
	return s, err
}

// mappedBytes are those of files, in memory or on a disk, that a process has mapped and looked at.
// locked: its memory stays in memory.
func mappedBytes(path string) (sum int64, locked bool, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, false, err
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != "RssFile:" && fields[0] != "RssShmem:" && fields[0] != "VmLck:" {
			continue
		}
		kib, err := strconv.ParseInt(fields[1], 10, 53)
		if err != nil {
			return 0, false, fmt.Errorf("%s: %w", path, err)
		}
		if fields[0] == "VmLck:" {
			locked = kib > 0
		} else {
			sum += kib << 10
		}
	}
	return sum, locked, nil
}
