package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/test/internal/harness"
)

// savesName selects the measurement of saves, which has a table of its own.
const savesName = "saves"

// saveRow is a save of a member of mode Saved, and its load, beside dd.
type saveRow struct {
	gib         float64
	bytes       int64 // of the save
	items, kept int
	save, load  saveStep
}

// saveStep is a save or a load by the supervisor, beside dd with as many bytes.
type saveStep struct {
	seconds, dd float64
	// anonymous memory of the supervisor at its peak, in bytes.
	anonymous int64
	// inCache is how much of the save is in the page cache afterwards. grown is by how much the machine's page
	// cache grew at most. Both are in bytes.
	inCache, grown int64
}

// saves measures each size in turn.
func saves(ctx context.Context, b *bench) ([]*saveRow, error) {
	var rows []*saveRow
	for _, gib := range *b.gib {
		b.progressf("a save of %v GiB …", gib)
		r := &saveRow{gib: gib}
		if err := r.measure(ctx, b); err != nil {
			return rows, fmt.Errorf("%v GiB: %w", gib, err)
		}
		rows = append(rows, r)
	}
	return rows, nil
}

func (r *saveRow) measure(ctx context.Context, b *bench) (err error) {
	m := &savedMember{b: b, memory: int(r.gib * 1024)}
	if m.volume, err = b.volume(fmt.Sprintf("saves-%v", r.gib)); err != nil {
		return err
	}
	if m.dir, err = os.MkdirTemp(memoryRoot, "drainer-bench-"); err != nil {
		return err
	}
	b.remove = append(b.remove, m.dir)
	defer func() { err = errors.Join(err, os.RemoveAll(m.dir), os.RemoveAll(m.volume)) }()
	if err := m.start(ctx); err != nil {
		return err
	}
	defer func() { m.Kill() }()
	// An item of 1 kB takes 1184 bytes. A fiftieth of the memory stays free.
	r.items = m.memory << 20 / 1184 / 50 * 49
	if err := stream(ctx, m.address(), r.items, 1000); err != nil {
		return err
	}
	if r.items, err = m.items(ctx); err != nil {
		return err
	}
	b.progressf("%d items are stored; saving …", r.items)
	if r.save, err = m.step(func() error { return m.End(syscall.SIGTERM, saveLimit) }, `on the disk after ([^)]+)\)`); err != nil {
		return err
	}
	info, err := os.Stat(m.save())
	if err == nil {
		r.bytes = info.Size()
		err = emptied(m.dir) // it ends with the pod
	}
	if err != nil {
		return err
	}
	if r.load, err = m.step(func() error { return m.start(ctx) }, `the save is loaded after (\S+)`); err != nil {
		return err
	}
	if r.kept, err = m.items(ctx); err != nil {
		return err
	}
	m.Kill()
	if err := errors.Join(os.RemoveAll(m.dir), os.Remove(m.save())); err != nil { // room for dd
		return err
	}
	b.progressf("dd …")
	r.save.dd, r.load.dd, err = dd(ctx, filepath.Join(m.volume, "dd"), r.bytes>>20)
	return err
}

// savedMember is a supervisor of mode Saved, with its memcached.
type savedMember struct {
	*server
	b           *bench
	volume, dir string
	memory      int    // MiB
	log         string // its file
	// peak ends the watch over the supervisor's anonymous memory.
	peak func() int64
}

// saveLimit bounds a save, and a load.
const saveLimit = 15 * time.Minute

func (m *savedMember) save() string { return filepath.Join(m.volume, contract.SaveFile) }

func (m *savedMember) start(ctx context.Context) error {
	port, err := harness.FreePort()
	if err != nil {
		return err
	}
	serve := contract.Supervise{Dir: m.volume, MemoryDir: m.dir, Port: int32(port), GracePeriod: 3 * saveLimit,
		Command: append([]string{"memcached"}, harness.MemcachedArgs(port, m.memory)...)}
	log, err := os.CreateTemp(m.volume, "log-")
	if err != nil {
		return err
	}
	defer log.Close()
	m.log = log.Name()
	if m.server, err = launch(log, port, m.b.drainer, serve.Args()...); err != nil {
		return err
	}
	m.peak = watch(m.PID())
	return m.ready(ctx, saveLimit)
}

