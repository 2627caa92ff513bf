package ask

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/test/wait"
)

func TestTheTableOfARouterIsRead(t *testing.T) {
	long := strings.Repeat("x", maxRing)
	proof := func(n int64, key string) string { return `"proof":"` + contract.ProveAcknowledged(n, key) + `"` }
	for name, test := range map[string]struct {
		status int
		answer string
		want   contract.RingAcknowledged
		fails  bool
	}{
		"a router's":                         {200, `{"number":7,"acknowledged":6,"waiting":"2 requests",` + proof(6, "uid") + `}`, contract.RingAcknowledged{Number: 7, Acknowledged: 6, Waiting: "2 requests"}, false},
		"none acknowledged":                  {200, `{"number":7,"waiting":"member"}`, contract.RingAcknowledged{Number: 7, Waiting: "member"}, false},
		"an older program's":                 {404, "", contract.RingAcknowledged{}, true},
		"elsewhere":                          {302, `{"number":7}`, contract.RingAcknowledged{}, true},
		"no router's":                        {200, "<html>", contract.RingAcknowledged{}, true},
		"another cluster's":                  {200, `{"number":7,"acknowledged":7,` + proof(7, "other") + `}`, contract.RingAcknowledged{}, true},
		"without a proof":                    {200, `{"number":7,"acknowledged":7}`, contract.RingAcknowledged{}, true},
		"a number's, which clients can read": {200, `{"number":7,"acknowledged":7,"proof":"` + contract.RingNumber(7, "uid") + `"}`, contract.RingAcknowledged{}, true},
		"of another number":                  {200, `{"number":7,"acknowledged":7,` + proof(6, "uid") + `}`, contract.RingAcknowledged{}, true},
		"without end":                        {200, `{"waiting":"` + long, contract.RingAcknowledged{}, true},
		"many words":                         {200, `{"number":7,"error":"` + long[:2*maxRingWords] + `"}`, contract.RingAcknowledged{Number: 7, Error: long[:maxRingWords]}, false},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/ring" || r.Method != http.MethodGet {
					t.Errorf("it was asked for %s %s", r.Method, r.URL)
				}
				w.Header().Set("Location", "/other")
				w.WriteHeader(test.status)
				_, _ = w.Write([]byte(test.answer))
			}))
			defer server.Close()
			got, err := RingFromAdmin(t.Context(), server.Listener.Addr().String(), Sign(&contract.RingTable{Number: 7, Key: "uid"}, contract.NewRingSigner()))
			if got != test.want || (err != nil) != test.fails {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

// A router need not wait until its kubelet updates the file with the table. The table that it is
// given has no key.
func TestARouterThatHasNotReadTheTableIsGivenIt(t *testing.T) {
	table := &contract.RingTable{Number: 7, State: contract.RingStable, New: contract.Ring{Client: "gomemcache", Servers: []string{"a:11211"}}, Key: "uid"}
	signer := contract.NewRingSigner()
	var has atomic.Int64
	has.Store(5)
	var refuses atomic.Bool
	refuses.Store(true)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut && refuses.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		if r.Method == http.MethodPut {
			text, _ := io.ReadAll(r.Body)
			got, err := contract.ParseRingTable(text)
			public := *table
			public.Key = ""
			if diff := cmp.Diff(&public, got); err != nil || diff != "" {
				t.Errorf("it is given (%v), -want +got:\n%s", err, diff)
			}
			if signature := r.Header.Get(contract.RingSignature); !contract.RingSigned(text, "uid", signer.Public(), signature) {
				t.Errorf("signed %q", signature)
			}
			has.Store(got.Number)
		}
		_ = json.NewEncoder(w).Encode(contract.RingAcknowledged{Number: has.Load(), Acknowledged: has.Load(), Proof: contract.ProveAcknowledged(has.Load(), "uid")})
	}))
	defer server.Close()
	got, err := RingFromAdmin(t.Context(), server.Listener.Addr().String(), Sign(table, signer))
	if want := (contract.RingAcknowledged{Number: 5, Acknowledged: 5, Refused: "503 Service Unavailable"}); err != nil || got != want {
		t.Errorf("it does not take the table: %+v, %v", got, err)
	}
	if why, want := whyBehind(got, 7), "it has read table 5, not 7 yet, and does not take that from the operator: 503 Service Unavailable"; why != want {
		t.Errorf("it is behind: %s", why)
	}
	refuses.Store(false)
	got, err = RingFromAdmin(t.Context(), server.Listener.Addr().String(), Sign(table, signer))
	if want := (contract.RingAcknowledged{Number: 7, Acknowledged: 7}); err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
	if table.Key == "" {
		t.Error("the operator's own table has no key any more")
	}
}

