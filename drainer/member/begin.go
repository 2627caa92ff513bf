package member

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"example.com/memcached-operator/drainer/pace"
	"example.com/memcached-operator/drainer/start"
)

// A memcached that restarts from its warm file looks at every item in the file before it has a thread that
// could answer. With a sound file that takes seconds; with a large file on a slow disk it can take an hour.
// So time alone does not bound a start. memcached is killed if it has not begun to serve, no thread of it
// waits for a disk, and one of the conditions below is true. Then its items are replayed, or it starts cold.
//
//   - It has used HangAfter of CPU time without mapping more of the file. A sound start maps 1 MiB in less
//     than a millisecond. A memcached that has locked its memory (-k) maps the whole file first, so for it
//     this condition means nothing.
//   - It has used no CPU for HangAfter.
//   - It has run for startSpins times HangAfter, and HangAfter more for each GiB of the file.

// startSpins times HangAfter is the time allowed for the smallest file.
const startSpins = 10

// mostThreads is how many threads a memcached has while it restarts from its file: the main one and the
// log's.
const mostThreads = 2

// stage is the observed state of a memcached that starts.
type stage struct {
	// begun means that it has threads that answer its clients.
	begun, diskWait bool
	// locked means that all of the file was mapped at once.
	locked bool
	cpu    time.Duration
	// mapped is how many bytes of its file it has mapped. faults is how many pages had to be read from the
	// disk.
	mapped, faults int64
}

// startJudgement is the state between two looks at a start that may never end.
type startJudgement struct {
	after, most time.Duration
	// took is the duration of the start so far. still is how long it has mapped nothing more, and cpu is the
	// CPU time that it had used before that.
	took, still, cpu time.Duration
	mapped, faults   int64
}

// look returns why the start never ends, "" if it may end.
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

// watchStart kills a memcached whose start never ends. watchStart returns when memcached has answered or
// ctx ends.
func (s *supervisor) watchStart(ctx context.Context) {
	gib := time.Duration(start.MemoryLimit(s.Command) >> 30)
	j := startJudgement{after: s.HangAfter, most: (startSpins + gib) * s.HangAfter}
	for last := time.Now(); pace.Sleep(ctx, lookAtVitals) == nil; {
		now := time.Now()
		seen, err := lookAtStart(s.child.pid)
		if err != nil || s.saving.Load() {
			return // it has ended, or it was told to end, and endHung watches it
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
			s.std.Logf("memcached does not start: %s; it is killed, and will start again without resuming from its file", why)
			s.unstarted.Store(true)
			s.child.signal(syscall.SIGKILL)
			return
		}
		last = now
	}
}

// lookAtStart reads the state of a process.
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
			continue // the thread has ended
		}
		s.diskWait = s.diskWait || stat.state == 'D'
		s.cpu += stat.cpu
		s.faults += stat.faults
	}
	s.mapped, s.locked, err = mappedBytes(process + "/status")
	return s, err
}

// mappedBytes returns how many bytes of files, in memory or on a disk, a process has mapped and touched.
// locked means that its memory is locked.
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
