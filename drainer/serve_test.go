package drainer

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/warmfile"
)

// TestServeSaves: the kubelet's SIGTERM, or SIGINT, saves the cache, and the
// next start is warm, even within the same second.
func TestServeSaves(t *testing.T) {
	for name, sig := range map[string]syscall.Signal{"SIGTERM": syscall.SIGTERM, "SIGINT": syscall.SIGINT} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, all := t.TempDir(), objects(6, 500)
			s := serve(t, dir, "-m", "128")
			store(t, s.address(), all)
			s.signal(sig)
			s.signal(sig) // changes nothing
			if code := s.wait(); code != 0 {
				t.Errorf("exit code %d: %s", code, s.err.String())
			}
			m, err := warmfile.ReadManifest(dir)
			if err != nil || m.State != warmfile.Saved || !m.Image.ItemsExact || m.Image.Items != 500 || m.Image.Version == "" {
				t.Errorf("manifest %+v, %v", m, err)
			}
			again := serve(t, dir, "-m", "128")
			check(t, "gomemcache", []string{again.address()}, all)
			again.end("saved")
			if m, err := warmfile.ReadManifest(dir); err != nil || m.Image.Items != 500 {
				t.Errorf("manifest after the second save %+v, %v", m, err)
			}
		})
	}
}

// TestServeAtOnce: a signal that comes before memcached answers saves, too.
func TestServeAtOnce(t *testing.T) {
	t.Parallel()
	dir, all := t.TempDir(), objects(7, 500)
	s := serve(t, dir)
	store(t, s.address(), all)
	s.end("saved")
	args := contract.Serve{Dir: dir, Port: int32(s.port), Command: append([]string{"memcached"}, memcachedtest.Args(s.port)...)}
	p := start(t, args.Args()...)
	memcachedtest.WaitFor(t, "the start", func() error {
		m, err := warmfile.ReadManifest(dir)
		if err == nil && m.State == warmfile.Saved {
			err = fmt.Errorf("it has not begun")
		}
		return err
	})
	p.signal(syscall.SIGTERM)
	p.wait()
	if live, err := liveItems(t, dir); err != nil || live != 500 {
		t.Errorf("%d items are left, %v\n%s", live, err, p.err.String())
	}
}

func liveItems(t *testing.T, dir string) (int64, error) {
	t.Helper()
	r, err := warmfile.Open(dir, warmfile.Options{})
	if err != nil {
		return 0, err
	}
	defer r.Close()
	live := int64(0)
	for it, err := range r.Items(t.Context()) {
		if err != nil {
			return live, err
		}
		if it.State == item.Live {
			live++
		}
	}
	return live, nil
}

// TestManifestFollows: while memcached runs, the manifest says what a reader
// would need right after a crash.
func TestManifestFollows(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := serve(t, dir, "-f", "1.5", "-C")
	m, err := warmfile.ReadManifest(dir)
	if err != nil {
		t.Fatal(err)
	}
	if m.BootID != warmfile.BootID() || m.PID == 0 || m.Image.SlabConfig != "1.5" || m.Image.UseCAS || m.Image.Base == 0 || len(m.Image.Classes) == 0 {
		t.Errorf("manifest %+v, image %+v", m, m.Image)
	}
	store(t, s.address(), objects(8, 300))
	s.settle(300)
	(&memcachedtest.Server{Port: s.port}).RawFor(t).Must("OK", "flush_all", nil)
	memcachedtest.WaitFor(t, "the manifest to know of the flush", func() error {
		m, err := warmfile.ReadManifest(dir)
		if err == nil && m.Image.OldestLive == 0 {
			err = fmt.Errorf("it does not")
		}
		return err
	})
	s.end("killed")
	if live, err := liveItems(t, dir); err != nil || live != 0 {
		t.Errorf("%d items came back, %v", live, err)
	}
}

