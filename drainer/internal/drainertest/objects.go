package drainertest

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/routing"
	"example.com/memcached-operator/drainer/volume"
	"example.com/memcached-operator/test/wait"
)

// ReadManifest reads the manifest of the member in dir.
func ReadManifest(dir string) (*volume.Manifest, error) { return volume.ReadManifest(dir) }

// Object is an item of a client.
type Object struct {
	Value []byte
	Flags uint64
	// TTL is the stored time to live, in seconds; 0 means never.
	TTL int64
}

// Objects makes n objects of all kinds: sizes from nothing to an item's limit, flags, times, keys that are
// not text.
func Objects(seed uint64, n int) map[string]Object {
	r := rand.New(rand.NewPCG(seed, 0))
	values := rand.NewChaCha8(sha256.Sum256(fmt.Append(nil, seed)))
	all := map[string]Object{}
	for i := range n {
		size := r.IntN(400)
		switch kind := r.IntN(500); {
		case i == n/2, kind == 0: // few, because they take nearly all of the time
			size = r.IntN(1<<20 - 400)
		case kind < 10:
			size = 0
		case kind < 20:
			size = r.IntN(20_000)
		}
		value := make([]byte, size)
		_, _ = values.Read(value)
		key := fmt.Sprintf("object:%d:%x", i, r.Uint32())
		if i%10 == 0 {
			key = fmt.Sprintf("object \x00\n%d", i)
		}
		o := Object{Value: value, TTL: []int64{0, 0, 5000, 500000}[r.IntN(4)]}
		if i%3 == 0 {
			o.Flags = uint64(r.Uint32())
		}
		all[key] = o
	}
	return all
}

// Store sends objects, pipelined, by plain sets.
func Store(t *testing.T, address string, all map[string]Object) {
	t.Helper()
	StoreBy(t, memcache.Dialer{}, address, all)
}

// StoreBy is Store with a dialer.
func StoreBy(t *testing.T, d memcache.Dialer, address string, all map[string]Object) {
	t.Helper()
	conn, err := d.DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(wait.Deadline())
	w := bufio.NewWriterSize(conn, 1<<20)
	for key, o := range all {
		form, binary := key, ""
		if strings.ContainsAny(key, " \n\x00") {
			form, binary = Base64Of(key), " b"
		}
		fmt.Fprintf(w, "ms %s %d q F%d T%d%s\r\n%s\r\n", form, len(o.Value), o.Flags, o.TTL, binary, o.Value)
	}
	fmt.Fprint(w, "mn\r\n")
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || answer != "MN\r\n" {
		t.Fatalf("store: %q, %v", answer, err)
	}
}

// Check reads every object from the server that its client would ask.
func Check(t *testing.T, client string, servers []string, all map[string]Object) {
	t.Helper()
	CheckBy(t, memcache.Dialer{}, client, servers, all)
}

// fetchAll gives each key to the function with the server's value: nil if it has none. fetchAll asks for many
// at once, since a question for each would take most of a test's time.
func fetchAll(t *testing.T, conn *memcache.Conn, keys []string, got func(key string, v *memcache.Value)) {
	t.Helper()
	for some := range slices.Chunk(keys, 100) {
		var request []byte
		for _, key := range some {
			var base64 bool
			var err error
			if request, base64, err = memcache.AppendKey(append(request, "mg "...), []byte(key)); err != nil {
				t.Fatal(err)
			}
			if base64 {
				request = append(request, " b"...)
			}
			request = append(request, " v f t c u\r\n"...)
		}
		if err := conn.Send(request); err != nil {
			t.Fatal(err)
		}
		for _, key := range some {
			v, err := conn.Fetched()
			if err != nil {
				t.Fatal(err)
			}
			got(key, v)
		}
	}
}

// CheckBy is Check with a dialer.
func CheckBy(t *testing.T, d memcache.Dialer, client string, servers []string, all map[string]Object) {
	t.Helper()
	owner, err := routing.New(client, MustParse(t, servers))
	if err != nil {
		t.Fatal(err)
	}
	var conns []*memcache.Conn
	for _, s := range servers {
		c, err := d.Dial(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns = append(conns, c)
	}
	keys := make([][]string, len(conns))
	for key := range all {
		i := owner.Owner([]byte(key))
		keys[i] = append(keys[i], key)
	}
	missing, wrong := 0, 0
	check := func(key string, v *memcache.Value) {
		o := all[key]
		if v == nil {
			if missing++; missing <= 3 {
				t.Errorf("%q (%d bytes) is missing", key, len(o.Value))
			}
			return
		}
		ttl := o.TTL
		if ttl == 0 {
			ttl = -1
		}
		if d := ttl - v.TTL; string(v.Data) != string(o.Value) || v.Flags != o.Flags || d < -2 || d > 600 || (ttl < 0) != (v.TTL < 0) {
			if wrong++; wrong <= 3 {
				t.Errorf("%q: %d bytes, flags %d, %d s left; want %d, %d, about %d", key, len(v.Data), v.Flags, v.TTL, len(o.Value), o.Flags, ttl)
			}
		}
	}
	for i, conn := range conns {
		fetchAll(t, conn, keys[i], check)
	}
	if missing+wrong > 0 {
		t.Errorf("%d objects missing and %d wrong, of %d", missing, wrong, len(all))
	}
}

// Settle waits until the manifest has at least n items.
func (s *Served) Settle(n int) {
	s.T.Helper()
	wait.For(s.T, "the manifest to follow", func() error {
		m, err := ReadManifest(s.Dir)
		if err == nil && m.Image.Items*10 < int64(n)*9 {
			err = fmt.Errorf("it says %d items", m.Image.Items)
		}
		return err
	})
}

// Address is where clients connect.
func (s *Served) Address() string { return "127.0.0.1:" + strconv.Itoa(s.Port) }

// End stops the member: by the kubelet's signal, or as the OOM killer would, supervisor and memcached at the
// same time.
func (s *Served) End(how string) {
	s.T.Helper()
	switch how {
	case "saved":
		s.Signal(15)
		if code := s.Wait(); code != 0 {
			s.T.Fatalf("exit code %d\n%s", code, s.Err.String())
		}
	case "killed":
		pid := s.PID()
		s.Signal(9)
		s.Wait()
		wait.For(s.T, "memcached to go with its supervisor", func() error { return Gone(pid) })
	}
}

// Held returns the objects on a server, each with its stored parts.
func Held(t *testing.T, address string, all map[string]Object) map[string]Object {
	t.Helper()
	conn, err := (memcache.Dialer{}).Dial(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	held := map[string]Object{}
	fetchAll(t, conn, slices.Collect(maps.Keys(all)), func(key string, v *memcache.Value) {
		if v != nil {
			held[key] = all[key]
		}
	})
	Check(t, "gomemcache", []string{address}, held)
	return held
}
