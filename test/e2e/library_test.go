package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/test/internal/app"
	"example.com/memcached-operator/test/wait"
)

// library is a client library, which decides by itself where it looks for a key. A library serves one caller
// at a time.
type library interface {
	// use takes a list of servers, with their names in status.servers, and their addresses.
	use(servers, addresses []string) error
	// get returns "" if there is no value.
	get(key string) (string, error)
	set(key, value string) error
	// remove deletes a key. A missing key is no error.
	remove(key string) error
}

// libraries distribute in four ways: by modulo, by jump hashes, by a ring, and by rendezvous.
var libraries = map[cachev1alpha1.Client]func(*fixture) library{
	"gomemcache": func(*fixture) library { return &gomemcache{} },
	"dskit":      func(*fixture) library { return &gomemcache{ring: "dskit"} },
	ringClient:   func(f *fixture) library { return f.startPython("pylibmc") },
	"pymemcache": func(f *fixture) library { return f.startPython("pymemcache") },
}

// dialSoon gives up after a while: a pod that is gone refuses nothing. The kernel of an existing pod accepts,
// even if its memcached is busy.
func dialSoon(ctx context.Context, network, address string) (net.Conn, error) {
	return (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, network, address)
}

// gomemcache distributes by its own ring, or by that of another client.
type gomemcache struct {
	*memcache.Client
	ring string
}

func (g *gomemcache) use(servers, addresses []string) error {
	list, err := g.selector(servers, addresses)
	if err != nil {
		return err
	}
	if g.Client != nil {
		_ = g.Close() // at worst, idle connections stay open
	}
	g.Client = memcache.NewFromSelector(list)
	g.DialContext, g.Timeout = dialSoon, wait.Long
	return nil
}

func (g *gomemcache) selector(servers, addresses []string) (memcache.ServerSelector, error) {
	if g.ring != "" {
		return app.New(g.ring, servers, func(s string) string { return addresses[slices.Index(servers, s)] })
	}
	list := &memcache.ServerList{}
	return list, list.SetServers(addresses...)
}

func (g *gomemcache) get(key string) (string, error) {
	item, err := g.Get(key)
	switch {
	case errors.Is(err, memcache.ErrCacheMiss):
		return "", nil
	case err != nil:
		return "", err
	}
	return string(item.Value), nil
}

func (g *gomemcache) set(key, value string) error {
	return g.Set(&memcache.Item{Key: key, Value: []byte(value)})
}

func (g *gomemcache) remove(key string) error {
	if err := g.Delete(key); !errors.Is(err, memcache.ErrCacheMiss) {
		return err
	}
	return nil
}

// python is a Python library in a process of its own.
type python struct {
	names    string // its /etc/hosts
	requests *json.Encoder
	answers  *json.Decoder
}

// request is one to testdata/library.py, and the answer.
type request struct {
	Do      string   `json:"do"`
	Servers []string `json:"servers,omitempty"`
	Key     string   `json:"key,omitempty"`
	Value   string   `json:"value,omitempty"`
}

type answer struct{ Value, Error string }

// startPython starts the library. The library ends at the end of its input.
func (f *fixture) startPython(name string) *python {
	f.Helper()
	p := &python{names: filepath.Join(f.TempDir(), "hosts")}
	f.must(hostsFile(p.names, nil, nil))
	cmd := f.python(p.names, "testdata/library.py", name)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	f.must(err)
	out, err := cmd.StdoutPipe()
	f.must(err)
	f.must(cmd.Start())
	f.Cleanup(func() {
		_ = in.Close()
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
	})
	p.requests, p.answers = json.NewEncoder(in), json.NewDecoder(out)
	return p
}

func (p *python) ask(r request) (string, error) {
	var a answer
	if err := p.requests.Encode(r); err != nil {
		return "", err
	}
	if err := p.answers.Decode(&a); err != nil {
		return "", fmt.Errorf("the library has ended: %w", err)
	}
	if a.Error != "" {
		return "", errors.New(a.Error)
	}
	return a.Value, nil
}

func (p *python) use(servers, addresses []string) error {
	if err := hostsFile(p.names, servers, addresses); err != nil {
		return err
	}
	_, err := p.ask(request{Do: "use", Servers: servers})
	return err
}

func (p *python) get(key string) (string, error) { return p.ask(request{Do: "get", Key: key}) }

func (p *python) set(key, value string) error {
	_, err := p.ask(request{Do: "set", Key: key, Value: value})
	return err
}

func (p *python) remove(key string) error {
	_, err := p.ask(request{Do: "delete", Key: key})
	return err
}

// python returns a command that resolves the members' names by a file: it has a private /etc/hosts.
func (f *fixture) python(names, program string, args ...string) *exec.Cmd {
	const script = `mount --bind "$1" /etc/hosts && shift && exec /usr/bin/python3 "$@"`
	args = append([]string{"--mount", "sh", "-ec", script, "sh", names, program}, args...)
	return exec.CommandContext(f.ctx, "unshare", args...)
}

// hostsFile writes the file by which such a program resolves the servers. The file can be written again while
// the program runs.
func hostsFile(path string, servers, addresses []string) error {
	var hosts strings.Builder
	for i, server := range servers {
		host, _, _ := strings.Cut(server, ":")
		ip, _, _ := strings.Cut(addresses[i], ":")
		fmt.Fprintf(&hosts, "%s %s\n", ip, host)
	}
	return os.WriteFile(path, []byte(hosts.String()), 0o644)
}