// TestMemcachedDies: its exit code becomes the container's, and what it left
// behind is on the disk and can be drained, in any boot.
func TestMemcachedDies(t *testing.T) {
	t.Parallel()
	dir, all := t.TempDir(), objects(9, 500)
	s := serve(t, dir, "-m", "128")
	store(t, s.address(), all)
	s.settle(len(all))
	if err := syscall.Kill(s.pidOf(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if code := s.wait(); code != 128+9 {
		t.Errorf("exit code %d, want 137", code)
	}
	m, err := warmfile.ReadManifest(dir)
	if err != nil || m.State != warmfile.Died {
		t.Errorf("manifest %+v, %v", m, err)
	}
	r, err := warmfile.Open(dir, warmfile.Options{BootID: "another boot"})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if n, err := r.Count(t.Context()); n != 500 || err != nil || r.Clean() {
		t.Errorf("%d items, %v, clean %t", n, err, r.Clean())
	}
	again := serve(t, dir, "-m", "128")
	again.waitFor("replayed generation-1: 500 items found: 500 added")
	again.end("saved")
}

// TestExitCodeIsKept: of a memcached that doesn't start.
func TestExitCodeIsKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := start(t, "serve", "--dir="+dir, "--port=1", "--", "memcached", "-u", "root", "-m", "nonsense", "-I", "1")
	if code := p.wait(); code == 0 || code == contract.ExitUsage || !strings.Contains(p.err.String(), "exit code "+strconv.Itoa(code)) {
		t.Errorf("exit code %d: %s", code, p.err.String())
	}
}

// script runs a shell in memcached's place, to see what the supervisor does.
func script(t *testing.T, text string) *process {
	t.Helper()
	path := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return start(t, "serve", "--dir="+t.TempDir(), "--port=1", "--", path, "last")
}

// TestWarmFileGoesFirst: before arguments, one of which might take it.
func TestWarmFileGoesFirst(t *testing.T) {
	t.Parallel()
	p := script(t, `echo "arguments: $1 ${2##*/} $3"`)
	p.waitFor("arguments: -e memory_file last")
	p.wait()
}

// TestMemcachedEndsAtOnce: a member whose memcached doesn't start keeps what is
// on its volume, however often it tries, and has it all when it does start.
func TestMemcachedEndsAtOnce(t *testing.T) {
	t.Parallel()
	all := objects(60, 500)
	dir := leaving(t, "killed", all)
	for range 3 {
		port := memcachedtest.FreePort(t)
		command := append(append([]string{"memcached"}, memcachedtest.Args(port)...), "-m", "128", "-I", "1")
		p := start(t, contract.Serve{Dir: dir, Port: int32(port), Command: command}.Args()...)
		if code := p.wait(); code == 0 || code == contract.ExitUsage {
			t.Errorf("exit code %d: %s", code, p.err.String())
		}
	}
	s := serve(t, dir, "-m", "128")
	s.waitFor("replayed generation-1: 500 items found: 500 added")
	check(t, "gomemcache", []string{s.address()}, all)
	expectAside(t, dir)
	s.end("saved")
}

// TestSmallerItemsThanBefore: items that a lowered -I has no place for are
// counted and told, on stderr and in the manifest; the others come back.
func TestSmallerItemsThanBefore(t *testing.T) {
	t.Parallel()
	all := map[string]object{"small": {value: []byte("v")}, "large": {value: make([]byte, 900<<10)}}
	dir := leaving(t, "saved", all)
	s := serve(t, dir, "-m", "128", "-I", "512k")
	const want = "1 of 2 items were rejected"
	s.waitFor(want)
	expectAside(t, dir)
	delete(all, "large")
	check(t, "gomemcache", []string{s.address()}, all)
	m, err := warmfile.ReadManifest(dir)
	if err != nil || !strings.Contains(m.Note, want) {
		t.Errorf("manifest %+v, %v", m, err)
	}
	s.end("saved")
}

// TestSignalsArePassedOn: except those that are the supervisor's own.
func TestSignalsArePassedOn(t *testing.T) {
	t.Parallel()
	p := script(t, `trap 'echo got HUP' HUP; trap 'echo got USR2' USR2; trap 'echo got WINCH' WINCH
		trap 'echo got USR1; kill $!; exit 7' USR1; echo ready; while :; do sleep 60 & wait $!; kill $!; done`)
	p.waitFor("ready")
	for sig, name := range map[syscall.Signal]string{syscall.SIGHUP: "HUP", syscall.SIGUSR2: "USR2"} {
		p.signal(sig)
		p.waitFor("got " + name)
	}
	p.signal(syscall.SIGWINCH)
	p.signal(syscall.SIGTERM)
	p.waitFor("got USR1")
	if code := p.wait(); code != 7 {
		t.Errorf("exit code %d, want 7: %s", code, p.err.String())
	}
	if strings.Contains(p.out.String(), "WINCH") {
		t.Error("SIGWINCH was passed on")
	}
	if !strings.Contains(p.err.String(), "without saving") {
		t.Errorf("people were told %q", p.err.String())
	}
}

// TestOrphansAreReaped: as process 1 would have to.
func TestOrphansAreReaped(t *testing.T) {
	t.Parallel()
	p := script(t, `trap 'exit 0' USR1; (sh -c 'echo orphan $$; exec sleep 0.1' &) ; while :; do sleep 0.05; done`)
	p.waitFor("orphan ")
	_, rest, _ := strings.Cut(p.out.String(), "orphan ")
	pid := strings.Fields(rest)[0]
	memcachedtest.WaitFor(t, "the orphan to be gone, not a zombie", func() error {
		if stat, err := os.ReadFile("/proc/" + pid + "/stat"); err == nil {
			return fmt.Errorf("%s", stat)
		}
		return nil
	})
	p.signal(syscall.SIGTERM)
	p.wait()
}

// TestServeRefuses: arguments that can't work, in one line, before anything is
// touched.
func TestServeRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tests := map[string]struct {
		args []string
		want string
	}{
		"no command":      {[]string{"--dir=" + dir}, "command line behind --"},
		"no directory":    {[]string{"--", "memcached"}, "--dir"},
		"bad port":        {[]string{"--dir=" + dir, "--port=0", "--", "memcached"}, "not a port"},
		"own -e":          {[]string{"--dir=" + dir, "--", "memcached", "-e", "/x"}, "-e"},
		"own memory file": {[]string{"--dir=" + dir, "--", "memcached", "--memory-file=/x"}, "--memory-file"},
		"daemon":          {[]string{"--dir=" + dir, "--", "memcached", "-d"}, "-d"},
		"no such program": {[]string{"--dir=" + dir, "--", "no-such-memcached"}, "no-such-memcached"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := runMain(t, append([]string{"serve"}, test.args...)...)
			r.oneLine(t, test.want)
			if r.code != contract.ExitUsage {
				t.Errorf("exit code %d", r.code)
			}
		})
	}
	if files, _ := os.ReadDir(dir); len(files) != 0 {
		t.Errorf("files were made: %v", files)
	}
}

