// Package drainertest runs drainers and members in separate processes, for tests.
package drainertest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/commandline"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/linux"
	"example.com/memcached-operator/drainer/routing"
	"example.com/memcached-operator/test/tied"
	"example.com/memcached-operator/test/wait"
)

// BeDrainer makes this test binary behave as the drainer itself.
const BeDrainer = "DRAINER_TEST_MAIN"

// main is the drainer's main function.
var main func(ctx context.Context, line []string, std commandline.IO) int

// Main runs the tests, or, in a process that they have started, the drainer, after calling the functions with
// which tests change its behaviour.
func Main(m *testing.M, drainer func(ctx context.Context, line []string, std commandline.IO) int, stepIn ...func()) {
	main = drainer
	if os.Getenv(BeDrainer) != "" {
		// A drainer that a tracer has started would outlive the tracer.
		if err := linux.DieWithParent(); err != nil {
			panic(err)
		}
		for _, step := range stepIn {
			step()
		}
		os.Exit(main(context.Background(), os.Args[1:], commandline.IO{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
	}
	memcachedtest.Main(m, 8)
}

// Buffer is a bytes.Buffer that a process writes to while a test reads it.
type Buffer struct {
	Mu sync.Mutex
	B  bytes.Buffer
}

// Write appends.
func (b *Buffer) Write(p []byte) (int, error) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	return b.B.Write(p)
}

// String returns everything that was written.
func (b *Buffer) String() string {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	return b.B.String()
}

// Process is a drainer in a separate process.
type Process struct {
	T        *testing.T
	Cmd      *exec.Cmd
	Out, Err Buffer
	Done     chan struct{}
}

// Start runs a drainer.
func Start(t *testing.T, args ...string) *Process {
	t.Helper()
	return StartWith(t, "", args...)
}

// StartWith is Start with one more environment variable.
func StartWith(t *testing.T, env string, args ...string) *Process {
	t.Helper()
	return startIn(t, []string{env}, args...)
}

func startIn(t *testing.T, env []string, args ...string) *Process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &Process{T: t, Cmd: exec.Command(self, args...), Done: make(chan struct{})}
	p.Cmd.Env = append(append(os.Environ(), BeDrainer+"=1"), env...)
	p.Cmd.Stdout, p.Cmd.Stderr = &p.Out, &p.Err
	p.Cmd.WaitDelay = time.Minute
	if err := tied.Start(p.Cmd); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.Cmd.Wait()
		close(p.Done)
	}()
	t.Cleanup(func() {
		_ = p.Cmd.Process.Kill()
		<-p.Done
	})
	return p
}

// Signal sends a signal.
func (p *Process) Signal(sig syscall.Signal) {
	p.T.Helper()
	if err := p.Cmd.Process.Signal(sig); err != nil {
		p.T.Fatalf("signal %v: %v\n%s", sig, err, p.Err.String())
	}
}

// Wait waits for the end and returns the exit code.
func (p *Process) Wait() int {
	p.T.Helper()
	select {
	case <-p.Done:
	case <-wait.Over():
		p.T.Fatalf("waited for %v to end\n%s%s", p.Cmd.Args[1:], p.Out.String(), p.Err.String())
	}
	return p.Cmd.ProcessState.ExitCode()
}

// WaitFor waits until the process has written text to stdout or stderr.
func (p *Process) WaitFor(text string) {
	p.T.Helper()
	wait.For(p.T, fmt.Sprintf("%q", text), func() error {
		if strings.Contains(p.Out.String()+p.Err.String(), text) {
			return nil
		}
		return fmt.Errorf("so far:\n%s%s", p.Out.String(), p.Err.String())
	})
}

// Served is a member with its supervisor. Its warm file is in dir.
type Served struct {
	*Process
	Dir  string
	Port int
}

// Serve runs memcached with args under the supervisor.
func Serve(t *testing.T, dir string, args ...string) *Served {
	t.Helper()
	port := memcachedtest.FreePort(t)
	return ServeAt(t, dir, port, args...)
}

// ServeAt is Serve on a given port.
func ServeAt(t *testing.T, dir string, port int, args ...string) *Served {
	t.Helper()
	return ServeWith(t, "", dir, port, args...)
}

// ServeWith is ServeAt with one more environment variable.
func ServeWith(t *testing.T, env, dir string, port int, args ...string) *Served {
	t.Helper()
	return ServeBy(t, env, contract.Connection{}, dir, port, args...)
}

// ServeBy is ServeWith for a member that clients reach by the connection.
func ServeBy(t *testing.T, env string, c contract.Connection, dir string, port int, args ...string) *Served {
	t.Helper()
	return SuperviseCommand(t, env, MemberArgs(c, dir, port, args...))
}

// SuperviseCommand runs a member with these environment variables.
func SuperviseCommand(t *testing.T, env string, c contract.Supervise, more ...string) *Served {
	t.Helper()
	memcachedtest.Binary(t)
	begun := time.Now()
	s := &Served{startIn(t, append(more, env), c.Args()...), cmp.Or(c.MemoryDir, c.Dir), int(c.Port)}
	wait.For(t, "the manifest of a running member", func() error {
		select {
		case <-s.Done:
			t.Fatalf("serve ended: %s", s.Err.String())
		default:
		}
		m, err := ReadManifest(s.Dir)
		if err == nil && (m.State != "Running" || m.Updated.Before(begun)) {
			err = fmt.Errorf("state %s: %s", m.State, s.Err.String())
		}
		return err
	})
	return s
}

