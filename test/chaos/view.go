package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"example.com/memcached-operator/drainer/routing"
	"example.com/memcached-operator/test/internal/deployed"
)

// clientTimeout bounds one request. It is long, so that only a kill cuts a request off.
// Such a request isn't carried out later.
const clientTimeout = 20 * time.Second

// member is a pod as the client dials it. What it acknowledges is on its volume.
type member struct {
	ordinal int
	address string
	volume  string
	client  *memcache.Client
}

// view is what a client knows of the cluster at one time.
type view struct {
	servers []string
	owner   routing.Owner
	// members by the server's place in the list; nil while none has an address.
	members []*member
}

// route returns the member that the client asks for the key, or nil.
func (v *view) route(key string) *member {
	if v == nil || v.owner == nil {
		return nil
	}
	return v.members[v.owner.Owner([]byte(key))]
}

// views follows status.servers and the pods behind them.
type views struct {
	*world
	// routers are asked for all keys, if they are there.
	routers *member
	mu      sync.RWMutex
	now     *view
	pods    map[string]*member // by the pod's UID
}

func (v *views) current() *view {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.now
}

// connectRouters finds the one address of the routers.
func (v *views) connectRouters(ctx context.Context) error {
	var service corev1.Service
	if err := v.kube.Get(ctx, client.ObjectKey{Namespace: v.namespace, Name: clusterName + "-router"}, &service); err != nil {
		return err
	}
	v.routers = &member{ordinal: -1, address: service.Spec.ClusterIP + ":11211"}
	v.routers.client = memcache.New(v.routers.address)
	v.routers.client.Timeout, v.routers.client.MaxIdleConns = clientTimeout, 2*writers
	return deployed.Until(ctx, "the routers answer", v.routers.client.Ping)
}

// asked is whom the load asks for the key, or nil.
func (v *views) asked(key string) *member {
	if v.routers != nil {
		return v.routers
	}
	return v.current().route(key)
}

// follow reads the list again and again, as clients do.
func (v *views) follow(ctx context.Context) {
	for ctx.Err() == nil {
		if next, err := v.read(ctx); err == nil {
			v.mu.Lock()
			v.now = next
			v.mu.Unlock()
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

// member makes, once per pod, the client that talks to it.
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
	// A pod that exists keeps its claim from being replaced. So read the claim, and then
	// check that the pod still exists.
	var claim corev1.PersistentVolumeClaim
	if err := v.kube.Get(ctx, client.ObjectKey{Namespace: v.namespace, Name: fmt.Sprintf("data-%s-%d", clusterName, ordinal)}, &claim); err != nil {
		return nil, err
	}
	var again corev1.Pod
	if err := v.kube.Get(ctx, client.ObjectKeyFromObject(pod), &again); err != nil || again.UID != pod.UID {
		return nil, err
	}
	m := &member{ordinal: ordinal, address: pod.Status.PodIP + ":11211", volume: claim.Spec.VolumeName}
	m.client = memcache.New(m.address)
	m.client.Timeout, m.client.MaxIdleConns = clientTimeout, 2*writers
	v.pods[string(pod.UID)] = m
	return m, nil
}
