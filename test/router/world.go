package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"example.com/memcached-operator/drainer/linux"
)

// world has the processes that take part.
type world struct {
	o       *options
	dir     string
	running []*exec.Cmd
	members []int // process ids
}

func (w *world) end() {
	for _, cmd := range w.running {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	if w.dir != "" {
		_ = os.RemoveAll(w.dir)
	}
}

func (w *world) spawn(program string, args ...string) (pid int, err error) {
	cmd := exec.Command(program, args...)
	cmd.SysProcAttr = linux.DiesWithParent()
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	w.running = append(w.running, cmd)
	return cmd.Process.Pid, nil
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func (w *world) start(ctx context.Context) (targets []target, err error) {
	if w.dir, err = os.MkdirTemp("", "router-bench-"); err != nil {
		return nil, err
	}
	var servers []string
	for range w.o.members {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		pid, err := w.spawn(w.o.memcached, "-l", "127.0.0.1", "-U", "0", "-u", "root", "-t", "2", "-m", "1024", "-c", "10000", "-p", strconv.Itoa(port))
		if err != nil {
			return nil, err
		}
		w.members = append(w.members, pid)
		servers = append(servers, "127.0.0.1:"+strconv.Itoa(port))
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
		if err := w.ready(ctx, t.address); err != nil {
			return nil, fmt.Errorf("%s: %w", t.name, err)
		}
	}
	return targets, nil
}

func (w *world) router(servers []string) (target, error) {
	port, err := freePort()
	if err != nil {
		return target{}, err
	}
	admin, err := freePort()
	if err != nil {
		return target{}, err
	}
	address := "127.0.0.1:" + strconv.Itoa(port)
	args := []string{"route", "--client=libmemcached-ketama", "--listen=" + address, "--admin=127.0.0.1:" + strconv.Itoa(admin), "--threads=" + strconv.Itoa(w.o.threads)}
	for _, s := range servers {
		args = append(args, "--server="+s)
	}
	pid, err := w.spawn(w.o.drainer, args...)
	return target{"router", address, pid}, err
}

func (w *world) twemproxy(servers []string) (target, error) {
	program, err := exec.LookPath(w.o.nutcracker)
	if err != nil {
		fmt.Fprintln(os.Stderr, "without twemproxy:", err)
		return target{}, nil
	}
	port, err := freePort()
	if err != nil {
		return target{}, err
	}
	stats, err := freePort()
	if err != nil {
		return target{}, err
	}
	address := "127.0.0.1:" + strconv.Itoa(port)
	text := "pool:\n  listen: " + address + "\n  hash: fnv1a_64\n  distribution: ketama\n  preconnect: true\n  servers:\n"
	for _, s := range servers {
		text += "  - " + s + ":1\n"
	}
	config := filepath.Join(w.dir, "nutcracker.yml")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return target{}, err
	}
	pid, err := w.spawn(program, "-c", config, "-s", strconv.Itoa(stats), "-o", filepath.Join(w.dir, "nutcracker.log"))
	return target{"twemproxy", address, pid}, err
}

// proxyConfig is for memcached's proxy: each key is asked of one member.
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
	port, err := freePort()
	if err != nil {
		return target{}, err
	}
	config := filepath.Join(w.dir, "proxy.lua")
	if err := os.WriteFile(config, fmt.Appendf(nil, proxyConfig, strings.Join(servers, " ")), 0o600); err != nil {
		return target{}, err
	}
	pid, err := w.spawn(w.o.proxy, "-l", "127.0.0.1", "-U", "0", "-u", "root", "-c", "10000", "-t", strconv.Itoa(w.o.threads), "-p", strconv.Itoa(port), "-o", "proxy_config="+config)
	return target{"proxy", "127.0.0.1:" + strconv.Itoa(port), pid}, err
}

// ready waits until sets are stored at all members.
func (w *world) ready(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		err := try(address)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func try(address string) error {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	b := make([]byte, 100)
	for i := range 50 { // some for each member
		if _, err := fmt.Fprintf(conn, "set ready-%d 0 0 1\r\nx\r\n", i); err != nil {
			return err
		}
		n, err := conn.Read(b)
		if err != nil {
			return err
		}
		if string(b[:n]) != "STORED\r\n" {
			return fmt.Errorf("it answered %q", b[:n])
		}
	}
	return nil
}

// memory of a process that is resident and not a file's, in bytes.
func memory(pid int) (float64, error) {
	if pid == 0 {
		return 0, nil
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), "RssAnon:")
	kb, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
	return kb * 1024, err
}

// cpu is what a process has used so far.
func cpu(pid int) (time.Duration, error) {
	if pid == 0 {
		return 0, nil
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	const user, system, tick = 11, 12, 10 * time.Millisecond // proc(5)
	u, err := strconv.Atoi(fields[user])
	if err != nil {
		return 0, err
	}
	s, err := strconv.Atoi(fields[system])
	return time.Duration(u+s) * tick, err
}
