package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers"
	"example.com/memcached-operator/test/internal/app"
	"example.com/memcached-operator/test/internal/deployed"
	"example.com/memcached-operator/test/internal/harness"
)

const clusterName = "cache"

// moment is a step of a scale-down.
type moment int

const (
	scaled moment = iota
	podGone
	// volumeBound is when the volume of a StatefulSet's member is bound to the claim that it is drained from.
	volumeBound
	jobCreated
	drainerCreated
	// drainerEnded is when the drainer's pod says so. The Job's condition may come too late to be seen.
	drainerEnded
	jobComplete
	claimGone
	moments
)

// scaleDown is a measured scale-down.
type scaleDown struct {
	// at is when the event of each moment arrived.
	at [moments]time.Time
	written
	// planned is the duration in kubectl mc plan before the scale-down, took the one in the receipt after it;
	// 0 if that is not known.
	planned, took time.Duration
}

// written counts the operator's writes.
type written struct{ all, events int }

// bench has the namespace of the scaled object.
type bench struct {
	kube      client.WithWatch
	namespace string
	// items is how many the cluster holds.
	items int
}

// leaving is a member that leaves, and how its drain is recognized.
type leaving struct {
	pod string
	// drained tells whether the volume is drained from this claim, drains whether a Job or a pod drains it.
	drained, drains func(client.Object) bool
}

func newBench(ctx context.Context) (*bench, error) {
	kube, _, err := deployed.Connect(ctx, "bench-latency")
	if err != nil {
		return nil, err
	}
	namespace, err := deployed.MakeNamespace(ctx, kube, "latency-")
	return &bench{kube: kube, namespace: namespace}, err
}

func (b *bench) remove() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return deployed.RemoveNamespace(ctx, b.kube, b.namespace)
}

func (b *bench) create(ctx context.Context, size int) error {
	mc := &cachev1alpha1.Memcached{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: clusterName},
		Spec: cachev1alpha1.MemcachedSpec{
			Size:    ptr.To(int32(size)),
			Memory:  ptr.To(resource.MustParse("64Mi")),
			Storage: &cachev1alpha1.StorageSpec{Size: resource.MustParse("128Mi")},
			// Without patience there is no live move before the drain.
			Routing: cachev1alpha1.RoutingSpec{Client: "libmemcached-ketama-weighted", Patience: &metav1.Duration{}},
		},
	}
	if err := b.kube.Create(ctx, mc); err != nil {
		return fmt.Errorf("%w; is the operator deployed?", err)
	}
	return b.settle(ctx)
}

func (b *bench) memcached(ctx context.Context) (*cachev1alpha1.Memcached, error) {
	mc := &cachev1alpha1.Memcached{}
	return mc, b.kube.Get(ctx, client.ObjectKey{Namespace: b.namespace, Name: clusterName}, mc)
}

// settle waits until the cluster is as wanted.
func (b *bench) settle(ctx context.Context) error {
	return deployed.Until(ctx, "the cluster is as wanted", func() error {
		mc, err := b.memcached(ctx)
		if err != nil {
			return err
		}
		s := &mc.Status
		if s.ObservedGeneration == mc.Generation && s.ReadySize == *mc.Spec.Size && s.Size == *mc.Spec.Size && s.Draining == 0 &&
			meta.IsStatusConditionFalse(s.Conditions, cachev1alpha1.ConditionProgressing) {
			return nil
		}
		return fmt.Errorf("the cluster is not as wanted: %s, %d of %d members ready", s.Phase, s.ReadySize, *mc.Spec.Size)
	})
}

// fill stores items on their owners.
func (b *bench) fill(ctx context.Context, items int) error {
	mc, err := b.memcached(ctx)
	if err != nil {
		return err
	}
	addresses := map[string]string{}
	for _, server := range mc.Status.Servers {
		name, _, _ := strings.Cut(server, ".")
		var pod corev1.Pod
		if err := b.kube.Get(ctx, client.ObjectKey{Namespace: b.namespace, Name: name}, &pod); err != nil {
			return err
		}
		addresses[server] = pod.Status.PodIP + ":11211"
	}
	b.items = items
	a, err := app.New(mc.Spec.Routing.RingClient(), mc.Status.Servers, func(server string) string { return addresses[server] })
	if err != nil {
		return err
	}
	objects := make([]app.Object, items)
	for i := range objects {
		objects[i] = app.Object{Key: fmt.Sprintf("key-%d", i), Value: make([]byte, 100)}
	}
	return a.Fill(ctx, objects)
}

// leaves is the member of the cluster that leaves at this size.
func (b *bench) leaves(ctx context.Context, size int) (l leaving, err error) {
	claim := corev1.PersistentVolumeClaim{}
	if err := b.kube.Get(ctx, client.ObjectKey{Namespace: b.namespace, Name: fmt.Sprintf("data-%s-%d", clusterName, size)}, &claim); err != nil {
		return l, err
	}
	return leaving{
		pod:     fmt.Sprintf("%s-%d", clusterName, size),
		drained: func(o client.Object) bool { return o.GetUID() == claim.UID },
		drains: func(o client.Object) bool {
			return o.GetAnnotations()[cachev1alpha1.AnnotationClaimUID] == string(claim.UID)
		},
	}, nil
}

