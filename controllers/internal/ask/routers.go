package ask

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"example.com/memcached-operator/controllers/internal/sampler"
	"example.com/memcached-operator/drainer/contract"
)

// RingReader asks the router at host:port which table it has acknowledged, and tells it the newest
// table's number, signed (contract.RingNumber).
type RingReader func(ctx context.Context, address, newest string) (contract.RingAcknowledged, error)

const (
	// ringTimeout bounds the question to a router.
	ringTimeout = time.Second
	// ringInterval is how often a router is asked that has not acknowledged the table yet.
	ringInterval = 500 * time.Millisecond
	// ringTargets bounds how many routers are asked.
	ringTargets = 8192
	// maxRing bounds a router's answer, and maxRingWords the words in it, in bytes.
	maxRing, maxRingWords = 4 << 10, 256
)

// Routers are asked which table they have acknowledged: until it is the present one, and then
// no more. A nil Routers asks nobody.
type Routers struct {
	sampler *sampler.Sampler[routerTarget, contract.RingAcknowledged]

	mu sync.Mutex
	// last are the numbers that routers have acknowledged, by the pods' UIDs.
	last map[types.NamespacedName]map[types.UID]int64
}

// routerTarget is the router that is asked. A number of its own for each table lets Since tell
// how long it has been behind.
type routerTarget struct {
	address string
	uid     types.UID
	number  int64
	newest  string
}

// Behind is a router that has not acknowledged the table.
type Behind struct {
	Pod string
	// Since when it has been asked.
	Since time.Time
	// Why, in its own words; empty if it has not answered.
	Why string
}

// NewRouters asks routers once it is started. It calls changed for each cluster of which there
// is news; changed must not block.
func NewRouters(read RingReader, changed func(cluster types.NamespacedName)) *Routers {
	return &Routers{
		sampler: sampler.New(sampler.Options[routerTarget, contract.RingAcknowledged]{
			Ask: func(ctx context.Context, pod routerTarget) (contract.RingAcknowledged, error) {
				return read(ctx, pod.address, pod.newest)
			},
			Changed: changed,
			Timeout: ringTimeout, Interval: ringInterval,
			Workers: 32, PerCluster: 16, Targets: ringTargets,
			Clock: clock.RealClock{},
		}),
		last: map[types.NamespacedName]map[types.UID]int64{},
	}
}

// Start asks until the context ends.
func (r *Routers) Start(ctx context.Context) error { return r.sampler.Start(ctx) }

// Behind returns the routers that have not acknowledged the table of that number, as far as
// is known. key signs the number. They are asked from now on, at that port; the others are not.
func (r *Routers) Behind(cluster types.NamespacedName, port int32, number int64, key string, pods ...*corev1.Pod) (behind []Behind) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, kept := r.last[cluster], map[types.UID]int64{}
	var targets []routerTarget
	names, newest := map[types.UID]string{}, contract.RingNumber(number, key)
	for _, pod := range pods {
		kept[pod.UID] = last[pod.UID]
		if last[pod.UID] != number {
			address := net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(int(port)))
			targets = append(targets, routerTarget{address, pod.UID, number, newest})
			names[pod.UID] = pod.Name
		}
	}
	r.last[cluster] = kept
	samples := r.sampler.Want(cluster, targets...)
	open := targets[:0]
	for _, t := range targets {
		s := samples[t]
		if s.Known && s.Err == "" && s.Value.Acknowledged == number {
			kept[t.uid] = number
			continue
		}
		open = append(open, t)
		b := Behind{Pod: names[t.uid], Since: s.Since}
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
	case a.Number != number:
		return fmt.Sprintf("it has read table %d, not %d yet", a.Number, number)
	}
	return fmt.Sprintf("it has acknowledged table %d, not %d yet: %s", a.Acknowledged, number, a.Waiting)
}

// Forget asks no router of the cluster any more.
func (r *Routers) Forget(cluster types.NamespacedName) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.last, cluster)
	r.sampler.Want(cluster)
}

// RingFromAdmin asks the router itself. The operator must be able to reach it.
func RingFromAdmin(ctx context.Context, address, newest string) (a contract.RingAcknowledged, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/ring?"+url.Values{contract.RingNewest: {newest}}.Encode(), nil)
	if err != nil {
		return a, err
	}
	response, err := ringClient.Do(request)
	if err != nil {
		return a, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return a, fmt.Errorf("GET /ring of the router: %s", response.Status)
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxRing)).Decode(&a); err != nil {
		return contract.RingAcknowledged{}, fmt.Errorf("GET /ring of the router: %w", err)
	}
	a.Waiting, a.Error = fmt.Sprintf("%.*s", maxRingWords, a.Waiting), fmt.Sprintf("%.*s", maxRingWords, a.Error)
	return a, nil
}

// ringClient follows nobody elsewhere, and keeps no connections.
var ringClient = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true, MaxResponseHeaderBytes: maxRing},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}