// MemberArgs returns the arguments of a member's supervisor.
func MemberArgs(c contract.Connection, dir string, port int, args ...string) contract.Supervise {
	command := append(append([]string{"memcached"}, memcachedtest.Args(port)...), c.Memcached(true)...)
	return contract.Supervise{Dir: dir, Port: int32(port), TerminationLog: TerminationLog(dir), Connection: c, Command: append(command, memcachedtest.FewPages(args...)...)}
}

// TerminationLog returns the path of a file beside a member's volume.
func TerminationLog(dir string) string { return dir + ".termination-log" }

// TerminationLog returns the path of the member's file.
func (s *Served) TerminationLog() string { return TerminationLog(s.Dir) }

// Survivors starts memcached servers that stay.
func Survivors(t *testing.T, n int, args ...string) ([]*memcachedtest.Server, []string) {
	t.Helper()
	var servers []*memcachedtest.Server
	var flags []string
	for range n {
		s := memcachedtest.Start(t, args...)
		servers = append(servers, s)
		flags = append(flags, s.Address())
	}
	return servers, flags
}

// DrainArgs returns arguments for a drain of dir, with a receipt in a separate file.
func DrainArgs(t *testing.T, dir string, servers []string) contract.Drain {
	t.Helper()
	return contract.Drain{Dir: dir, Transfer: TransferArgs(t, servers)}
}

// TransferArgs returns the arguments that drains and moves have in common.
func TransferArgs(t *testing.T, servers []string) contract.Transfer {
	t.Helper()
	return contract.Transfer{SourceID: "the-claim", Client: "libmemcached-ketama-weighted", Servers: servers,
		UnreachableTimeout: wait.Long, Receipt: filepath.Join(t.TempDir(), "receipt")}
}

// Result is the result of a drainer that ran in this process.
type Result struct {
	Code     int
	Out, Err string
	Receipt  *contract.Receipt
}

// RunMain runs a command line in this process.
func RunMain(t *testing.T, line ...string) Result {
	t.Helper()
	var out, errs Buffer
	code := main(t.Context(), line, commandline.IO{In: strings.NewReader(""), Out: &out, Err: &errs})
	return Result{Code: code, Out: out.String(), Err: errs.String()}
}

// Drain drains a volume in this process.
func Drain(t *testing.T, m contract.Drain) Result {
	t.Helper()
	return withReceipt(t, RunMain(t, m.Args()...), m.Receipt)
}

// withReceipt adds the receipt in the file at path, which has to have the same exit code.
func withReceipt(t *testing.T, r Result, path string) Result {
	t.Helper()
	r.Receipt = ReadReceipt(t, path)
	if r.Receipt.ExitCode != r.Code {
		t.Errorf("exit code %d, the receipt says %d", r.Code, r.Receipt.ExitCode)
	}
	return r
}

// ReadReceipt reads a receipt from a file.
func ReadReceipt(t *testing.T, path string) *contract.Receipt {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r, err := contract.ParseReceipt(string(b))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// OneLine checks that a failure was reported in one line with these words.
func (r Result) OneLine(t *testing.T, words ...string) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(r.Err, "\n"), "\n")
	last := lines[len(lines)-1]
	if !strings.HasPrefix(last, "drainer: ") {
		t.Errorf("stderr ends in %q", last)
	}
	for _, w := range words {
		if !strings.Contains(last, w) {
			t.Errorf("stderr ends in %q, want it to say %q", last, w)
		}
	}
}

// Fingerprint returns a directory's names, sizes, times and contents.
func Fingerprint(t *testing.T, dir string) string {
	t.Helper()
	h := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		fmt.Fprintln(h, path, info.Size(), info.ModTime().UnixNano(), info.Mode())
		if d.IsDir() {
			return nil
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(h, f)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// MustParse parses servers or fails the test.
func MustParse(t testing.TB, addresses []string) []routing.Server {
	t.Helper()
	var list []routing.Server
	for _, a := range addresses {
		s, err := routing.ParseServer(a)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, s)
	}
	return list
}

// Memcached returns the member's memcached, for requests.
func (s *Served) Memcached() *memcachedtest.Server { return &memcachedtest.Server{Port: s.Port} }

// Flush flushes all items, and waits until the manifest has the flush.
func (s *Served) Flush() {
	s.T.Helper()
	s.Memcached().RawFor(s.T).Must("OK", "flush_all", nil)
	wait.For(s.T, "the manifest to know of the flush", func() error {
		m, err := ReadManifest(s.Dir)
		if err == nil && m.Image.OldestLive == 0 {
			err = errors.New("it does not")
		}
		return err
	})
}

// PID returns the process id of the member's memcached.
func (s *Served) PID() int {
	s.T.Helper()
	m, err := ReadManifest(s.Dir)
	if err != nil {
		s.T.Fatal(err)
	}
	return m.PID
}

// Gone returns an error unless the process has ended.
func Gone(pid int) error {
	err := syscall.Kill(pid, 0)
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	state, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if fields := strings.Fields(string(state)); len(fields) > 2 && fields[2] == "Z" {
		return nil
	}
	return fmt.Errorf("process %d is there: %s", pid, state)
}
