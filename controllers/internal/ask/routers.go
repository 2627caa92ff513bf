package ask

import (
	"bytes"
	"context"
	"crypto/hmac"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/drainer/contract"
)

// RingReader asks the router at host:port which table it has acknowledged, and gives it the newest
// table if it has not read that yet.
type RingReader func(ctx context.Context, address string, newest *SignedTable) (contract.RingAcknowledged, error)

// SignedTable is a table as routers are given it.
type SignedTable struct {
	contract.RingTable
	// since is when this process first gave the table to a router.
	since time.Time
	// text is the table without its key, which the cluster's routers know.
	text      []byte
	signature string
}

// Sign returns the table as routers are given it.
func Sign(t *contract.RingTable, signer *contract.RingSigner) *SignedTable {
	public := *t
	public.Key = ""
	text, err := json.Marshal(public)
	if err != nil {
		panic(err) // a table can always be marshalled
	}
	return &SignedTable{RingTable: *t, since: time.Now(), text: text, signature: signer.Sign(text, t.Key)}
}

const (
	// ringTimeout bounds one question to a router.
	ringTimeout = time.Second
	// ringInterval is how often a router that has not acknowledged the table yet is asked. soonInterval
	// applies right after the router was given the table, for soonFor at most.
	ringInterval = 500 * time.Millisecond
	soonInterval = 100 * time.Millisecond
	soonFor      = 5 * time.Second
	// ringTargets bounds how many routers are asked.
	ringTargets = 8192
	// foreignEvery is how often a table that another signer has signed is written again.
	foreignEvery = 10 * time.Second
	// maxRing bounds a router's answer, and maxRingWords the message in it, in bytes.
	maxRing, maxRingWords = 4 << 10, 256
)

// Routers asks routers which table they have acknowledged, until it is the present one. A nil
// Routers asks none.
type Routers struct {
	sampler *sampler[routerTarget, contract.RingAcknowledged]
	changed func(cluster types.NamespacedName)
	signer  *contract.RingSigner

	mu sync.Mutex
	// last has the numbers of the tables that routers have acknowledged.
	last map[types.NamespacedName]map[process]int64
	// tables has the tables that routers are given.
	tables map[types.NamespacedName]*SignedTable
	found  map[types.NamespacedName]found
}

// found is the signer of the first table that routers were asked about, and when another signer was
// last reported.
type found struct {
	signer string
	// told is when a table by another signer was last reported; waits: the next report is
	// scheduled.
	told  time.Time
	waits bool
}

// process is one run of a router's container. After a restart the file may have an older table than
// the run before was given.
type process struct {
	pod      types.UID
	restarts int32
}

func processOf(pod *corev1.Pod) process {
	p := process{pod: pod.UID}
	for i := range pod.Status.ContainerStatuses {
		if c := &pod.Status.ContainerStatuses[i]; c.Name == build.ContainerRouter {
			p.restarts = c.RestartCount
		}
	}
	return p
}

// routerTarget is the router that is asked. Each table has its own target, so that Since tells how
// long the router has been behind.
type routerTarget struct {
	address string
	process process
	table   *SignedTable
}

// Behind is a router that has not acknowledged the present table.
type Behind struct {
	Pod string
	// Since is when the router was first asked about this table.
	Since time.Time
	// Why is the router's own message; empty if it has not answered.
	Why string
}

// NewRouters returns Routers, which ask after Start and call changed for each cluster with a new answer;
// changed must not block.
func NewRouters(read RingReader, changed func(cluster types.NamespacedName)) *Routers {
	return &Routers{
		sampler: newSampler(samplerOptions[routerTarget, contract.RingAcknowledged]{
			Ask: func(ctx context.Context, pod routerTarget) (contract.RingAcknowledged, error) {
				return read(ctx, pod.address, pod.table)
			},
			Changed: changed,
			Timeout: ringTimeout, Interval: ringInterval,
			Soon:         func(a contract.RingAcknowledged) bool { return a.Error == "" && a.Waiting == "" },
			SoonInterval: soonInterval, SoonFor: soonFor,
			Workers: 32, PerCluster: 16, Targets: ringTargets,
			Clock: clock.RealClock{},
		}),
		changed: changed,
		signer:  contract.NewRingSigner(),
		last:    map[types.NamespacedName]map[process]int64{},
		tables:  map[types.NamespacedName]*SignedTable{},
		found:   map[types.NamespacedName]found{},
	}
}

// Start asks until the context ends.
func (r *Routers) Start(ctx context.Context) error { return r.sampler.Start(ctx) }

// Behind returns the routers that have not acknowledged the table, as far as is known. From now on
// these routers are asked, each at its port, and given the table; the others are not.
func (r *Routers) Behind(cluster types.NamespacedName, port func(*corev1.Pod) int32, t *contract.RingTable, pods ...*corev1.Pod) (behind []Behind) {
	r.mu.Lock()
	defer r.mu.Unlock()
	number := t.Number
	if told := r.tables[cluster]; told == nil || told.Number != number || told.Key != t.Key {
		r.tables[cluster] = Sign(t, r.signer)
	}
	if _, is := r.found[cluster]; !is {
		r.found[cluster] = found{signer: t.Signer}
	}
	last, kept := r.last[cluster], map[process]int64{}
	var targets []routerTarget
	names := map[process]string{}
	for _, pod := range pods {
		is := processOf(pod)
		kept[is] = last[is]
		if last[is] != number {
			address := net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(int(port(pod))))
			targets = append(targets, routerTarget{address, is, r.tables[cluster]})
			names[is] = pod.Name
		}
	}
	r.last[cluster] = kept
	samples := r.sampler.Want(cluster, targets...)
	open := targets[:0]
	for _, t := range targets {
		s := samples[t]
		if s.Known && s.Err == "" && s.Value.Acknowledged == number {
			kept[t.process] = number
			continue
		}
		open = append(open, t)
		b := Behind{Pod: names[t.process], Since: s.Since}
		if s.Known && s.Err == "" {
			b.Why = whyBehind(s.Value, number)
		}
		behind = append(behind, b)
	}
	r.sampler.Want(cluster, open...)
	return behind
}

