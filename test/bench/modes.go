package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/volume"
	"example.com/memcached-operator/test/internal/harness"
)

const (
	// memoryRoot is a file system in memory, as a member of mode Saved has one.
	memoryRoot = "/dev/shm"
	// loadTime and loadClients are those of the mixed load, which has nine gets to one set.
	loadTime    = 20 * time.Second
	shortLoad   = 2 * time.Second // of a quick look
	loadClients = 4
	// preallocated is the memory that a memcached with a warm file gives to its slab classes when it starts, in
	// MiB: a page to each of 39. A class can't use another one's page.
	preallocated = 39
)

// modeRow is one way to keep the items while memcached runs.
type modeRow struct {
	mode          string
	gib           float64
	rate          float64
	p99           time.Duration
	written       int64 // by the processes, while the load lasts
	save, load    float64
	kept, expects int
}

// modes compares a plain memcached with members of both storage modes.
func modes(ctx context.Context, b *bench) ([]*modeRow, error) {
	var rows []*modeRow
	for _, gib := range []int{1, 4} {
		memory := gib << 10
		if b.short {
			memory /= 10
		}
		// An item of 1 kB takes 1184 bytes. A fifth of the memory stays free, and so do the preallocated pages.
		p := population{name: "1 kB", size: fixed(1000), items: (memory - preallocated) << 20 / 1184 / 5 * 4}
		for _, mode := range []string{"plain", "Mapped", "Saved"} {
			b.progressf("%d MiB, %s …", memory, mode)
			r := &modeRow{mode: mode, gib: float64(memory) / 1024, expects: p.items}
			if err := r.measure(ctx, b, p, memory); err != nil {
				return rows, fmt.Errorf("%s: %w", mode, err)
			}
			rows = append(rows, r)
		}
	}
	return rows, nil
}

func (r *modeRow) measure(ctx context.Context, b *bench, p population, memory int) error {
	start, dir, err := r.starter(b, memory)
	if err != nil {
		return err
	}
	s, err := start(ctx)
	if err != nil {
		return err
	}
	defer func() { s.Kill() }()
	if err := p.into(ctx, s); err != nil {
		return err
	}
	pids := []int{s.PID()}
	if dir != "" {
		m, err := volume.ReadManifest(dir)
		if err != nil {
			return err
		}
		pids = append(pids, m.PID)
	}
	before := writtenBy(pids)
	lasts := loadTime
	if b.short {
		lasts = shortLoad
	}
	if err := r.mixedLoad(ctx, p, s, lasts); err != nil {
		return err
	}
	r.written = writtenBy(pids) - before
	if r.kept, err = s.items(ctx); err != nil || dir == "" {
		return err
	}
	begin := time.Now()
	if err := s.End(syscall.SIGTERM, harness.Patience); err != nil {
		return err
	}
	r.save = time.Since(begin).Seconds()
	if r.mode == "Saved" { // the file system in memory ends with the pod
		if err := emptied(dir); err != nil {
			return err
		}
	}
	if s, err = start(ctx); err != nil {
		return err
	}
	r.load = time.Since(begin).Seconds() - r.save
	r.kept, err = s.items(ctx)
	return err
}

// starter makes the directories. starter returns a function that starts the server, and the directory of the
// warm file.
func (r *modeRow) starter(b *bench, memory int) (launched func(context.Context) (*server, error), dir string, err error) {
	if r.mode == "plain" {
		return func(ctx context.Context) (*server, error) { return memcached(ctx, memory) }, "", nil
	}
	volume, err := b.volume(fmt.Sprintf("%s-%d", r.mode, memory))
	if err != nil {
		return nil, "", err
	}
	c := contract.Supervise{Dir: volume}
	dir = volume
	if r.mode == "Saved" {
		dir, err = os.MkdirTemp(memoryRoot, "drainer-bench-")
		c.MemoryDir = dir
		b.remove = append(b.remove, dir)
	}
	return func(ctx context.Context) (*server, error) {
		port, err := harness.FreePort()
		if err != nil {
			return nil, err
		}
		serve := c
		serve.Port, serve.Command = int32(port), append([]string{"memcached"}, harness.MemcachedArgs(port, memory)...)
		return start(ctx, port, b.drainer, serve.Args()...)
	}, dir, err
}

// mixedLoad runs clients that wait for each answer.
func (r *modeRow) mixedLoad(ctx context.Context, p population, s *server, lasts time.Duration) error {
	did, err := harness.Closed(ctx, s.address(), loadClients, lasts, func(n int) func(*harness.Conn) (int, error) {
		random := rand.New(rand.NewPCG(uint64(n), 1))
		value := strings.Repeat("v", p.size(0))
		return func(conn *harness.Conn) (int, error) { return 1, oneRequest(conn, random, p.items, value) }
	})
	r.rate, r.p99 = did.Rate(), did.Times.Percentile(99)
	return err
}

func oneRequest(conn *harness.Conn, random *rand.Rand, items int, value string) error {
	key := string(appendKey(nil, random.IntN(items)))
	command := "mg " + key + " v\r\n"
	if random.IntN(10) == 0 {
		command = "ms " + key + " " + strconv.Itoa(len(value)) + "\r\n" + value + "\r\n"
	}
	if _, err := io.WriteString(conn, command); err != nil {
		return err
	}
	line, err := conn.Answers.ReadString('\n')
	if err != nil {
		return err
	}
	size, found := strings.CutPrefix(strings.TrimSpace(line), "VA ")
	if !found {
		return nil
	}
	n, err := strconv.Atoi(size)
	if err == nil {
		_, err = conn.Answers.Discard(n + len("\r\n"))
	}
	return err
}

// writtenBy returns how many bytes the processes have made the kernel write to disks. A page of a mapped file
// counts each time that the process makes it dirty. A file in memory doesn't count.
//
// Source: proc(5), /proc/pid/io, write_bytes.
func writtenBy(pids []int) (sum int64) {
	for _, pid := range pids {
		data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
		for line := range strings.Lines(string(data)) {
			if rest, ok := strings.CutPrefix(line, "write_bytes: "); ok {
				n, _ := strconv.ParseInt(strings.TrimSpace(rest), 10, 64)
				sum += n
			}
		}
	}
	return sum
}

func emptied(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.Mkdir(dir, 0o700)
}

func printModes(out io.Writer, rows []*modeRow) {
	fmt.Fprintln(out, harness.Header("memory, GiB:", "memcached", "requests/s:", "p99, µs:", "written under load, MB:", "save, s:", "load, s:", "lost:"))
	for _, r := range rows {
		save, load := "", ""
		if r.save > 0 {
			save, load = fmt.Sprintf("%.1f", r.save), fmt.Sprintf("%.1f", r.load)
		}
		fmt.Fprintln(out, harness.Row(fmt.Sprintf("%.3g", r.gib), r.mode, grouped(int(r.rate)),
			grouped(int(r.p99.Microseconds())), grouped(int(r.written/1e6)), save, load, grouped(r.expects-r.kept)))
	}
}
