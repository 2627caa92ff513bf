package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/test/internal/deployed"
	"example.com/memcached-operator/test/invariants"
)

const (
	clusterName       = "cache"
	operatorNamespace = "memcached-operator-system"
	ringClient        = "libmemcached-ketama-weighted"
	// minSize and maxSize bound the sizes that the cluster is scaled to.
	minSize, maxSize = 2, 4
	// leavingPatience is how long a leaving member waits for its last client at most. The load's clients follow
	// at once.
	leavingPatience = 15 * time.Second
	// routedPatience is long enough for a mover that is killed again and again: a member that leaves
	// with items would be missed.
	routedPatience = 2 * time.Minute
)

// world is the cluster of members, in a namespace of its own.
type world struct {
	options
	kube      client.WithWatch
	namespace string
	recorder  *invariants.Recorder
	trouble   trouble

	mu      sync.Mutex
	history []string
}

// note keeps an event, with the time. All notes are printed if the run fails.
func (w *world) note(format string, args ...any) {
	line := time.Now().UTC().Format("15:04:05.000 ") + fmt.Sprintf(format, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.history = append(w.history, line)
	if w.verbose {
		fmt.Println("chaos:", line)
	}
}

func newWorld(ctx context.Context, o options) (*world, error) {
	kube, _, err := deployed.Connect(ctx, "chaos")
	if err != nil {
		return nil, err
	}
	w := &world{options: o, kube: kube}
	if w.namespace, err = deployed.MakeNamespace(ctx, kube, "chaos-"); err != nil {
		return nil, err
	}
	w.recorder, err = invariants.Record(ctx, w.kube)
	return w, err
}

// create makes the cluster, and waits until all of it is there.
func (w *world) create(ctx context.Context, size int32) error {
	mc := &cachev1alpha1.Memcached{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: clusterName},
		Spec: cachev1alpha1.MemcachedSpec{
			Size:   ptr.To(size),
			Memory: ptr.To(resource.MustParse("96Mi")),
			// In this mode alone, a member that is killed while it leaves loses nothing.
			Storage: &cachev1alpha1.StorageSpec{Size: resource.MustParse("512Mi"), Mode: cachev1alpha1.StorageMapped},
			Routing: cachev1alpha1.RoutingSpec{Client: ringClient, Moves: w.moves, Patience: &metav1.Duration{Duration: leavingPatience}},
			// Drainers are killed again and again; no Job may run out of attempts.
			Drain: cachev1alpha1.DrainSpec{BackoffLimit: ptr.To[int32](50)},
		},
	}
	if w.inPods {
		mc.Spec.Storage = &cachev1alpha1.StorageSpec{Mode: cachev1alpha1.StorageMemory}
	}
	if w.routed {
		mc.Spec.Routing.Patience.Duration = routedPatience
		mc.Spec.Router = &cachev1alpha1.RouterSpec{Replicas: ptr.To[int32](2), Exclusive: true}
	}
	if err := w.kube.Create(ctx, mc); err != nil {
		return fmt.Errorf("%w; is the operator deployed?", err)
	}
	return w.settle(ctx, nil)
}

// remove deletes the namespace, and expects that nothing keeps it.
func (w *world) remove() error {
	ctx, cancel := context.WithTimeout(context.Background(), w.patience)
	defer cancel()
	w.recorder.Stop()
	return deployed.RemoveNamespace(ctx, w.kube, w.namespace)
}

func (w *world) memcached(ctx context.Context) (*cachev1alpha1.Memcached, error) {
	mc := &cachev1alpha1.Memcached{}
	return mc, w.kube.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: clusterName}, mc)
}

// pods returns those of a component: members, drainers, or routers.
func (w *world) pods(ctx context.Context, component string) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := w.kube.List(ctx, &list, client.InNamespace(w.namespace),
		client.MatchingLabels{"app.kubernetes.io/component": component})
	slices.SortFunc(list.Items, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return list.Items, err
}

func (w *world) scale(ctx context.Context, size int32) error {
	mc, err := w.memcached(ctx)
	if err != nil {
		return err
	}
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, size))
	return w.kube.SubResource("scale").Patch(ctx, mc, patch)
}

// settle waits until the cluster is as wanted, and nothing is under way. settle retries failed drains, as a
// person would, and counts them.
func (w *world) settle(ctx context.Context, f *faults) error {
	ctx, cancel := context.WithTimeout(ctx, w.patience)
	defer cancel()
	return deployed.Until(ctx, "the cluster is as wanted", func() error {
		mc, err := w.memcached(ctx)
		if err != nil {
			return err
		}
		s := &mc.Status
		if f != nil {
			f.retryFailed(ctx, s.Drains)
		}
		if s.ObservedGeneration != mc.Generation || s.Size != *mc.Spec.Size || s.ReadySize != *mc.Spec.Size || s.Draining != 0 || s.Moving != 0 ||
			!meta.IsStatusConditionFalse(s.Conditions, cachev1alpha1.ConditionProgressing) {
			return fmt.Errorf("%d members wanted, %d there, %d ready, %d draining, %d moving (%s), phase %s",
				*mc.Spec.Size, s.Size, s.ReadySize, s.Draining, s.Moving, s.Progress, s.Phase)
		}
		return nil
	})
}

// checkInvariants checks all invariants for every change, and for the end at rest.
func (w *world) checkInvariants(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, w.patience)
	defer cancel()
	if err := w.recorder.CaughtUp(ctx, w.namespace); err != nil {
		return err
	}
	broken, steps, err := w.recorder.Check(w.namespace, clusterName)
	if err != nil {
		return err
	}
	last, err := w.recorder.Last(w.namespace, clusterName)
	if err != nil {
		return err
	}
	last.AtRest = true
	for _, violation := range invariants.Check(last, last) {
		broken = append(broken, violation.String()+" (at rest)")
	}
	fmt.Printf("chaos: %d invariants asked of %d changes\n", len(invariants.All), steps)
	if len(broken) > 0 {
		return fmt.Errorf("%d invariants were broken:\n%s", len(broken), strings.Join(broken, "\n"))
	}
	return nil
}

// dump returns the objects that a person would look at.
func (w *world) dump() string {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var b strings.Builder
	w.mu.Lock()
	fmt.Fprintln(&b, strings.Join(w.history, "\n"))
	w.mu.Unlock()
	for _, list := range []client.ObjectList{
		&cachev1alpha1.MemcachedList{}, &corev1.PersistentVolumeClaimList{}, &corev1.PodList{}, &corev1.EventList{},
	} {
		if err := w.kube.List(ctx, list, client.InNamespace(w.namespace)); err != nil {
			fmt.Fprintf(&b, "%T: %v\n", list, err)
			continue
		}
		_ = meta.EachListItem(list, func(o runtime.Object) error {
			if event, ok := o.(*corev1.Event); ok {
				fmt.Fprintf(&b, "event %s %s: %s\n", event.InvolvedObject.Name, event.Reason, event.Message)
				return nil
			}
			o.(metav1.Object).SetManagedFields(nil)
			text, _ := yaml.Marshal(o)
			fmt.Fprintf(&b, "---\n%s", text)
			return nil
		})
	}
	return b.String()
}
