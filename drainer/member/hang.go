package member

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/pace"
)

// The supervisor kills a memcached that hangs. Then its container ends, as after a crash: the kubelet starts
// it again, and its items are restored. The kubelet's own probes can't tell a memcached that hangs from a
// busy one: at the limit of connections memcached refuses new ones, and for a stopped memcached the kernel
// still accepts them. So the supervisor keeps a connection that it opened before there were clients.
// memcached hangs if all of this is true, without interruption, for HangAfter:
//
//   - A request on that connection gets no answer, and an earlier one got one.
//   - memcached uses no CPU. A memcached that is loaded, throttled or restoring items does use some. The CPU
//     time of its main thread doesn't count, because that thread only accepts connections and answers
//     nothing.
//   - No thread of it waits for a disk. A kill would not help then.
//
// A memcached that works all the time and answers nothing hangs after ten times HangAfter. Time in which the
// supervisor itself did not run, because its pod was frozen, doesn't count.
const (
	// HangAfter is the default.
	HangAfter = time.Minute
	// GracePeriod is the default, which is Kubernetes' own.
	GracePeriod = 30 * time.Second
	// hangWhenAsked is HangAfter for a memcached that was told to end: it uses CPU until it has ended.
	hangWhenAsked = 10 * time.Second
	// idleCPU is more than the clock and maintenance of an idle memcached use in that time, and far less than
	// the smallest CPU share that a container can be given.
	idleCPU = 100 * time.Millisecond
	// lookAtVitals is how often the supervisor looks at memcached. askEvery is how often it sends a request:
	// more often than memcached's shortest idle_timeout, which would close the connection. dialEvery is how
	// often it tries to connect while memcached accepts no connection.
	lookAtVitals = time.Second
	askEvery     = 500 * time.Millisecond
	dialEvery    = 5 * time.Second
	// spins is how many times HangAfter memcached may work without an answer.
	spins = 10
)

// vitals are the observed state of a memcached at one moment.
type vitals struct {
	// silent means that the last request has no answer yet.
	silent bool
	// cpu is the CPU time that its threads but the main one have used since it started. diskWait means that a
	// thread waits for a disk.
	cpu      time.Duration
	diskWait bool
}

// judgement is the state between two looks at a memcached that may hang.
type judgement struct {
	// after is how long memcached may neither answer nor work. most is how long it may work without an
	// answer; 0 is forever.
	after, most time.Duration
	// mute is how long memcached has not answered. quiet is how long it has not worked either.
	mute, quiet time.Duration
	// cpu is the CPU time when that began.
	cpu time.Duration
}

// look tells whether memcached hangs; since is the time since the last look.
func (j *judgement) look(v vitals, since time.Duration) bool {
	since = min(since, 2*lookAtVitals)
	if !v.silent || v.diskWait {
		j.mute, j.quiet, j.cpu = 0, 0, v.cpu
		return false
	}
	j.mute += since
	if v.cpu-j.cpu > idleCPU || v.cpu < j.cpu {
		j.quiet, j.cpu = 0, v.cpu
	} else {
		j.quiet += since
	}
	return j.quiet >= j.after || j.most > 0 && j.mute >= j.most
}

// pulse asks memcached for its version repeatedly, on a connection of its own.
type pulse struct {
	mu sync.Mutex
	// proven means that the connection has brought an answer. pending means that it has not brought the next
	// one, since the time asked.
	proven, pending bool
	asked           time.Time
	// questions are asked on the same connection, between two of its own requests.
	questions chan question
}

func (p *pulse) set(proven, pending bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.proven, p.pending, p.asked = proven, pending, time.Now()
}

// silent tells whether an answer is missing on a connection that has brought an earlier one.
func (p *pulse) silent() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.proven && p.pending
}

// answers tells whether memcached has answered, and its next answer is not late.
func (p *pulse) answers(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.proven && (!p.pending || now.Sub(p.asked) < lookPeriod)
}

// run asks until ctx ends, and connects again when a connection is lost.
func (p *pulse) run(ctx context.Context, d memcache.Dialer, address string) {
	pause := firstLook
	for err := ctx.Err(); err == nil; err = pace.Sleep(ctx, pause) {
		pause = min(2*pause, dialEvery)
		if p.askOn(ctx, d, address) {
			pause = firstLook
		}
		p.set(false, false)
	}
}

// askOn asks on one connection until that breaks, and tells whether there was an answer. askOn waits for
// an answer without a bound: waitForHang measures how late the answer is.
func (p *pulse) askOn(ctx context.Context, d memcache.Dialer, address string) (answered bool) {
	dialCtx, cancel := context.WithTimeout(ctx, lookPeriod)
	defer cancel()
	d.AnyServer = true // the version is asked for below, without a bound
	conn, err := d.Dial(dialCtx, address)
	if err != nil {
		return false
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	defer conn.Close()
	for {
		p.set(answered, true)
		onPulse(true)
		if _, err := conn.Version(); err != nil {
			return answered
		}
		answered = true
		p.set(true, false)
		onPulse(false)
		if p.answerQuestions(ctx, conn) != nil {
			return answered
		}
	}
}

// answerQuestions asks memcached the questions of other goroutines, for askEvery.
func (p *pulse) answerQuestions(ctx context.Context, conn *memcache.Conn) error {
	next := time.NewTimer(askEvery)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-next.C:
			return nil
		case q := <-p.questions:
			p.set(true, true)
			all, err := askStatistics(conn)
			if err != nil {
				close(q)
				return err
			}
			p.set(true, false)
			q <- all
		}
	}
}

