package harness

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

func TestAPercentileIsATimeThatWasMeasured(t *testing.T) {
	var hundred Times
	for i := range 100 {
		hundred = append(hundred, time.Duration(100-i)*time.Millisecond)
	}
	for name, test := range map[string]struct {
		times   Times
		percent int
		want    time.Duration
	}{
		"none":             {nil, 99, 0},
		"one":              {Times{7}, 99, 7},
		"two":              {Times{9, 7}, 50, 7},
		"the middle":       {hundred, 50, 50 * time.Millisecond},
		"the 99th of 100":  {hundred, 99, 99 * time.Millisecond},
		"the slowest":      {hundred, 100, 100 * time.Millisecond},
		"the fastest":      {hundred, 0, time.Millisecond},
		"rounds up, of 10": {hundred[:10], 99, 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.times.Percentile(test.percent); got != test.want {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
	if hundred[0] != 100*time.Millisecond {
		t.Error("the times are in another order now")
	}
}

func TestAMedianIsInTheMiddle(t *testing.T) {
	for want, values := range map[float64][]float64{0: nil, 3: {9, 1, 3}, 2.5: {4, 1, 2, 3}} {
		if got := Median(values); got != want {
			t.Errorf("the median of %v is %v, want %v", values, got, want)
		}
	}
}

func TestAClosedLoopCountsEachAnswer(t *testing.T) {
	var answered atomic.Int64
	address := serve(t, func(conn net.Conn) {
		for b := make([]byte, 1); ; {
			if _, err := io.ReadFull(conn, b); err != nil {
				return
			}
			answered.Add(1) // before the client can have it
			_, _ = conn.Write(b)
		}
	})
	const clients = 3
	steps := make([]int, clients)
	load, err := Closed(t.Context(), address, clients, 10*time.Millisecond, func(n int) func(*Conn) (int, error) {
		return func(c *Conn) (int, error) {
			steps[n]++
			if _, err := c.Write([]byte("ab")); err != nil {
				return 0, err
			}
			_, err := io.ReadFull(c.Answers, make([]byte, 2))
			return 2, err
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	all := 0
	for n, s := range steps {
		if all += s; s == 0 {
			t.Errorf("client %d has asked for nothing", n)
		}
	}
	if int64(load.Requests) != answered.Load() || load.Requests != 2*all || len(load.Times) != all {
		t.Errorf("%d requests and %d times, but %d answers in %d steps", load.Requests, len(load.Times), answered.Load(), all)
	}
	if got := load.Rate() * load.Took.Seconds(); got < float64(load.Requests)-0.5 || got > float64(load.Requests)+0.5 {
		t.Errorf("the rate is %.1f/s, in %v", load.Rate(), load.Took)
	}
}

func TestAClosedLoopEndsWithItsFirstError(t *testing.T) {
	address := serve(t, func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
	refused := errors.New("refused")
	_, err := Closed(t.Context(), address, 2, wait.Long, func(n int) func(*Conn) (int, error) {
		return func(c *Conn) (int, error) {
			if n == 0 {
				return 0, refused
			}
			_, err := c.Answers.ReadByte() // no answer comes
			return 1, err
		}
	})
	if !errors.Is(err, refused) {
		t.Error(err)
	}
}

// serve lets handle answer each connection.
func serve(t *testing.T, handle func(net.Conn)) (address string) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				handle(conn)
			}()
		}
	}()
	return listener.Addr().String()
}

func TestAnOpenLoopKeepsToItsSchedule(t *testing.T) {
	const interval = time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var dues []time.Time
	Open(ctx, 0, interval, func(due time.Time) {
		if time.Now().Before(due) {
			t.Error("a request came before it was due")
		}
		if dues = append(dues, due); len(dues) == 5 {
			cancel()
		}
		time.Sleep(3 * interval) // the next ones are late
	})
	for i := 1; i < len(dues); i++ {
		if got := dues[i].Sub(dues[i-1]); got < interval {
			t.Errorf("request %d was due %v after the one before", i, got)
		}
	}
	if len(dues) != 5 {
		t.Errorf("%d requests", len(dues))
	}

	now := time.Now()
	for late, want := range map[time.Duration]time.Duration{-time.Second: -time.Second, 4 * time.Second: 4 * time.Second, 6 * time.Second: 0} {
		if got := now.Sub(due(now.Add(-late), now)); got != want {
			t.Errorf("a request that is %v late was due %v ago, want %v", late, got, want)
		}
	}
}

func TestUntilEndsByTheCheckOrTheContext(t *testing.T) {
	tries := 0
	err := Until(t.Context(), 1, "", func() error {
		if tries++; tries < 3 {
			return errors.New("not yet")
		}
		return nil
	})
	if err != nil || tries != 3 {
		t.Errorf("%d tries: %v", tries, err)
	}
	hopeless := errors.New("hopeless")
	if err := Until(t.Context(), 1, "", func() error { return Never(hopeless) }); !errors.Is(err, hopeless) {
		t.Errorf("an error of Never: %v", err)
	}
	over := errors.New("over")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(over)
	err = Until(ctx, wait.Long, "the sun shines", func() error { return errors.New("it rains") })
	if !errors.Is(err, over) || !strings.Contains(err.Error(), "the sun shines: it rains") {
		t.Errorf("the context has ended: %v", err)
	}
}

func TestAllAreMeasuredInEachRound(t *testing.T) {
	var order []string
	if err := InTurn(2, []string{"a", "b"}, func(s string) error { order = append(order, s); return nil }); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a", "b", "a", "b"}, order); diff != "" {
		t.Error(diff)
	}
	if err := InTurn(2, []int{1}, func(int) error { return io.EOF }); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

func TestTheHighestSampleIsKept(t *testing.T) {
	samples := make(chan int, 3)
	samples <- 5
	samples <- 9
	samples <- 1
	taken := make(chan struct{})
	highest := Highest(time.Microsecond, func() int {
		select {
		case n := <-samples:
			return n
		default:
			select {
			case <-taken:
			default:
				close(taken)
			}
			return 0
		}
	})
	wait.Receive(t, "all samples", taken)
	if got := highest(); got != 9 {
		t.Errorf("%d, want 9", got)
	}
}

func TestAProcessIsWaitedForAndEnded(t *testing.T) {
	never := func() error { return errors.New("no answer") }
	p := start(t, "true")
	if err := p.Ready(t.Context(), wait.Long, never); err == nil || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("the wait for a process that has ended: %v", err)
	}
	p = start(t, "sleep", "1000")
	if err := p.Ended(); err != nil {
		t.Error(err)
	}
	if err := p.Ready(t.Context(), wait.Long, func() error { return nil }); err != nil {
		t.Error(err)
	}
	if err := p.End(syscall.SIGTERM, wait.Long); err != nil || p.Ended() == nil {
		t.Errorf("%v, and the process runs on: %v", err, p.Ended())
	}
	p = start(t, "sleep", "1000")
	if err := p.Ready(t.Context(), time.Millisecond, never); err == nil || p.Ended() == nil {
		t.Error("a process that doesn't answer runs on")
	}
	p = start(t, "sleep", "1000")
	if err := p.End(syscall.SIGCONT, time.Millisecond); err == nil || p.Ended() == nil {
		t.Error("a process that doesn't obey a signal runs on")
	}
}

func start(t *testing.T, program string, args ...string) *Process {
	t.Helper()
	p, err := Start(exec.Command(program, args...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

func TestCPUTimeIsWhatProcessesUse(t *testing.T) {
	stat := "1 (a ) name) S" + strings.Repeat(" 0", 10) + " 250 75 9 9"
	if got, err := cpuOf(stat); got != 3250*time.Millisecond || err != nil {
		t.Errorf("%v, %v of %q", got, err, stat)
	}
	if _, err := cpuOf("1 (name) S 0"); err == nil {
		t.Error("half of a stat has CPU time")
	}
	_, err := os.Stat("/proc/self/stat")
	tier.Needs(t, "the kernel's /proc", err)
	m := StartMeter(os.Getpid())
	for used := time.Duration(0); used == 0; {
		var err error
		if used, err = m.Used(); err != nil || time.Now().After(wait.Deadline()) {
			t.Fatalf("a busy process has used %v: %v", used, err)
		}
	}
	ended := start(t, "true")
	<-ended.done
	if _, err := StartMeter(ended.PID()).Used(); err == nil {
		t.Error("a process that has ended uses CPU time")
	}
}

func TestMemoryIsReadFromTheStatus(t *testing.T) {
	got := memoryOf("Name:\tVmRSS: 1\nVmHWM:\t    30 kB\nVmRSS:\t    20 kB\nRssAnon:\t    10 kB\nRssFile:\t 7 kB\n")
	if want := (Memory{Anonymous: 10 << 10, Resident: 20 << 10, Peak: 30 << 10}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestATableIsMarkdown(t *testing.T) {
	got := Header("what", "requests/s:") + "\n" + Row("direct", 12)
	if diff := cmp.Diff("| what | requests/s |\n|---|---:|\n| direct | 12 |", got); diff != "" {
		t.Error(diff)
	}
}

func TestNumbersArePositive(t *testing.T) {
	for text, want := range map[string][]int{"3": {3}, "1,50,1000": {1, 50, 1000}, "": nil, "0": nil, "1.5": nil, "1,,2": nil, "-1": nil, "a": nil} {
		var list numbers[int]
		err := list.Set(text)
		if diff := cmp.Diff(want, []int(list)); diff != "" || (err == nil) != (want != nil) {
			t.Errorf("%q: %v\n%s", text, err, diff)
		}
	}
	list := numbers[float64]{0.25, 4}
	if got := list.String(); got != "0.25,4" {
		t.Error(got)
	}
	var _ flag.Value = &list
}

func TestAnAuditLogIsReadOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	log := &AuditLog{Path: path}
	for _, step := range []struct{ write, want string }{
		{`{"verb":"get","objectRef":{"resource":"pods","namespace":"a"}}` + "\n" + `{"verb":"cre`, "get pods a 0;"},
		{`ate","objectRef":{"resource":"jobs","namespace":"b"},"responseStatus":{"code":409}}` + "\n", "create jobs b 409;"},
		{"", ""},
	} {
		if _, err := file.WriteString(step.write); err != nil {
			t.Fatal(err)
		}
		got := ""
		err := log.Read(func(e *AuditEvent) {
			got += fmt.Sprintf("%s %s %s %d;", e.Verb, e.ObjectRef.Resource, e.ObjectRef.Namespace, e.ResponseStatus.Code)
		})
		if err != nil || got != step.want {
			t.Errorf("%q, want %q: %v", got, step.want, err)
		}
	}
}
