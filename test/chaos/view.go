package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/routing"
	"example.com/memcached-operator/test/internal/deployed"
)

// clientTimeout bounds one request. clientTimeout is long, so that only a kill cuts a request off. Such a
// request isn't carried out later.
const clientTimeout = 10 * time.Minute

// dial gives up after a while: a pod that is gone refuses nothing.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	return (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, network, address)
}

// member is a pod as the client dials it. Each value that it acknowledges is on its volume.
type member struct {
	ordinal int
	address string
	volume  string
	client  *memcache.Client
}

// view is a client's knowledge of the cluster.
type view struct {
	servers []string
	owner   routing.Owner
	// members are in the order of the list. One without an address is nil.
	members []*member
}

// route returns the member that the client asks for the key, or nil.
func (v *view) route(key string) *member {
	if v == nil || v.owner == nil {
		return nil
	}
	return v.members[v.owner.Owner([]byte(key))]
}

// views follows status.servers, and the pods of these servers.
type views struct {
	*world
	// routers are asked for all keys; nil if the load asks members.
	routers *member
	turn    atomic.Int64
	mu      sync.RWMutex
	ready   []string // addresses of routers
	now     *view
	pods    map[string]*member // by the pod's UID
}

func (v *views) current() *view {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.now
}

// connectRouters makes the client that asks routers. Its connections go to the routers in turn, so that
// requests for one key go through several routers. The Service would prefer a near one.
func (v *views) connectRouters(ctx context.Context) error {
	v.routers = &member{ordinal: -1, address: clusterName + "-router"}
	v.routers.client = memcache.NewFromSelector(anyRouter{})
	v.routers.client.DialContext = v.dialRouter
	v.routers.client.Timeout, v.routers.client.MaxIdleConns = clientTimeout, 2*writers
	ctx, cancel := context.WithTimeout(ctx, v.patience)
	defer cancel()
	return deployed.Until(ctx, "the routers answer", func() error {
		return errors.Join(v.readRouters(ctx), v.routers.client.Ping())
	})
}

// anyRouter is a selector with one server, whose address dialRouter finds.
type anyRouter struct{}

var routersAddress = &net.TCPAddr{}

func (anyRouter) PickServer(string) (net.Addr, error) { return routersAddress, nil }

func (anyRouter) Each(f func(net.Addr) error) error { return f(routersAddress) }

func (v *views) dialRouter(ctx context.Context, _, _ string) (net.Conn, error) {
	v.mu.RLock()
	addresses := v.ready
	v.mu.RUnlock()
	return deployed.DialNext(ctx, addresses, int(v.turn.Add(1)))
}

// readRouters finds the routers that are ready.
func (v *views) readRouters(ctx context.Context) error {
	pods, err := v.world.pods(ctx, "router")
	if err != nil {
		return err
	}
	var ready []string
	for i := range pods {
		isReady := slices.ContainsFunc(pods[i].Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
		if isReady && pods[i].DeletionTimestamp == nil {
			ready = append(ready, pods[i].Status.PodIP+":11211")
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.ready = ready
	return nil
}

// followTables tells trouble of each table of the routers.
func (v *views) followTables(ctx context.Context) {
	for ctx.Err() == nil {
		events, err := v.kube.Watch(ctx, &corev1.ConfigMapList{}, client.InNamespace(v.namespace),
			client.MatchingFields{"metadata.name": clusterName + "-router"})
		if err == nil {
			for event := range events.ResultChan() {
				v.told(event.Object)
			}
			events.Stop()
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (v *views) told(object runtime.Object) {
	config, is := object.(*corev1.ConfigMap)
	if !is {
		return
	}
	table, err := contract.ParseRingTable([]byte(config.Data["table.json"]))
	if err != nil {
		v.note("the table of the routers: %v", err)
		return
	}
	written := time.Now()
	for _, m := range config.ManagedFields {
		if m.Manager == cachev1alpha1.ManagedBy && m.Time != nil && m.Time.Time.Before(written) {
			written = m.Time.Time // this process may see the table late
		}
	}
	v.trouble.told(table, written)
	v.note("routers are told of table %d: %s, %d members", table.Number, table.State, len(table.New.Servers))
}

// asked returns the member that the load asks for the key, or nil.
func (v *views) asked(key string) *member {
	if v.routers != nil {
		return v.routers
	}
	return v.current().route(key)
}

// follow reads the list and the pods again and again, as clients do.
func (v *views) follow(ctx context.Context) {
	for ctx.Err() == nil {
		if next, err := v.read(ctx); err == nil {
			v.mu.Lock()
			v.now = next
			v.mu.Unlock()
		}
		if v.routed {
			_ = v.readRouters(ctx)
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (v *views) read(ctx context.Context) (*view, error) {
	mc, err := v.memcached(ctx)
	if err != nil {
		return nil, err
	}
	pods, err := v.world.pods(ctx, "member")
	if err != nil {
		return nil, err
	}
	next := &view{servers: mc.Status.Servers, members: make([]*member, len(mc.Status.Servers))}
	if len(next.servers) == 0 {
		return next, nil
	}
	if next.owner, err = ring(next.servers); err != nil {
		return nil, err
	}
	for i := range pods {
		m, err := v.member(ctx, &pods[i])
		if err != nil {
			return nil, err
		}
		if m != nil && m.ordinal < len(next.members) {
			next.members[m.ordinal] = m
		}
	}
	return next, nil
}

func ring(servers []string) (routing.Owner, error) {
	list := make([]routing.Server, len(servers))
	for i, s := range servers {
		var err error
		if list[i], err = routing.ParseServer(s); err != nil {
			return nil, err
		}
	}
	return routing.New(ringClient, list)
}

// member returns the pod's client, which it makes once for each pod.
func (v *views) member(ctx context.Context, pod *corev1.Pod) (*member, error) {
	if pod.Status.PodIP == "" {
		return nil, nil
	}
	if m := v.pods[string(pod.UID)]; m != nil {
		return m, nil
	}
	ordinal, err := strconv.Atoi(pod.Name[strings.LastIndex(pod.Name, "-")+1:])
	if err != nil {
		return nil, err
	}
	volume := pod.Name
	if !v.inPods {
		if volume, err = v.volumeOf(ctx, pod, ordinal); volume == "" {
			return nil, err
		}
	}
	m := &member{ordinal: ordinal, address: pod.Status.PodIP + ":11211", volume: volume}
	m.client = memcache.New(m.address)
	m.client.DialContext, m.client.Timeout, m.client.MaxIdleConns = dial, clientTimeout, 2*writers
	v.pods[string(pod.UID)] = m
	return m, nil
}

// volumeOf returns the member's volume; empty if its pod is gone by now.
func (v *views) volumeOf(ctx context.Context, pod *corev1.Pod, ordinal int) (string, error) {
	// A claim isn't replaced while its pod exists. So read the claim, and then check that the pod still exists.
	var claim corev1.PersistentVolumeClaim
	if err := v.kube.Get(ctx, client.ObjectKey{Namespace: v.namespace, Name: fmt.Sprintf("data-%s-%d", clusterName, ordinal)}, &claim); err != nil {
		return "", err
	}
	var again corev1.Pod
	if err := v.kube.Get(ctx, client.ObjectKeyFromObject(pod), &again); err != nil || again.UID != pod.UID {
		return "", err
	}
	return claim.Spec.VolumeName, nil
}
