//go:build linux

package member_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/volume"
	"example.com/memcached-operator/test/tied"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// Otherwise a crash of the node may leave an empty manifest, which reads as corrupt.
func TestManifestGetsItsNameWhenItIsOnTheDisk(t *testing.T) {
	t.Parallel()
	dir, log := t.TempDir(), filepath.Join(t.TempDir(), "calls")
	s := drainertest.Serve(t, dir, "-m", "128")
	detach := trace(s, "-f", "-qq", "-y", "-o", log, "-e", "signal=none", "-e", "trace="+renames+",fsync")
	all := drainertest.Objects(95, 500)
	drainertest.Store(t, s.Address(), all)
	s.Settle(len(all))
	s.End("saved")
	detach()
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	written := regexp.MustCompile(`rename.*"([^"]*)".*"` + regexp.QuoteMeta(filepath.Join(dir, contract.Manifest)) + `"`)
	lines, found := strings.Split(string(text), "\n"), 0
	flushed := func(lines []string, path string) bool {
		for _, l := range lines {
			if strings.Contains(l, "fsync(") && strings.Contains(l, "<"+path+">") {
				return true
			}
		}
		return false
	}
	for i, l := range lines {
		m := written.FindStringSubmatch(l)
		if m == nil {
			continue
		}
		found++
		if !flushed(lines[:i], m[1]) {
			t.Errorf("it had its name before it was on the disk: %s", l)
		}
		if !flushed(lines[i:], dir) {
			t.Errorf("its name never was on the disk: %s", l)
		}
	}
	if found < 2 { // the save's manifest follows; it has a count if counting is done in time
		t.Errorf("it was written %d times: %s", found, text)
	}
}

// A manifest that could not be written is written when that is possible again, even if memcached has not
// changed since.
func TestManifestCatchesUp(t *testing.T) {
	tier.Second(t, "TestTheManifestSaysWhatAReaderNeedsAfterACrash")
	t.Parallel()
	dir := t.TempDir()
	s := drainertest.Serve(t, dir, "-m", "128")
	detach := trace(s, fault{call: renames, file: contract.Manifest, fail: "ENOSPC"}.on(dir).arguments()...)
	all := drainertest.Objects(96, 500)
	drainertest.Store(t, s.Address(), all)
	s.WaitFor("the manifest can't be kept up to date")
	detach()
	s.Settle(len(all))
	s.End("saved")
}

// inNamespace marks a process that may mount file systems.
const inNamespace = "DRAINER_TEST_NAMESPACE"

// The disk does not take a page of the file, and the kernel reports that to memcached's own msync. The
// supervisor must know nevertheless that the file on the disk is no save.
func TestLostWriteIsNoSave(t *testing.T) {
	if os.Getenv(inNamespace) != "" {
		lostWrite(t)
		return
	}
	t.Parallel()
	if os.Geteuid() != 0 {
		tier.Needs(t, "root, who may mount a disk that fails", os.ErrPermission)
	}
	memcachedtest.Program(t, "mkfs.ext4")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), memcachedtest.Program(t, "unshare"), "--mount", self, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), inNamespace+"=1")
	out, err := tied.CombinedOutput(cmd)
	switch {
	case err != nil:
		t.Errorf("%v: %s", err, out)
	case strings.Contains(string(out), "--- SKIP"):
		t.Skipf("%s", out)
	case !strings.Contains(string(out), "--- PASS"):
		t.Errorf("it did not run: %s", out)
	}
}

func lostWrite(t *testing.T) {
	disk := newThinDisk(t)
	s := drainertest.Serve(t, disk.dir, "-m", "128")
	drainertest.Store(t, s.Address(), drainertest.Objects(97, 200))
	s.Settle(200)
	disk.fill()
	file, err := os.Open(filepath.Join(disk.dir, contract.WarmFile))
	if err != nil {
		t.Fatal(err)
	}
	drainertest.Store(t, s.Address(), large('a', 120)) // more than the pages that memcached writes to at its start
	if err := errors.Join(file.Sync(), file.Close()); err == nil {
		t.Fatal("the disk has taken every page, or does not tell what it has lost: no supervisor can know")
	}
	disk.grow()
	s.Signal(syscall.SIGTERM)
	if code := s.Wait(); code != contract.ExitFailed || !strings.Contains(s.Err.String(), "bring the save to the disk: sync ") {
		t.Fatalf("exit code %d: %s", code, s.Err.String())
	}
	_, addresses := drainertest.Survivors(t, 1)
	if r := drainertest.Drain(t, drainertest.DrainArgs(t, disk.dir, addresses)); r.Code != contract.ExitUnrecoverable || r.Receipt.Reason != "WarmFileDamaged" || r.Receipt.Found != 0 {
		t.Fatalf("exit code %d, %+v", r.Code, r.Receipt)
	}
	s = drainertest.Serve(t, disk.dir, "-m", "128")
	s.WaitFor("memcached starts cold")
	s.ExpectItems(map[string]drainertest.Object{})
	s.End("saved")
}