// watchForHang kills memcached when it hangs, and returns when ctx ends.
func (s *supervisor) watchForHang(ctx context.Context, address string) {
	ctx, cancel := context.WithCancel(ctx)
	var asking sync.WaitGroup
	asking.Go(func() { s.pulse.run(ctx, s.Dialer, address) })
	defer asking.Wait()
	defer cancel()
	// A memcached that was told to end is left to endHung.
	if s.waitForHang(ctx, judgement{after: s.HangAfter, most: spins * s.HangAfter}, workers, func() bool { return s.pulse.silent() && !s.saving.Load() }) && !s.saving.Load() {
		s.std.Logf("memcached hangs: it has not answered for %s or more; it is killed and started again", s.HangAfter)
		s.child.signal(syscall.SIGKILL)
	}
}

// endWithin is how long memcached may take to end: a third of the grace period. The rest is for the save.
func (s *supervisor) endWithin() time.Duration { return max(leastToEnd, s.GracePeriod/3) }

// leastToEnd is how long memcached needs at least: it checks once a second whether it was told to end.
const leastToEnd = 2 * time.Second

// endHung kills a memcached that was told to end and does nothing, or has not ended in time. memcached waits
// for its crawler, and the crawler waits for a client that reads a list of items, however slowly. A kill
// loses no items, and leaves time to save them.
func (s *supervisor) endHung(ctx context.Context) {
	began := time.Now()
	within := max(leastToEnd, s.endWithin()-began.Sub(s.asked))
	if s.waitForHang(ctx, judgement{after: min(hangWhenAsked, within), most: within}, allThreads, func() bool { return true }) {
		s.std.Logf("memcached was told to end %s ago, and has not ended: it is killed", time.Since(began).Round(time.Second))
		s.child.signal(syscall.SIGKILL)
	}
}

// waitForHang returns when memcached hangs or ctx ends.
func (s *supervisor) waitForHang(ctx context.Context, j judgement, of threads, silent func() bool) bool {
	for {
		since, err := untilNextLook(ctx, of)
		if err != nil {
			return false
		}
		v, err := look(s.child.pid, of, silent())
		if err != nil {
			v = vitals{} // memcached has ended, or its state is unknown
		}
		if j.look(v, since) {
			return true
		}
	}
}

// untilNextLook waits until the next look at memcached, and returns how long that took. Tests replace it to
// control this clock.
var untilNextLook = func(ctx context.Context, _ threads) (time.Duration, error) {
	began := time.Now()
	err := pace.Sleep(ctx, lookAtVitals)
	return time.Since(began), err
}

// onPulse is called when memcached is sent a request (pending), and when it has answered. Tests replace it.
var onPulse = func(pending bool) {}

// threads says which threads' CPU time counts. The main thread accepts connections; only at memcached's end
// does it do all the work.
type threads bool

const (
	workers    threads = false
	allThreads threads = true
)

// look reads the process's vitals. That costs one file for each thread, so it is only done if an answer is
// missing.
func look(pid int, of threads, silent bool) (vitals, error) {
	if !silent {
		return vitals{}, nil
	}
	main := strconv.Itoa(pid)
	tasks := "/proc/" + main + "/task"
	v := vitals{silent: true}
	all, err := os.ReadDir(tasks)
	if err != nil {
		return v, err
	}
	for _, t := range all {
		stat, err := readStat(tasks + "/" + t.Name() + "/stat")
		if err != nil {
			continue // the thread has ended
		}
		v.diskWait = v.diskWait || stat.state == 'D'
		if of == allThreads || t.Name() != main {
			v.cpu += stat.cpu
		}
	}
	return v, nil
}

// threadStat is what the kernel reports about a process or a thread: its state, the CPU time that it has
// used, in hundredths of a second, and how often it has waited for a page from a disk (proc_pid_stat(5)).
type threadStat struct {
	state  byte
	cpu    time.Duration
	faults int64
}

func readStat(path string) (s threadStat, err error) {
	const majorFaults, userTime, systemTime, tick = 9, 11, 12, 10 * time.Millisecond
	text, err := os.ReadFile(path)
	if err != nil {
		return s, err
	}
	// The second field is a name in parentheses, which may have any characters.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) <= systemTime {
		return s, fmt.Errorf("%s has %d fields", path, len(fields))
	}
	numbers := map[int]int64{}
	for _, i := range []int{majorFaults, userTime, systemTime} {
		if numbers[i], err = strconv.ParseInt(fields[i], 10, 64); err != nil {
			return s, fmt.Errorf("%s: %w", path, err)
		}
	}
	return threadStat{fields[0][0], time.Duration(numbers[userTime]+numbers[systemTime]) * tick, numbers[majorFaults]}, nil
}