func TestListenHost(t *testing.T) {
	for line, want := range map[string]string{
		"memcached": "127.0.0.1", "memcached -l 10.0.0.1": "10.0.0.1", "memcached -l10.0.0.1:5": "10.0.0.1",
		"memcached --listen=a,b": "a", "memcached --listen ::1": "::1", "memcached -l 0.0.0.0": "127.0.0.1", "memcached -l ::": "127.0.0.1",
	} {
		if got := listenHost(strings.Fields(line)); got != want {
			t.Errorf("listenHost(%q) = %q, want %q", line, got, want)
		}
	}
}

// TestInstall: the copy is this program, and can be run.
func TestInstall(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for range 2 { // over a copy that is there, too
		if r := runMain(t, "install", dir); r.code != 0 {
			t.Fatalf("exit code %d: %s", r.code, r.err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(dir, "drainer"))
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, want %d: %v", len(got), len(want), err)
	}
	info, err := os.Stat(filepath.Join(dir, "drainer"))
	if err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if files, _ := os.ReadDir(dir); len(files) != 1 {
		t.Errorf("left behind: %v", files)
	}
}

// TestCommandLine: what is wrong is one line and exit code 2.
func TestCommandLine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	receipt := "--receipt=" + filepath.Join(t.TempDir(), "receipt")
	tests := map[string]struct {
		args []string
		want string
	}{
		"nothing":               {nil, "no command"},
		"unknown command":       {[]string{"frobnicate"}, "unknown command"},
		"install without DIR":   {[]string{"install"}, "directory"},
		"install into nothing":  {[]string{"install", "/no/such/place"}, "/no/such/place"},
		"unknown flag":          {[]string{"migrate", "--frobnicate"}, "frobnicate"},
		"bad server":            {[]string{"migrate", "--server=x"}, "HOST:PORT"},
		"migrate: no directory": {[]string{"migrate", receipt}, "--dir"},
		"migrate: no servers":   {[]string{"migrate", receipt, "--dir=" + dir, "--client=gomemcache"}, "--server"},
		"migrate: no client":    {[]string{"migrate", receipt, "--dir=" + dir, "--server=a:1"}, "known are"},
		"migrate: bad timeout":  {[]string{"migrate", receipt, "--dir=" + dir, "--unreachable-timeout=0"}, "unreachable-timeout"},
		"migrate: argument":     {[]string{"migrate", "x"}, "unexpected"},
		"owner: no servers":     {[]string{"owner", "--client=gomemcache"}, "--server"},
		"owner: moved to what?": {[]string{"owner", "--client=gomemcache", "--server=a:1", "--moved"}, "--after"},
		"owner: after what?":    {[]string{"owner", "--client=gomemcache", "--server=a:1", "--after=b:1"}, "--moved"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := runMain(t, test.args...)
			r.oneLine(t, test.want)
			if r.code != contract.ExitUsage || r.out != "" && !strings.Contains(r.out, `"Done"`) {
				t.Errorf("exit code %d, stdout %q", r.code, r.out)
			}
		})
	}
	for _, args := range [][]string{{"help"}, {"--version"}, {"migrate", "--help"}} {
		if r := runMain(t, args...); r.code != 0 || r.out == "" || r.err != "" {
			t.Errorf("%v: exit code %d, %q, %q", args, r.code, r.out, r.err)
		}
	}
}

