package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"example.com/memcached-operator/test/internal/harness"
)

// world has the processes that take part.
type world struct {
	o       *options
	dir     string
	running []*harness.Process
	members []int // process ids
}

func (w *world) end() {
	for _, p := range w.running {
		p.Kill()
	}
	if w.dir != "" {
		_ = os.RemoveAll(w.dir)
	}
}

func (w *world) spawn(program string, args ...string) (pid int, err error) {
	cmd := exec.Command(program, args...)
	cmd.Stderr = os.Stderr
	p, err := harness.Start(cmd)
	if err != nil {
		return 0, err
	}
	w.running = append(w.running, p)
	return p.PID(), nil
}

func (w *world) start(ctx context.Context) (targets []target, err error) {
	if w.dir, err = os.MkdirTemp("", "router-bench-"); err != nil {
		return nil, err
	}
	var servers []string
	for range w.o.members {
		port, err := harness.FreePort()
		if err != nil {
			return nil, err
		}
		pid, err := w.spawn(w.o.memcached, harness.MemcachedArgs(port, 1024, "-t", "2", "-c", "10000")...)
		if err != nil {
			return nil, err
		}
		w.members = append(w.members, pid)
		servers = append(servers, harness.Loopback(port))
	}
	all := []target{{name: "direct", address: servers[0]}}
	for _, start := range []func([]string) (target, error){w.router, w.twemproxy, w.proxy} {
		t, err := start(servers)
		if err != nil {
			return nil, err
		}
		if t.address != "" {
			all = append(all, t)
		}
	}
	for _, t := range all {
		if w.o.only == "" || t.name == w.o.only {
			targets = append(targets, t)
		}
		if err := ready(ctx, t); err != nil {
			return nil, err
		}
	}
	return targets, nil
}

func (w *world) router(servers []string) (target, error) {
	port, err := harness.FreePort()
	if err != nil {
		return target{}, err
	}
	admin, err := harness.FreePort()
	if err != nil {
		return target{}, err
	}
	address := harness.Loopback(port)
	args := []string{"route", "--client=libmemcached-ketama", "--listen=" + address, "--admin=" + harness.Loopback(admin), "--threads=" + strconv.Itoa(w.o.threads)}
	for _, s := range servers {
		args = append(args, "--server="+s)
	}
	pid, err := w.spawn(w.o.drainer, args...)
	return target{"router", address, []int{pid}}, err
}

func (w *world) twemproxy(servers []string) (target, error) {
	program, err := exec.LookPath(w.o.nutcracker)
	if err != nil {
		fmt.Fprintln(os.Stderr, "without twemproxy:", err)
		return target{}, nil
	}
	port, err := harness.FreePort()
	if err != nil {
		return target{}, err
	}
	stats, err := harness.FreePort()
	if err != nil {
		return target{}, err
	}
	address := harness.Loopback(port)
	text := "pool:\n  listen: " + address + "\n  hash: fnv1a_64\n  distribution: ketama\n  preconnect: true\n  servers:\n"
	for _, s := range servers {
		text += "  - " + s + ":1\n"
	}
	config := filepath.Join(w.dir, "nutcracker.yml")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return target{}, err
	}
	pid, err := w.spawn(program, "-c", config, "-s", strconv.Itoa(stats), "-o", filepath.Join(w.dir, "nutcracker.log"))
	return target{"twemproxy", address, []int{pid}}, err
}

// proxyConfig lets memcached's proxy ask one member for each key.
const proxyConfig = `
function mcp_config_pools()
  local backends = {}
  for name, port in string.gmatch("%s", "([%%d.]+):(%%d+)") do
    table.insert(backends, mcp.backend("member" .. port, name, tonumber(port)))
  end
  return mcp.pool(backends)
end
function mcp_config_routes(pool)
  local route = mcp.funcgen_new()
  local handle = route:new_handle(pool)
  route:ready({ n = "all", f = function(context)
    return function(request) return context:enqueue_and_wait(request, handle) end
  end })
  mcp.attach(mcp.CMD_ANY_STORAGE, route)
end
`

func (w *world) proxy(servers []string) (target, error) {
	if w.o.proxy == "" {
		return target{}, nil
	}
	port, err := harness.FreePort()
	if err != nil {
		return target{}, err
	}
	config := filepath.Join(w.dir, "proxy.lua")
	if err := os.WriteFile(config, fmt.Appendf(nil, proxyConfig, strings.Join(servers, " ")), 0o600); err != nil {
		return target{}, err
	}
	pid, err := w.spawn(w.o.proxy, harness.MemcachedArgs(port, 64, "-c", "10000", "-t", strconv.Itoa(w.o.threads), "-o", "proxy_config="+config)...)
	return target{"proxy", harness.Loopback(port), []int{pid}}, err
}

// ready waits until sets are stored at all members.
func ready(ctx context.Context, t target) error {
	ctx, cancel := context.WithTimeout(ctx, harness.Patience)
	defer cancel()
	return harness.Until(ctx, 20*time.Millisecond, t.name+" answers", func() error { return try(ctx, t.address) })
}

func try(ctx context.Context, address string) error {
	conn, err := harness.Dial(ctx, address)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	for i := range 50 { // some keys for each member
		if _, err := fmt.Fprintf(conn, "set ready-%d 0 0 1\r\nx\r\n", i); err != nil {
			return err
		}
		if line, err := conn.Answers.ReadString('\n'); err != nil || line != "STORED\r\n" {
			return fmt.Errorf("it answered %q: %w", line, err)
		}
	}
	return nil
}