func whyBehind(a contract.RingAcknowledged, number int64) string {
	switch {
	case a.Error != "":
		return a.Error
	case a.Number != number && a.Refused != "":
		return fmt.Sprintf("it has read table %d, not %d yet, and does not take that from the operator: %s", a.Number, number, a.Refused)
	case a.Number != number:
		return fmt.Sprintf("it has read table %d, not %d yet", a.Number, number)
	}
	return fmt.Sprintf("it has acknowledged table %d, not %d yet: %s", a.Acknowledged, number, a.Waiting)
}

// Signer is the public key of this process's signer; empty for none. Routers accept tables that
// they are given from the signer that they know from the table in their file.
func (r *Routers) Signer() string {
	if r == nil {
		return ""
	}
	return r.signer.Public()
}

// SignedByOther tells whether the table has another signer than this process and the signer of the first
// table that the cluster's routers were asked about. Two operators that run at the same time would replace
// each other's tables again and again, so SignedByOther returns true only once in foreignEvery, and changed
// is called when that time is over.
func (r *Routers) SignedByOther(cluster types.NamespacedName, t *contract.RingTable) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := r.found[cluster]
	if t.Signer == r.signer.Public() || t.Signer == found.signer {
		return false
	}
	left := foreignEvery - time.Since(found.told)
	switch {
	case left <= 0:
		found.told, found.waits = time.Now(), false
	case !found.waits:
		found.waits = true
		time.AfterFunc(left, func() { r.changed(cluster) })
	}
	r.found[cluster] = found
	return left <= 0
}

// GivenSince is when the routers of the cluster were first given the table with this number; now if
// they have not been given it.
func (r *Routers) GivenSince(cluster types.NamespacedName, number int64, now time.Time) time.Time {
	if r == nil {
		return now
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if given := r.tables[cluster]; given != nil && given.Number == number && given.since.Before(now) {
		return given.since
	}
	return now
}

// Given is the table that the routers of the cluster with this key are given; nil if none is known.
func (r *Routers) Given(cluster types.NamespacedName, key string) *contract.RingTable {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	given := r.tables[cluster]
	if given == nil || given.Key != key { // the table of an earlier cluster with the same name
		return nil
	}
	t := given.RingTable
	return &t
}

// Forget asks no router of the cluster any more.
func (r *Routers) Forget(cluster types.NamespacedName) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.last, cluster)
	delete(r.tables, cluster)
	delete(r.found, cluster)
	r.sampler.Want(cluster)
}

// RingFromAdmin asks the router itself, and gives it the table. The operator must be able to reach
// the router. A router that does not take the table gets it later in its file, by its kubelet.
func RingFromAdmin(ctx context.Context, address string, newest *SignedTable) (contract.RingAcknowledged, error) {
	a, err := ring(ctx, http.MethodGet, address, newest)
	if err != nil || a.Number >= newest.Number {
		return a, err
	}
	taken, err := ring(ctx, http.MethodPut, address, newest)
	if err != nil {
		var status refused
		if a.Refused = "it gives no answer"; errors.As(err, &status) { // other errors contain port numbers, which change each time
			a.Refused = status.Error()
		}
		return a, nil
	}
	return taken, nil
}

// refused is the HTTP status of an answer that is not OK.
type refused int

func (r refused) Error() string { return fmt.Sprintf("%d %s", int(r), http.StatusText(int(r))) }

// ring sends one question to a router.
func ring(ctx context.Context, method, address string, t *SignedTable) (a contract.RingAcknowledged, err error) {
	var body io.Reader
	if method == http.MethodPut {
		body = bytes.NewReader(t.text)
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://"+address+"/ring", body)
	if err != nil {
		return a, err
	}
	if body != nil {
		request.Header.Set(contract.RingSignature, t.signature)
	}
	response, err := ringClient.Do(request)
	if err != nil {
		return a, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return a, fmt.Errorf("%s /ring of the router: %w", method, refused(response.StatusCode))
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxRing)).Decode(&a); err != nil {
		return contract.RingAcknowledged{}, fmt.Errorf("%s /ring of the router: %w", method, err)
	}
	if a.Acknowledged != 0 && !hmac.Equal([]byte(a.Proof), []byte(contract.ProveAcknowledged(a.Acknowledged, t.Key))) {
		return contract.RingAcknowledged{}, errors.New("the answer is not that of a router of this cluster")
	}
	a.Proof = ""
	a.Waiting, a.Error = fmt.Sprintf("%.*s", maxRingWords, a.Waiting), fmt.Sprintf("%.*s", maxRingWords, a.Error)
	return a, nil
}

// ringClient follows no redirects, and keeps no connections.
var ringClient = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true, MaxResponseHeaderBytes: maxRing},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}