// TestOwner: each key with its owner's name, in the order of the input.
func TestOwner(t *testing.T) {
	t.Parallel()
	var out, errs buffer
	args := []string{"owner", "--client=gomemcache", "--server=one=10.0.0.1:1", "--server=b:11211"}
	code := Main(t.Context(), args, IO{strings.NewReader("alpha\n\nbeta\ngamma"), &out, &errs})
	want := "alpha\tone\nbeta\tb:11211\ngamma\tb:11211\n" // crc32 of each, modulo 2
	if code != 0 || out.String() != want {
		t.Errorf("exit code %d, %q, want %q; %s", code, out.String(), want, errs.String())
	}
	if code := Main(t.Context(), args, IO{strings.NewReader(strings.Repeat("k", 1<<20)), &out, &errs}); code != contract.ExitFailed {
		t.Errorf("a line of 1 MiB: exit code %d", code)
	}
}

// TestOwnerNamesServersByAddress: for the clients that hash it.
func TestOwnerNamesServersByAddress(t *testing.T) {
	t.Parallel()
	var out, errs buffer
	args := []string{"owner", "--client=evcache", "--server=127.0.0.1:1"}
	code := Main(t.Context(), args, IO{strings.NewReader("alpha"), &out, &errs})
	if want := "alpha\t127.0.0.1/127.0.0.1\n"; code != 0 || out.String() != want {
		t.Errorf("exit code %d, %q, want %q; %s", code, out.String(), want, errs.String())
	}
}

// TestOwnerCountsWhatMoves: alpha, beta and gamma hash to 0, 1 and 1 modulo 2.
func TestOwnerCountsWhatMoves(t *testing.T) {
	t.Parallel()
	var out, errs buffer
	args := []string{"owner", "--moved", "--client=gomemcache", "--server=a:1", "--server=b:1", "--after=b:1", "--after=a:1", "--after=c:1"}
	code := Main(t.Context(), args, IO{strings.NewReader("alpha\nbeta\ngamma\n"), &out, &errs})
	// Modulo 3 it is 1, 1 and 2: alpha stays with a, beta goes from b to a, which
	// both lists have, and gamma from b to c.
	want := "keys\t3\nget another owner\t2\t66.67%\nof these, between servers in both lists\t1\t33.33%\n"
	if code != 0 || out.String() != want {
		t.Errorf("exit code %d, %q, want %q; %s", code, out.String(), want, errs.String())
	}
}