// step saves or loads. step finds the duration in the supervisor's log.
func (m *savedMember) step(do func() error, took string) (s saveStep, err error) {
	before := pageCache()
	most := harness.Highest(100*time.Millisecond, pageCache)
	err = do()
	s.grown, s.anonymous = most()-before, m.peak()
	log, _ := os.ReadFile(m.log)
	found := regexp.MustCompile(took).FindSubmatch(log)
	if err != nil || found == nil {
		return s, fmt.Errorf("the supervisor did not say %q: %w: %s", took, err, log)
	}
	d, err := time.ParseDuration(string(found[1]))
	if err != nil {
		return s, err
	}
	s.seconds = d.Seconds()
	s.inCache, err = inCache(m.save())
	return s, err
}

// pageCache returns the page cache's size in bytes, without files in memory.
//
// Source: proc(5), /proc/meminfo.
func pageCache() (sum int64) {
	data, _ := os.ReadFile("/proc/meminfo")
	for line := range strings.Lines(string(data)) {
		name, rest, _ := strings.Cut(line, ":")
		n, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		switch name {
		case "Cached", "Buffers":
			sum += n << 10
		case "Shmem":
			sum -= n << 10
		}
	}
	return sum
}

// inCache is how much of a file is in the page cache, in bytes.
func inCache(path string) (int64, error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	mapped, err := unix.Mmap(int(file.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return 0, err
	}
	defer func() { _ = unix.Munmap(mapped) }()
	page := os.Getpagesize()
	resident := make([]byte, (len(mapped)+page-1)/page)
	if _, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&mapped[0])), uintptr(len(mapped)), uintptr(unsafe.Pointer(&resident[0]))); errno != 0 {
		return 0, errno
	}
	sum := int64(0)
	for _, r := range resident {
		sum += int64(r&1) * int64(page)
	}
	return sum, nil
}

// stream stores items of so many bytes, and makes each only when it is sent.
func stream(ctx context.Context, address string, items, size int) error {
	group, ctx := errgroup.WithContext(ctx)
	for n := range connections {
		group.Go(func() error {
			return pour(ctx, address, func(w io.Writer) error {
				out := bufio.NewWriterSize(w, 1<<20)
				var b []byte
				for i := n; i < items; i += connections {
					b = append(appendKey(append(b[:0], "set "...), i), fmt.Sprintf(" 0 0 %d noreply\r\n", size)...)
					b = append(append(b, value[:size]...), "\r\n"...)
					if _, err := out.Write(b); err != nil {
						return err
					}
				}
				return out.Flush()
			})
		})
	}
	return group.Wait()
}

// dd writes and reads so many MiB past the page cache. dd returns the seconds of each.
func dd(ctx context.Context, path string, mebibytes int64) (write, read float64, err error) {
	defer os.Remove(path)
	timed := func(args ...string) float64 {
		begin := time.Now()
		out, runErr := exec.CommandContext(ctx, "dd", append(args, "bs=1M", "status=none")...).CombinedOutput()
		if runErr != nil {
			err = errors.Join(err, fmt.Errorf("dd: %w: %s", runErr, out))
		}
		return time.Since(begin).Seconds()
	}
	write = timed("if=/dev/zero", "of="+path, "oflag=direct", "conv=fsync", fmt.Sprintf("count=%d", mebibytes))
	read = timed("if="+path, "of=/dev/null", "iflag=direct")
	return write, read, err
}

func printSaves(out io.Writer, rows []*saveRow) {
	fmt.Fprintln(out, harness.Header("memory, GiB:", "save, MB:", "step:", "s:", "MB/s:", "dd, MB/s:", "of dd:", "supervisor's anonymous, MiB:",
		"of the save in the page cache, MiB:", "page cache grew, MiB:", "lost:"))
	for _, r := range rows {
		for _, step := range []struct {
			name string
			saveStep
			lost string
		}{{"save", r.save, ""}, {"load", r.load, grouped(r.items - r.kept)}} {
			rate := func(seconds float64) string { return fmt.Sprintf("%.0f", float64(r.bytes)/seconds/1e6) }
			fmt.Fprintln(out, harness.Row(fmt.Sprintf("%.3g", r.gib), grouped(int(r.bytes/1e6)), step.name, fmt.Sprintf("%.1f", step.seconds),
				rate(step.seconds), rate(step.dd), fmt.Sprintf("%.2f", step.dd/step.seconds), step.anonymous>>20, step.inCache>>20, step.grown>>20, step.lost))
		}
	}
}
