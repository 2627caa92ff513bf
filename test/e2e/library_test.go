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

// library is a client library, which alone decides where it looks for a key. It
// serves one caller at a time.
type library interface {
	// use a list of servers from now on, as status.servers names them, at these
	// addresses.
	use(servers, addresses []string) error
	// get returns "" if there is nothing.
	get(key string) (string, error)
	set(key, value string) error
	// remove a key, whether it is there or not.
	remove(key string) error
}

// libraries distribute in four ways: modulo, by jump hashes, by a ring, and by rendezvous.
var libraries = map[cachev1alpha1.Client]func(*fixture) library{
	"gomemcache": func(*fixture) library { return &gomemcache{} },
	"dskit":      func(*fixture) library { return &gomemcache{ring: "dskit"} },
	ringClient:   func(f *fixture) library { return f.startPython("pylibmc") },
	"pymemcache": func(f *fixture) library { return f.startPython("pymemcache") },
}

// dialSoon gives up where nobody is, since nothing refuses there. The kernel of a pod that is there answers,
// however busy its memcached is.
func dialSoon(ctx context.Context, network, address string) (net.Conn, error) {
	return (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, network, address)
}

// gomemcache distributes as it does by itself, or as another client does.
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
		_ = g.Close() // at worst it leaves idle connections behind
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

// python is a library of Python's, in a process that it runs in.
type python struct {
	names    string // its /etc/hosts
	requests *json.Encoder
	answers  *json.Decoder
}

// request to, and answer of, testdata/library.py.
type request struct {
	Do      string   `json:"do"`
	Servers []string `json:"servers,omitempty"`
	Key     string   `json:"key,omitempty"`
	Value   string   `json:"value,omitempty"`
}

type answer struct{ Value, Error string }

// startPython starts the library. It ends when it has no more to read.
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

// python runs a program for which the members' names are those in a file: it has
// a private /etc/hosts.
func (f *fixture) python(names, program string, args ...string) *exec.Cmd {
	const script = `mount --bind "$1" /etc/hosts && shift && exec /usr/bin/python3 "$@"`
	args = append([]string{"--mount", "sh", "-ec", script, "sh", names, program}, args...)
	return exec.CommandContext(f.ctx, "unshare", args...)
}

// hostsFile writes the file that such a program resolves the servers by; it can be
// written again while that runs.
func hostsFile(path string, servers, addresses []string) error {
	var hosts strings.Builder
	for i, server := range servers {
		host, _, _ := strings.Cut(server, ":")
		ip, _, _ := strings.Cut(addresses[i], ":")
		fmt.Fprintf(&hosts, "%s %s\n", ip, host)
	}
	return os.WriteFile(path, []byte(hosts.String()), 0o644)
}