// When routers have the table, they are asked no more.
func TestRoutersAreAskedUntilTheyHaveTheTable(t *testing.T) {
	const port = 11212
	var mu sync.Mutex
	answers, asked := map[string]contract.RingAcknowledged{}, map[string]int{}
	news := make(chan struct{}, 1)
	r := NewRouters(func(_ context.Context, address string, newest *SignedTable) (contract.RingAcknowledged, error) {
		mu.Lock()
		defer mu.Unlock()
		asked[address]++
		if newest.Key != "key" || newest.Number != 7 && newest.Number != 8 {
			t.Errorf("the router is given %+v", newest)
		}
		a, is := answers[address]
		if !is {
			return a, errors.New("no route to host")
		}
		return a, nil
	}, func(types.NamespacedName) {
		select {
		case news <- struct{}{}:
		default:
		}
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = r.Start(ctx)
	}()
	stopped := func() {
		stop()
		<-ended
	}
	t.Cleanup(stopped)
	key := types.NamespacedName{Name: "cache"}
	pod := func(name, ip string) *corev1.Pod {
		p := &corev1.Pod{}
		p.Name, p.UID, p.Status.PodIP = name, types.UID(name), ip
		return p
	}
	pods := []*corev1.Pod{pod("a", "10.0.0.1"), pod("b", "10.0.0.2"), pod("gone", "10.0.0.3")}
	at := func(ip string) string { return net.JoinHostPort(ip, strconv.Itoa(port)) }
	set := func(ip string, a contract.RingAcknowledged) {
		mu.Lock()
		defer mu.Unlock()
		answers[at(ip)] = a
	}
	times := func(ip string) int {
		mu.Lock()
		defer mu.Unlock()
		return asked[at(ip)]
	}
	number := int64(7)
	until := func(what string, done func([]Behind) bool) {
		t.Helper()
		for deadline := wait.Over(); ; {
			behind := r.Behind(key, atPort(port), &contract.RingTable{Number: number, Key: "key"}, pods...)
			if done(behind) {
				return
			}
			select {
			case <-news:
			case <-time.After(50 * time.Millisecond):
			case <-deadline:
				t.Fatalf("%s: behind are %+v", what, behind)
			}
		}
	}
	set("10.0.0.1", contract.RingAcknowledged{Number: 7, Acknowledged: 7})
	set("10.0.0.2", contract.RingAcknowledged{Number: 5, Acknowledged: 5})
	silent := func(b Behind) bool { return b.Pod == "gone" && b.Why == "" }
	until("one has the table, one can't be asked", func(b []Behind) bool {
		return times("10.0.0.1") > 0 && times("10.0.0.3") > 0 && len(b) == 2 && b[0].Pod == "b" && b[0].Why == "it has read table 5, not 7 yet" && !b[0].Since.IsZero() && silent(b[1])
	})
	set("10.0.0.2", contract.RingAcknowledged{Number: 7, Acknowledged: 5, Waiting: "3 requests"})
	until("one waits", func(b []Behind) bool {
		return len(b) == 2 && b[0].Why == "it has acknowledged table 5, not 7 yet: 3 requests"
	})
	set("10.0.0.2", contract.RingAcknowledged{Number: 7, Acknowledged: 7})
	until("both have it, one can't be asked", func(b []Behind) bool { return len(b) == 1 && silent(b[0]) })
	first, second := times("10.0.0.1"), times("10.0.0.3")
	until("the one that can't be asked is asked again", func([]Behind) bool { return times("10.0.0.3") > second })
	if n := times("10.0.0.1"); n != first {
		t.Errorf("a router that has the table is asked again, %d times", n-first)
	}
	pods[0].Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "router", RestartCount: 1}}
	set("10.0.0.1", contract.RingAcknowledged{Number: 5, Acknowledged: 5})
	until("one has started again, with an older table", func(b []Behind) bool {
		return len(b) == 2 && b[0].Pod == "a" && b[0].Why == "it has read table 5, not 7 yet"
	})
	set("10.0.0.1", contract.RingAcknowledged{Number: 7, Acknowledged: 7})
	until("it has the table again", func(b []Behind) bool { return len(b) == 1 && silent(b[0]) })
	number = 8
	if b := r.Behind(key, atPort(port), &contract.RingTable{Number: number, Key: "key"}, pods...); len(b) != 3 || b[0].Why+b[1].Why+b[2].Why != "" {
		t.Errorf("no router has answered about the next table, and behind are %+v", b)
	}
	until("they say that they are behind the next table", func(b []Behind) bool { return len(b) == 3 && b[0].Why != "" && b[1].Why != "" && silent(b[2]) })
	if given := r.Given(key, "key"); given == nil || given.Number != 8 {
		t.Errorf("they are given %+v", given)
	}
	if given := r.Given(key, "other"); given != nil {
		t.Errorf("another cluster's routers are given %+v", given)
	}
	stopped() // the routers of this cluster would be asked with its key
	r.Behind(key, atPort(port), &contract.RingTable{Number: number, Key: "other"}, pods...)
	if given := r.Given(key, "other"); given == nil || r.Given(key, "key") != nil {
		t.Errorf("a cluster with the same name is given %+v", given)
	}
	r.Forget(key)
	if given := r.Given(key, "key"); given != nil {
		t.Errorf("it is forgotten, and they are given %+v", given)
	}
	(*Routers)(nil).Forget(key)
}