// scaleCluster scales the cluster down, and notes when each event arrives.
func (b *bench) scaleCluster(ctx context.Context, size int) (scaleDown, error) {
	l, err := b.leaves(ctx, size)
	if err != nil {
		return scaleDown{}, err
	}
	mc, err := b.memcached(ctx)
	if err != nil {
		return scaleDown{}, err
	}
	planned, err := b.planned(ctx, mc, size)
	if err != nil {
		return scaleDown{}, err
	}
	one, err := b.measure(ctx, mc, size, l, b.settle)
	if err != nil {
		return one, err
	}
	one.planned = planned
	if mc, err = b.memcached(ctx); err != nil {
		return one, err
	}
	for _, r := range mc.Status.LastDrains {
		if r.Duration != nil && r.Claim == fmt.Sprintf("data-%s-%d", clusterName, size) {
			one.took = r.Duration.Duration
		}
	}
	return one, nil
}

// planned is how long kubectl mc plan would say that it takes. Members hold about equal parts.
func (b *bench) planned(ctx context.Context, mc *cachev1alpha1.Memcached, size int) (time.Duration, error) {
	holds := map[string]controllers.Holds{}
	for i := range size + 1 {
		holds[fmt.Sprintf("%s-%d", clusterName, i)] = controllers.Holds{Items: int64(b.items / (size + 1))}
	}
	after := mc.DeepCopy()
	after.Spec.Size = ptr.To(int32(size))
	f, err := controllers.Preview(ctx, b.kube, mc, after, holds, nil)
	if err != nil || f.Takes == nil {
		return 0, err
	}
	return f.Takes.Duration, nil
}

// measure scales the object down to size and notes when each event arrives.
func (b *bench) measure(ctx context.Context, of client.Object, size int, l leaving, settle func(context.Context) error) (scaleDown, error) {
	var one scaleDown
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	events := make(chan watch.Event, 1000)
	for _, list := range []client.ObjectList{&corev1.PodList{}, &batchv1.JobList{}, &corev1.PersistentVolumeClaimList{}} {
		if err := b.watch(ctx, list, events); err != nil {
			return one, err
		}
	}
	one.at[scaled] = time.Now()
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, size))
	if err := b.kube.SubResource("scale").Patch(ctx, of, patch); err != nil {
		return one, err
	}
	for one.at[claimGone].IsZero() {
		select {
		case event := <-events:
			if m := momentOf(event, &l); m != scaled && one.at[m].IsZero() {
				one.at[m] = time.Now()
			}
		case <-ctx.Done():
			return one, fmt.Errorf("some moments did not come in time: %v", one.at)
		}
	}
	return one, settle(ctx)
}

// watch sends the changes from now on to events.
func (b *bench) watch(ctx context.Context, list client.ObjectList, events chan<- watch.Event) error {
	if err := b.kube.List(ctx, list, client.InNamespace(b.namespace)); err != nil {
		return err
	}
	watcher, err := b.kube.Watch(ctx, list, client.InNamespace(b.namespace),
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}})
	if err != nil {
		return err
	}
	go func() {
		defer watcher.Stop()
		for event := range watcher.ResultChan() {
			select {
			case events <- event:
			case <-ctx.Done():
				return
			}
		}
	}()
	return nil
}

// momentOf tells which moment of the leaving member and its drain an event is; scaled for none.
func momentOf(event watch.Event, l *leaving) moment {
	drains := l.drains(event.Object.(client.Object))
	switch o := event.Object.(type) {
	case *corev1.Pod:
		switch {
		case o.Name == l.pod && event.Type == watch.Deleted:
			return podGone
		case !drains || event.Type == watch.Deleted:
		case event.Type == watch.Added:
			return drainerCreated
		case len(o.Status.ContainerStatuses) == 1 && o.Status.ContainerStatuses[0].State.Terminated != nil:
			return drainerEnded
		}
	case *batchv1.Job:
		switch {
		case !drains || event.Type == watch.Deleted:
			return scaled
		case event.Type == watch.Added:
			return jobCreated
		}
		for _, c := range o.Status.Conditions {
			if c.Type == batchv1.JobComplete && c.Status == corev1.ConditionTrue {
				return jobComplete
			}
		}
	case *corev1.PersistentVolumeClaim:
		switch {
		case !l.drained(o):
		case event.Type == watch.Deleted:
			return claimGone
		case o.Status.Phase == corev1.ClaimBound:
			return volumeBound
		}
	}
	return scaled
}

// writes counts the operator's writes in the namespace since the log was last read.
func (b *bench) writes(log *harness.AuditLog) (n written, err error) {
	err = log.Read(func(event *harness.AuditEvent) {
		if event.ObjectRef.Namespace != b.namespace {
			return
		}
		n.all++
		if event.ObjectRef.Resource == "events" {
			n.events++
		}
	})
	return n, err
}
