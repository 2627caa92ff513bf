package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"example.com/memcached-operator/drainer/cli"
	"example.com/memcached-operator/drainer/commandline"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/linux"
	"example.com/memcached-operator/drainer/volume"
	"example.com/memcached-operator/test/internal/harness"
)

// Ways to read a warm file.
const (
	readPlain = "plain" // the file's bytes, in sequence
	readItems = "items" // the drainer's reader
)

// reading is the report of a child of this program.
type reading struct {
	Items   int     `json:"items"`
	Seconds float64 `json:"seconds"`
}

// read measures the reader alone, from a warm and from a dropped page cache,
// beside a plain sequential read of the same file.
func (p population) read(ctx context.Context, b *bench) ([]*row, error) {
	dir, err := p.saved(ctx, b)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	size, err := dataEnd(filepath.Join(dir, contract.WarmFile))
	if err != nil {
		return nil, err
	}
	var rows []*row
	for _, cache := range []string{"warm", "dropped"} {
		what := fmt.Sprintf("%s, page cache %s", p, cache)
		plain := &row{what: what, how: "plain sequential read: the limit", items: p.items, bytes: size}
		ours := &row{what: what, how: "**the reader**", items: p.items, bytes: size, limit: plain}
		rows = append(rows, plain, ours)
		err := harness.InTurn(b.rounds, []*row{plain, ours}, func(r *row) error { return b.readRound(ctx, r, dir, cache == "dropped") })
		if err != nil {
			return rows, err
		}
		b.progressf("%s: %.1f M items/s, %.2f of a plain read", what, ours.rate()/1e6, ours.rate()/plain.rate())
	}
	return rows, nil
}

func (b *bench) readRound(ctx context.Context, r *row, dir string, drop bool) error {
	how := readPlain
	if r.limit != nil {
		how = readItems
	}
	if drop {
		if err := dropCache(filepath.Join(dir, contract.WarmFile)); err != nil {
			return err
		}
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, "read", how, dir)
	if b.profile != "" && how == readItems {
		cmd = b.profiled(ctx, r.what, []string{"read", how, dir})
	}
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	used, err := runWatched(cmd)
	if err != nil {
		return fmt.Errorf("%v: %w", cmd.Args, err)
	}
	var got reading
	if err := json.Unmarshal([]byte(out.String()), &got); err != nil {
		return err
	}
	if how == readItems {
		used.seconds = got.Seconds // without the start of the process
		r.add(used, r.items-got.Items)
	} else {
		r.seconds = append(r.seconds, got.Seconds)
	}
	return nil
}

// readChild reads in a process of its own, whose memory can be watched.
func readChild(how, dir string) {
	begin := time.Now()
	var got reading
	var err error
	if how == readPlain {
		err = plainRead(filepath.Join(dir, contract.WarmFile))
	} else {
		got.Items, err = itemRead(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	got.Seconds = time.Since(begin).Seconds()
	printJSON(got)
}

func itemRead(dir string) (int, error) {
	r, err := volume.Open(dir, volume.Options{})
	if err != nil {
		return 0, err
	}
	defer r.Close()
	n, err := r.Count(context.Background())
	return int(n), err
}

// plainRead reads a file to the end of its data, in pieces of one of memcached's pages.
func plainRead(path string) error {
	size, err := dataEnd(path)
	if err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	const page = 1 << 20
	_, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{io.LimitReader(f, size)}, make([]byte, page))
	return err
}

// dataEnd returns where a warm file's data ends: memcached fills it from its beginning, and the unused rest is
// a hole.
func dataEnd(path string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	end := int64(0)
	for {
		data, err := unix.Seek(int(f.Fd()), end, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return end, nil
		}
		if err != nil {
			return 0, err
		}
		if end, err = unix.Seek(int(f.Fd()), data, unix.SEEK_HOLE); err != nil {
			return 0, err
		}
	}
}

// dropCache writes a file to the disk and takes it out of the page cache.
func dropCache(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return err
	}
	return linux.Advise(f, 0, 0, linux.DontNeed)
}

// profiled is a child of this program that runs a command and writes a CPU profile, named after the row. Its
// memory has the bound of the drainer's program.
func (b *bench) profiled(ctx context.Context, name string, line []string) *exec.Cmd {
	self, _ := os.Executable()
	name = strings.Map(func(r rune) rune {
		if r == ' ' || r == ',' || r == '/' || r == '*' {
			return '-'
		}
		return r
	}, name)
	cmd := exec.CommandContext(ctx, self, append([]string{"profile", filepath.Join(b.profile, name+".pprof")}, line...)...)
	cmd.Env = append(os.Environ(), "GOMEMLIMIT=48MiB")
	return cmd
}

// profileChild runs a command of this program, or of the drainer, under the
// profiler, and returns the exit code.
func profileChild(path string, line []string) int {
	f, err := os.Create(path)
	if err == nil {
		err = pprof.StartCPUProfile(f)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer f.Close()
	defer pprof.StopCPUProfile()
	if line[0] == "read" {
		readChild(line[1], line[2])
		return 0
	}
	return cli.Main(context.Background(), line[1:], commandline.IO{In: os.Stdin, Out: io.Discard, Err: os.Stderr})
}
