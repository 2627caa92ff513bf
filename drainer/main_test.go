package drainer

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
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

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/routing"
)

// beDrainer makes this test binary behave as the drainer itself.
const beDrainer = "DRAINER_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(beDrainer) != "" {
		stepIn()
		os.Exit(Main(context.Background(), os.Args[1:], IO{os.Stdin, os.Stdout, os.Stderr}))
	}
	flag.Parse()
	// The tests wait for processes most of the time.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// buffer is a bytes.Buffer for a process to write to and a test to read.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// process is a drainer in a process of its own.
type process struct {
	t        *testing.T
	cmd      *exec.Cmd
	out, err buffer
	done     chan struct{}
}

func start(t *testing.T, args ...string) *process {
	t.Helper()
	return startWith(t, "", args...)
}

// startWith is start with one more environment variable.
func startWith(t *testing.T, env string, args ...string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: exec.Command(self, args...), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), beDrainer+"=1", env)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.err
	p.cmd.WaitDelay = time.Second
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
	})
	return p
}

func (p *process) signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatalf("signal %v: %v\n%s", sig, err, p.err.String())
	}
}

// wait returns the exit code.
func (p *process) wait() int {
	p.t.Helper()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(memcachedtest.Patience):
		p.t.Fatalf("%v did not end within %v\n%s%s", p.cmd.Args[1:], memcachedtest.Patience, p.out.String(), p.err.String())
		return 0
	}
}

// waitFor waits until the process has written text to stdout or stderr.
func (p *process) waitFor(text string) {
	p.t.Helper()
	memcachedtest.WaitFor(p.t, fmt.Sprintf("%q", text), func() error {
		if strings.Contains(p.out.String()+p.err.String(), text) {
			return nil
		}
		return fmt.Errorf("so far:\n%s%s", p.out.String(), p.err.String())
	})
}

// served is a member under the supervisor. Its warm file is in dir.
type served struct {
	*process
	dir  string
	port int
}

// serve runs memcached with args under the supervisor.
func serve(t *testing.T, dir string, args ...string) *served {
	t.Helper()
	port := memcachedtest.FreePort(t)
	return serveAt(t, dir, port, args...)
}

func serveAt(t *testing.T, dir string, port int, args ...string) *served {
	t.Helper()
	return serveWith(t, "", dir, port, args...)
}

func serveWith(t *testing.T, env, dir string, port int, args ...string) *served {
	t.Helper()
	return serveBy(t, env, contract.Connection{}, dir, port, args...)
}

// serveBy is for a member that is spoken to by the connection.
func serveBy(t *testing.T, env string, c contract.Connection, dir string, port int, args ...string) *served {
	t.Helper()
	return serveCommand(t, env, memberArgs(c, dir, port, args...))
}

// serveCommand runs a member.
func serveCommand(t *testing.T, env string, c contract.Serve) *served {
	t.Helper()
	if _, err := memcachedtest.Binary(); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	s := &served{startWith(t, env, c.Args()...), cmp.Or(c.MemoryDir, c.Dir), int(c.Port)}
	memcachedtest.WaitFor(t, "the manifest of a running member", func() error {
		select {
		case <-s.done:
			t.Fatalf("serve ended: %s", s.err.String())
		default:
		}
		m, err := readManifest(s.dir)
		if err == nil && (m.State != "Running" || m.Updated.Before(begun)) {
			err = fmt.Errorf("state %s: %s", m.State, s.err.String())
		}
		return err
	})
	return s
}

// memberArgs are those of a member's supervisor.
func memberArgs(c contract.Connection, dir string, port int, args ...string) contract.Serve {
	command := append(append([]string{"memcached"}, memcachedtest.Args(port)...), c.Memcached(true)...)
	return contract.Serve{Dir: dir, Port: int32(port), TerminationLog: terminationLog(dir), Connection: c, Command: append(command, args...)}
}

// terminationLog is a file beside a member's volume.
func terminationLog(dir string) string { return dir + ".termination-log" }

func (s *served) terminationLog() string { return terminationLog(s.dir) }

// survivors are memcached servers that stay.
func survivors(t *testing.T, n int, args ...string) ([]*memcachedtest.Server, []string) {
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

// migrateArgs are for a drain of dir, with a receipt in a file of its own.
func migrateArgs(t *testing.T, dir string, servers []string) contract.Migrate {
	t.Helper()
	return contract.Migrate{Dir: dir, Move: moveArgs(t, servers)}
}

// moveArgs are common to all that moves items.
func moveArgs(t *testing.T, servers []string) contract.Move {
	t.Helper()
	return contract.Move{SourceID: "the-claim", Client: "libmemcached-ketama-weighted", Servers: servers,
		UnreachableTimeout: memcachedtest.Patience, Receipt: filepath.Join(t.TempDir(), "receipt")}
}

// result of a drainer that ran in this process.
type result struct {
	code     int
	out, err string
	receipt  *contract.Receipt
}

func runMain(t *testing.T, args ...string) result {
	t.Helper()
	var out, errs buffer
	code := Main(t.Context(), args, IO{strings.NewReader(""), &out, &errs})
	return result{code: code, out: out.String(), err: errs.String()}
}

func migrate(t *testing.T, m contract.Migrate) result {
	t.Helper()
	r := runMain(t, m.Args()...)
	r.receipt = readReceipt(t, m.Receipt)
	if r.receipt.ExitCode != r.code {
		t.Errorf("exit code %d, the receipt says %d", r.code, r.receipt.ExitCode)
	}
	return r
}

func readReceipt(t *testing.T, path string) *contract.Receipt {
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

// oneLine checks that a failure was told in one line that holds the words.
func (r result) oneLine(t *testing.T, words ...string) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(r.err, "\n"), "\n")
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

// fingerprint of a directory: names, sizes, times and contents.
func fingerprint(t *testing.T, dir string) string {
	t.Helper()
	h := sha256.New()
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
		b, err := os.ReadFile(path)
		_, _ = h.Write(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

func mustParse(t *testing.T, addresses []string) []routing.Server {
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

// pidOf returns the process id of the served memcached.
func (s *served) pidOf() int {
	s.t.Helper()
	m, err := readManifest(s.dir)
	if err != nil {
		s.t.Fatal(err)
	}
	return m.PID
}

// gone tells whether the process has ended.
func gone(pid int) error {
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
