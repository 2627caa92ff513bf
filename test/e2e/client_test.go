package e2e

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	kruntime "k8s.io/apimachinery/pkg/runtime"

	"example.com/memcached-operator/test/internal/app"
)

type runtimeObject = kruntime.Object

const (
	ringClient = "libmemcached-ketama-weighted"
	maxItem    = 1 << 20
)

// objects returns the files of the Go distribution.
func (f *fixture) objects() []app.Object { return f.load(&all, 1) }

// some returns some of these objects, with all times to live in turn, for tests in which their number doesn't
// matter.
func (f *fixture) some() []app.Object { return f.load(&some, 5) }

var all, some loaded

// loaded are objects that were read once.
type loaded struct {
	once    sync.Once
	objects []app.Object
	err     error
}

// load returns an object for each n-th file.
func (f *fixture) load(l *loaded, n int) []app.Object {
	f.Helper()
	l.once.Do(func() { l.objects, _, l.err = app.LoadEach(f.source(), maxItem, n) })
	f.must(l.err)
	if len(l.objects) < 5000/n {
		f.Fatalf("only %d objects under %s", len(l.objects), f.source())
	}
	return slices.Clone(l.objects)
}

// asOfPylibmc returns objects that the independent client can store.
func asOfPylibmc(objects []app.Object) []app.Object {
	now := time.Now()
	for i := range objects {
		objects[i].Flags = 0 // pylibmc uses flags for types
		if objects[i].TTL > 0 {
			objects[i].Expires = now.Add(objects[i].TTL).Unix()
		}
	}
	return objects
}

func (f *fixture) source() string {
	f.Helper()
	dir, err := app.GoSource(f.ctx)
	f.must(err)
	return dir
}

// app returns an application that dials the members' pods.
func (f *fixture) app(size int) *app.App {
	f.Helper()
	servers := f.servers(size)
	a, err := app.New(ringClient, servers, f.address)
	f.must(err)
	a.Dialer = f.dialer
	return a
}

// appAt returns an application with one server, at an address.
func (f *fixture) appAt(servers []string, address string) *app.App {
	f.Helper()
	a, err := app.New(ringClient, servers, func(string) string { return address })
	f.must(err)
	return a
}

// servers returns the servers of status.
func (f *fixture) servers(size int) []string {
	f.Helper()
	servers := f.memcached().Status.Servers
	if len(servers) != size {
		f.Fatalf("status.servers is %v, want %d servers", servers, size)
	}
	return servers
}

// fill stores every object through the ring of size members.
func (f *fixture) fill(size int, objects []app.Object) {
	f.Helper()
	f.must(f.app(size).Fill(f.ctx, objects))
}

// expectAll reads every object from its owner among size members.
func (f *fixture) expectAll(size int, objects []app.Object) {
	f.Helper()
	report, err := f.app(size).Check(f.ctx, objects)
	f.must(err)
	f.Logf("%d objects: %d found, %d missing, %d wrong", report.Objects, report.Found, report.Missing, report.Wrong)
	if report.Found != int64(len(objects)) {
		f.Fatalf("not every object is where the client looks:\n%s", strings.Join(report.Examples, "\n"))
	}
}

// pylibmcFindsAll is expectAll by the independent client.
func (f *fixture) pylibmcFindsAll(size int, objects []app.Object) {
	f.Helper()
	report := f.pylibmc("check", size, objects)
	f.Logf("pylibmc: %d objects: %d found, %d missing, %d wrong", report.Objects, report.Found, report.Missing, report.Wrong)
	if report.Found != int64(len(objects)) {
		f.Fatalf("pylibmc does not find every object:\n%s", strings.Join(report.Examples, "\n"))
	}
}

// pylibmc runs the independent client against the members, by their names.
func (f *fixture) pylibmc(command string, size int, objects []app.Object) app.Report {
	f.Helper()
	servers := f.servers(size)
	var addresses []string
	for _, server := range servers {
		addresses = append(addresses, f.address(server))
	}
	names := filepath.Join(f.TempDir(), "hosts")
	f.must(hostsFile(names, servers, addresses))
	var input, stderr bytes.Buffer
	dir, encoder := f.source(), json.NewEncoder(&input)
	for _, o := range objects {
		f.must(encoder.Encode(map[string]any{
			"key": o.Key, "file": filepath.Join(dir, o.Key), "ttl": o.Expires,
		}))
	}
	cmd := f.python(names, "testdata/client.py", append([]string{command}, servers...)...)
	cmd.Stdin, cmd.Stderr = &input, &stderr
	out, err := cmd.Output()
	if err != nil {
		f.Fatalf("pylibmc %s: %v: %s", command, err, stderr.String())
	}
	var report app.Report
	f.must(json.Unmarshal(out, &report))
	return report
}
