package move

import (
	"bytes"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"example.com/memcached-operator/drainer/internal/memcachedtest"
)

// Every request for a key is logged, found or not, with the connection that made it.
func TestEveryRequestForAKeyIsLogged(t *testing.T) {
	for name, start := range map[string]func(testing.TB, ...string) *memcachedtest.Server{"1.6.18": memcachedtest.Start, "newer": memcachedtest.StartNewer} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			log, err := watchRequests(s.Dial())
			if err != nil {
				t.Fatal(err)
			}
			raw := s.Raw()
			conn := 0
			for _, asked := range []struct{ answer, command, data, key string }{
				{"STORED", "set a 0 0 1", "x", "a"}, {"END", "get nothing", "", "nothing"}, {"EN", "mg b%20:c", "", "b%20:c"},
				{"STORED", "add d 0 0 1", "x", "d"}, {"HD", "md YSBrZXk= b", "", "a key"}, {"DELETED", "delete a", "", "a"}, {"NOT_FOUND", "incr a 1", "", "a"}, {"NOT_FOUND", "touch a 1", "", "a"},
			} {
				var data []byte
				if asked.data != "" {
					data = []byte(asked.data)
				}
				if asked.command == "md YSBrZXk= b" {
					raw.Must("HD", "ms YSBrZXk= 1 b", []byte("x"))
					if key, _, err := log.Next(); err != nil || string(key) != asked.key {
						t.Errorf("it is stored: %q, %v", key, err)
					}
				}
				raw.Must(asked.answer, asked.command, data)
				key, from, err := log.Next()
				if err != nil || string(key) != asked.key || from == 0 || conn != 0 && from != conn {
					t.Errorf("%s: %q of connection %d, %v", asked.command, key, from, err)
				}
				conn = from
			}
		})
	}
}

// A memcached with TLS and logins logs requests, too.
func TestRequestsAreLoggedOverTLS(t *testing.T) {
	t.Parallel()
	s := memcachedtest.StartBy(t, memcachedtest.NewSecured(t).Connection())
	log, err := watchRequests(s.Dial())
	if err != nil {
		t.Fatal(err)
	}
	c := s.Dial()
	for range 1000 {
		if _, err := c.Get([]byte("key")); err != nil {
			t.Fatal(err)
		}
	}
	for range 500 { // it may leave some out
		if key, _, err := log.Next(); err != nil || string(key) != "key" {
			t.Fatalf("%q, %v", key, err)
		}
	}
}

// A memcached that logs nothing says so.
func TestAMemcachedThatRefusesToLog(t *testing.T) {
	if log, err := watchRequests(memcachedtest.Start(t, "-W").Dial()); err == nil {
		t.Errorf("%+v", log)
	}
}

// Lines about anything else are skipped.
func TestOnlyLinesOfRequestsHaveAKey(t *testing.T) {
	for line, want := range map[string]string{
		"ts=1795860657.8 gid=5 type=item_get key=key%3A1 status=found clsid=6 cfd=17 size=200": "key:1",
		"ts=1795860657.8 gid=5 type=item_get key=a":                                            "a",
		"skipped=17": "", "": "", "key=%": "", "key=%zz": "", "key=a cfd=x": "", "OK": "",
	} {
		var r watchedRequests
		conn := 0
		if is := r.parse([]byte(line), &conn); is != (want != "") || is && string(r.key) != want {
			t.Errorf("%q is %t, %q", line, is, r.key)
		}
	}
}

// BenchmarkLogOfRequests measures what a log costs a busy memcached, and how many lines it leaves out: -bench LogOfRequests.
func BenchmarkLogOfRequests(b *testing.B) {
	for name, start := range map[string]func(testing.TB, ...string) *memcachedtest.Server{"1.6.18": memcachedtest.Start, "newer": memcachedtest.StartNewer} {
		for _, logs := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s, logs %t", name, logs), func(b *testing.B) {
				s, seen := start(b), atomic.Int64{}
				if logs {
					conn := s.Dial()
					log, err := watchRequests(conn)
					if err != nil {
						b.Fatal(err)
					}
					var done sync.WaitGroup
					done.Go(func() {
						for {
							if _, _, err := log.Next(); err != nil {
								return
							}
							seen.Add(1)
						}
					})
					defer done.Wait()
					defer conn.Close()
				}
				const clients, n = 8, 10
				var working sync.WaitGroup
				for range clients {
					c := s.Dial()
					working.Go(func() {
						for range b.N/clients/n + 1 {
							err := c.Send(bytes.Repeat([]byte("mg key v\r\n"), n))
							for i := 0; i < n && err == nil; i++ {
								_, err = c.Line()
							}
							if err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				working.Wait()
				b.ReportMetric(100*float64(seen.Load())/float64(b.N), "%logged")
			})
		}
	}
}