// thinDisk is a file system on a disk that pretends to have more room than it has.
type thinDisk struct {
	t            *testing.T
	backing, dir string
}

func newThinDisk(t *testing.T) *thinDisk {
	t.Helper()
	memcachedtest.Program(t, "mkfs.ext4") // before anything is mounted
	d := &thinDisk{t, filepath.Join(t.TempDir(), "backing"), filepath.Join(t.TempDir(), "volume")}
	for _, dir := range []string{d.backing, d.dir} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	image := filepath.Join(d.backing, "disk")
	for _, step := range [][]string{
		{"mount", "-t", "tmpfs", "-o", "size=256m", "none", d.backing},
		{"truncate", "-s", "256M", image},
		{"mkfs.ext4", "-q", "-b", strconv.Itoa(os.Getpagesize()), "-O", "^has_journal", "-E", "lazy_itable_init=0", image},
		{"mount", "-o", "loop", image, d.dir},
	} {
		if out, err := exec.CommandContext(t.Context(), step[0], step[1:]...).CombinedOutput(); err != nil {
			tier.Needs(t, "a disk that fails", fmt.Errorf("%v: %w: %s", step, err, out))
		}
	}
	t.Cleanup(func() {
		_ = unix.Unmount(d.dir, unix.MNT_DETACH)
		_ = unix.Unmount(d.backing, unix.MNT_DETACH)
	})
	return d
}

// resize sets the room that the disk really has.
func (d *thinDisk) resize(size int64) {
	d.t.Helper()
	if err := unix.Mount("none", d.backing, "tmpfs", unix.MS_REMOUNT, "size="+strconv.FormatInt(size, 10)); err != nil {
		d.t.Fatal(err)
	}
}

// fill takes all the room, and grow gives it back.
func (d *thinDisk) fill() {
	d.t.Helper()
	d.inPages()
	d.sync()
	var st unix.Statfs_t
	if err := unix.Statfs(d.backing, &st); err != nil {
		d.t.Fatal(err)
	}
	const little = 256 << 10
	d.resize(int64(st.Blocks-st.Bfree)*st.Bsize + little)
}

func (d *thinDisk) grow() { d.resize(256 << 20) }

// sync flushes everything to the disk.
func (d *thinDisk) sync() {
	d.t.Helper()
	f, err := os.Open(d.dir)
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		d.t.Fatal(err)
	}
}

// inPages makes the kernel write to the disk page by page, until the test ends. A loop device reports a write
// as done if there was room for its first bytes. Here and there the pages have the same size, so a page is
// written as a whole or not at all.
func (d *thinDisk) inPages() {
	d.t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(d.dir, &st); err != nil {
		d.t.Fatal(err)
	}
	path := fmt.Sprintf("/sys/dev/block/%d:%d/queue/max_sectors_kb", unix.Major(st.Dev), unix.Minor(st.Dev))
	before, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, []byte(strconv.Itoa(os.Getpagesize()>>10)), 0)
	}
	if err != nil {
		tier.Needs(d.t, "a loop device that is told how much to write at once", err)
	}
	d.t.Cleanup(func() { _ = os.WriteFile(path, before, 0) })
}

// No other sign that the file is sound matters.
func TestDamagedIsNeverRead(t *testing.T) {
	t.Parallel()
	dir := drainertest.Leaving(t, "saved", drainertest.Objects(98, 100))
	editManifest(func(m *volume.Manifest) { m.State, m.Note = volume.Damaged, "input/output error" })(t, dir)
	_, addresses := drainertest.Survivors(t, 1)
	r := drainertest.Drain(t, drainertest.DrainArgs(t, dir, addresses))
	r.OneLine(t, "input/output error")
	if r.Code != contract.ExitUnrecoverable || r.Receipt.Reason != "WarmFileDamaged" {
		t.Errorf("exit code %d, %+v", r.Code, r.Receipt)
	}
}

// trace attaches strace to a running supervisor, until detach is called or the test ends.
func trace(s *drainertest.Served, arguments ...string) (detach func()) {
	s.T.Helper()
	tracer := exec.Command(memcachedtest.Program(s.T, "strace"), append(arguments, "-p", strconv.Itoa(s.Cmd.Process.Pid))...)
	if err := tied.Start(tracer); err != nil {
		s.T.Fatal(err)
	}
	detach = func() {
		_ = tracer.Process.Signal(syscall.SIGTERM)
		_ = tracer.Wait()
	}
	s.T.Cleanup(detach)
	wait.For(s.T, "strace to have every thread", func() error {
		threads, err := filepath.Glob("/proc/" + strconv.Itoa(s.Cmd.Process.Pid) + "/task/*/status")
		for _, thread := range threads {
			if b, err := os.ReadFile(thread); err == nil && !strings.Contains(string(b), "TracerPid:\t"+strconv.Itoa(tracer.Process.Pid)+"\n") {
				return errors.New(thread + " is not traced")
			}
		}
		return err
	})
	return detach
}