// A table of another signer is told from those of this operator and of the one before, but not at
// every reconcile, because two operators would overwrite each other's tables without end.
func TestATableOfAStranger(t *testing.T) {
	changed := make(chan types.NamespacedName, 1)
	r := NewRouters(func(context.Context, string, *SignedTable) (contract.RingAcknowledged, error) {
		return contract.RingAcknowledged{}, nil
	}, func(cluster types.NamespacedName) { changed <- cluster })
	key := types.NamespacedName{Name: "cache"}
	table := func(signer string) *contract.RingTable {
		t := &contract.RingTable{Number: 7, Signer: signer}
		r.Behind(key, atPort(11212), t)
		return t
	}
	for _, test := range []struct {
		signer  string
		byOther bool
	}{{"the one before", false}, {r.Signer(), false}, {"stranger", true}, {"stranger", false}, {r.Signer(), false}, {"the one before", false}} {
		if got := r.SignedByOther(key, table(test.signer)); got != test.byOther {
			t.Errorf("%s: by another signer: %t", test.signer, got)
		}
	}
	r.found[key] = found{signer: "the one before", told: time.Now().Add(-foreignEvery), waits: true}
	if !r.SignedByOther(key, table("")) {
		t.Error("a table without a signer counts as signed by us")
	}
	r.found[key] = found{signer: "the one before", told: time.Now().Add(time.Second - foreignEvery)}
	if r.SignedByOther(key, table("stranger")) {
		t.Error("it is told again too early")
	}
	<-changed
	r.Forget(key)
	if r.SignedByOther(key, table("stranger")) {
		t.Error("the first table that is found is strange")
	}
}

// atPort is the port of every pod.
func atPort(port int32) func(*corev1.Pod) int32 { return func(*corev1.Pod) int32 { return port } }
