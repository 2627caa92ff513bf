package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const memcachedTool = "/usr/share/memcached/scripts/memcached-tool"

// toolItems bounds the items for the tools, because they would take minutes for more.
const toolItems = 200_000

// tools measures the tools that people use, with some of the items.
func (p population) tools(ctx context.Context, b *bench) (dumped, copied *row, err error) {
	what := p.String() + " to 1"
	most := toolItems
	if b.short {
		most /= 10
	}
	p.items = min(p.items, most)
	source, err := p.filled(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer source.Kill()
	if dumped, err = p.dumpTool(ctx, b, source); err != nil {
		return nil, nil, err
	}
	if copied, err = p.copyTools(ctx, b, source); err != nil {
		return nil, nil, err
	}
	dumped.what, copied.what = what, what
	return dumped, copied, nil
}

// dumpTool pipes "memcached-tool dump" of the source into an empty server.
func (p population) dumpTool(ctx context.Context, b *bench, source *server) (*row, error) {
	r := &row{how: fmt.Sprintf("memcached-tool dump, piped (%s)", count(p.items)), items: p.items, bytes: p.bytes()}
	target, err := memcached(ctx, p.memory())
	if err != nil {
		return r, err
	}
	defer target.Kill()
	conn, err := net.Dial("tcp", target.address())
	if err != nil {
		return r, err
	}
	defer conn.Close()
	out, err := conn.(*net.TCPConn).File()
	if err != nil {
		return r, err
	}
	defer out.Close()
	answered := make(chan error, 1)
	go func() { answered <- readUntilVersion(conn) }()
	cmd := exec.CommandContext(ctx, memcachedTool, source.address(), "dump")
	cmd.Stdout = out
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	used, err := runWatched(cmd)
	if err != nil {
		return r, fmt.Errorf("memcached-tool (Debian's package memcached has it): %w: %.200s", err, complaints.String())
	}
	if _, err := conn.Write([]byte("version\r\n")); err != nil {
		return r, err
	}
	if err := <-answered; err != nil {
		return r, err
	}
	items, err := target.items(ctx)
	r.add(used, p.items-items)
	b.progressf("memcached-tool dump: %s in %.1f s, lost %d", p, used.seconds, p.items-items)
	return r, err
}

func readUntilVersion(conn net.Conn) error {
	for lines := bufio.NewReader(conn); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			return err
		}
		if strings.HasPrefix(line, "VERSION") {
			return nil
		}
	}
}

// copyTools copies a source with libmemcached's tools: memcdump lists keys, memccat writes a key's value to a
// file, and memccp stores files. The last two, a process for each key, are measured with some of the keys.
func (p population) copyTools(ctx context.Context, b *bench, source *server) (*row, error) {
	const part = 500
	r := &row{how: fmt.Sprintf("memcdump, memccat, memccp (%d keys of %s)", part, count(p.items)), items: part}
	if _, err := exec.LookPath("memcdump"); err != nil {
		b.progressf("left out: %s: %v (Debian's package libmemcached-tools)", r.how, err)
		return r, nil
	}
	target, err := memcached(ctx, p.memory())
	if err != nil {
		return r, err
	}
	defer target.Kill()
	begin := time.Now()
	list, err := exec.CommandContext(ctx, "memcdump", "--servers="+source.address()).Output()
	listing := time.Since(begin).Seconds()
	keys := strings.Fields(string(list))
	if err != nil || len(keys) < part {
		return r, fmt.Errorf("memcdump listed %d keys: %w", len(keys), err)
	}
	dir, err := b.volume("files")
	if err != nil {
		return r, err
	}
	defer os.RemoveAll(dir)
	begin = time.Now()
	copying := []string{"--servers=" + target.address(), "--add"}
	for _, key := range keys[:part] {
		file := filepath.Join(dir, key)
		if err := exec.CommandContext(ctx, "memccat", "--servers="+source.address(), "--file="+file, key).Run(); err != nil {
			return r, fmt.Errorf("memccat: %w", err)
		}
		info, err := os.Stat(file)
		if err != nil {
			return r, err
		}
		r.bytes += info.Size() + keyLength
		copying = append(copying, file)
	}
	if out, err := exec.CommandContext(ctx, "memccp", copying...).CombinedOutput(); err != nil {
		return r, fmt.Errorf("memccp: %w: %.200s", err, out)
	}
	seconds := time.Since(begin).Seconds() + listing*part/float64(len(keys))
	r.add(usage{seconds: seconds}, p.items-len(keys))
	return r, nil
}
