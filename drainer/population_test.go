package drainer

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/routing"
	"example.com/memcached-operator/drainer/warmfile"
)

func readManifest(dir string) (*warmfile.Manifest, error) { return warmfile.ReadManifest(dir) }

// object is what a client has stored.
type object struct {
	value []byte
	flags uint32
	// ttl in seconds as it was stored, 0 never.
	ttl int64
}

// objects makes n of them, of all kinds: sizes from nothing to the limit of
// one item, flags, times, keys that are no text.
func objects(seed uint64, n int) map[string]object {
	r := rand.New(rand.NewPCG(seed, 0))
	all := map[string]object{}
	for i := range n {
		size := r.IntN(400)
		switch r.IntN(50) {
		case 0:
			size = 0
		case 1:
			size = r.IntN(1<<20 - 400)
		}
		value := make([]byte, size)
		for j := range value {
			value[j] = byte(r.Uint32())
		}
		key := fmt.Sprintf("object:%d:%x", i, r.Uint32())
		if i%10 == 0 {
			key = fmt.Sprintf("object \x00\n%d", i)
		}
		o := object{value: value, ttl: []int64{0, 0, 5000, 500000}[r.IntN(4)]}
		if i%3 == 0 {
			o.flags = r.Uint32()
		}
		all[key] = o
	}
	return all
}

// store sends objects, pipelined, by plain sets.
func store(t *testing.T, address string, all map[string]object) {
	t.Helper()
	storeBy(t, memcache.Dialer{}, address, all)
}

func storeBy(t *testing.T, d memcache.Dialer, address string, all map[string]object) {
	t.Helper()
	conn, err := d.DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	w := bufio.NewWriterSize(conn, 1<<20)
	for key, o := range all {
		form, binary := key, ""
		if strings.ContainsAny(key, " \n\x00") {
			form, binary = base64Of(key), " b"
		}
		fmt.Fprintf(w, "ms %s %d q F%d T%d%s\r\n%s\r\n", form, len(o.value), o.flags, o.ttl, binary, o.value)
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

// check reads every object from the server that its client would ask.
func check(t *testing.T, client string, servers []string, all map[string]object) {
	t.Helper()
	checkBy(t, memcache.Dialer{}, client, servers, all)
}

func checkBy(t *testing.T, d memcache.Dialer, client string, servers []string, all map[string]object) {
	t.Helper()
	owner, err := routing.New(client, mustParse(t, servers))
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
	missing, wrong := 0, 0
	for key, o := range all {
		v, err := conns[owner.Owner([]byte(key))].Get([]byte(key))
		if err != nil {
			t.Fatal(err)
		}
		if v == nil {
			if missing++; missing <= 3 {
				t.Errorf("%q (%d bytes) is missing", key, len(o.value))
			}
			continue
		}
		ttl := o.ttl
		if ttl == 0 {
			ttl = -1
		}
		if d := ttl - v.TTL; string(v.Data) != string(o.value) || v.Flags != o.flags || d < -2 || d > 60 || (ttl < 0) != (v.TTL < 0) {
			if wrong++; wrong <= 3 {
				t.Errorf("%q: %d bytes, flags %d, %d s left; want %d, %d, about %d", key, len(v.Data), v.Flags, v.TTL, len(o.value), o.flags, ttl)
			}
		}
	}
	if missing+wrong > 0 {
		t.Errorf("%d objects missing and %d wrong, of %d", missing, wrong, len(all))
	}
}

// settle waits until the manifest speaks of at least n items.
func (s *served) settle(n int) {
	s.t.Helper()
	memcachedtest.WaitFor(s.t, "the manifest to follow", func() error {
		m, err := readManifest(s.dir)
		if err == nil && m.Image.Items*10 < int64(n)*9 {
			err = fmt.Errorf("it says %d items", m.Image.Items)
		}
		return err
	})
}

func (s *served) address() string { return "127.0.0.1:" + strconv.Itoa(s.port) }

// end stops the member: by the kubelet's signal, or as the OOM killer would,
// supervisor and memcached at once.
func (s *served) end(how string) {
	s.t.Helper()
	switch how {
	case "saved":
		s.signal(15)
		if code := s.wait(); code != 0 {
			s.t.Fatalf("exit code %d\n%s", code, s.err.String())
		}
	case "killed":
		pid := s.pidOf()
		s.signal(9)
		s.wait()
		memcachedtest.WaitFor(s.t, "memcached to go with its supervisor", func() error { return gone(pid) })
	}
}
