package observe

import (
	"bytes"
	"context"
	"fmt"
	"runtime/pprof"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"example.com/memcached-operator/test/wait"
)

var queue = types.NamespacedName{Namespace: "shop", Name: "queue"}

func aSet(labels map[string]string) *appsv1.StatefulSet {
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "queue", UID: "set"},
		Spec:       appsv1.StatefulSetSpec{Replicas: ptr.To[int32](2), Selector: &metav1.LabelSelector{MatchLabels: labels}},
	}
}

func aPod(name string, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name), Labels: labels}}
}

// started returns watches of a fake API server, and what they report.
func started(t *testing.T, clients *fake.Clientset) (*Watches, chan types.NamespacedName) {
	t.Helper()
	changed := make(chan types.NamespacedName, 1000)
	w := NewWatches(clients, func(owner types.NamespacedName) { changed <- owner })
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { _ = w.Start(ctx); close(ended) }()
	t.Cleanup(func() { stop(); <-ended })
	for {
		w.mu.Lock()
		running := w.running != nil
		w.mu.Unlock()
		if running {
			return w, changed
		}
	}
}

// until waits until the watches have seen the wanted state. Each change is reported.
func until(t *testing.T, w *Watches, changed chan types.NamespacedName, uid types.UID, what string, wanted func(Seen) bool) {
	t.Helper()
	for {
		if seen := w.See(queue, uid, "queue"); seen.Known && wanted(seen) {
			return
		}
		select {
		case owner := <-changed:
			if owner != queue {
				t.Fatalf("%v has changed", owner)
			}
		case <-t.Context().Done():
			t.Fatal(what)
		}
	}
}

// ownGoroutines counts the goroutines of watches that this test has begun: they have the test's label.
func ownGoroutines(t *testing.T) (n int) {
	t.Helper()
	var b bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&b, 1); err != nil {
		t.Fatal(err)
	}
	// Goroutines with one stack and the same labels are one paragraph, which begins with their number.
	for stack := range strings.SplitSeq(b.String(), "\n\n") {
		if strings.Contains(stack, t.Name()) && strings.Contains(stack, "k8s.io/client-go/tools/cache.(*") {
			at := strings.Index(stack, " @ ")
			same, err := strconv.Atoi(stack[strings.LastIndex(stack[:max(0, at)], "\n")+1 : max(0, at)])
			if err != nil {
				t.Fatalf("%v:\n%s", err, stack)
			}
			n += same
		}
	}
	return n
}

func TestTheWatchesSeeTheStatefulSetAndThePodsOfItsSelector(t *testing.T) {
	clients := fake.NewClientset(aPod("queue-0", map[string]string{"app": "queue"}), aPod("other-0", map[string]string{"app": "other"}))
	w, changed := started(t, clients)
	until(t, w, changed, "1", "there is no StatefulSet", func(s Seen) bool { return s.Set == nil && len(s.Pods) == 0 })
	sets := clients.AppsV1().StatefulSets("shop")
	if _, err := sets.Create(t.Context(), aSet(map[string]string{"app": "queue"}), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, w, changed, "1", "its pods are seen", func(s Seen) bool { return s.Set != nil && len(s.Pods) == 1 && s.Pods[0].Name == "queue-0" })
	if _, err := clients.CoreV1().Pods("shop").Create(t.Context(), aPod("queue-1", map[string]string{"app": "queue"}), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, w, changed, "1", "another pod is seen", func(s Seen) bool { return len(s.Pods) == 2 })
	// The StatefulSet is made again, with another selector.
	if err := sets.Delete(t.Context(), "queue", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, w, changed, "1", "it is gone", func(s Seen) bool { return s.Set == nil && s.Pods == nil })
	if _, err := sets.Create(t.Context(), aSet(map[string]string{"app": "other"}), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, w, changed, "1", "the other selector's pods are seen", func(s Seen) bool { return len(s.Pods) == 1 && s.Pods[0].Name == "other-0" })
	// So is the StatefulSetDrain.
	until(t, w, changed, "2", "another StatefulSetDrain of the name has watches", func(s Seen) bool { return len(s.Pods) == 1 })
}

func TestNoWatchOutlivesItsStatefulSetDrain(t *testing.T) {
	clients := fake.NewClientset(aSet(map[string]string{"app": "queue"}))
	defer pprof.SetGoroutineLabels(t.Context())
	pprof.SetGoroutineLabels(pprof.WithLabels(t.Context(), pprof.Labels("test", t.Name())))
	w, changed := started(t, clients)
	const many = 20
	for i := range many {
		owner := types.NamespacedName{Namespace: "shop", Name: fmt.Sprint("q", i)}
		for !w.See(owner, "1", "queue").Known {
			<-changed
		}
	}
	if n := ownGoroutines(t); n < 2*many {
		t.Fatalf("%d goroutines watch %d StatefulSets and their pods: the count is wrong", n, many)
	}
	for i := range many {
		w.Forget(types.NamespacedName{Namespace: "shop", Name: fmt.Sprint("q", i)})
	}
	w.Forget(queue) // never seen
	w.open.Wait()
	wait.For(t, "no goroutine to be left", func() error {
		if n := ownGoroutines(t); n != 0 {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
}

// Kubernetes writes objects again and again, and a reconcile costs something.
func TestOnlyAChangeOfWhatIsKeptIsReported(t *testing.T) {
	a, b := aPod("queue-0", nil), aPod("queue-0", nil)
	a.ResourceVersion, b.ResourceVersion = "1", "2"
	if !same(a, b) || a.ResourceVersion != "1" {
		t.Error("another version of the same is a change")
	}
	b.Status.Phase = corev1.PodRunning
	if same(a, b) {
		t.Error("another phase is no change")
	}
	again := aPod("queue-0", nil)
	if again.UID = "again"; same(a, again) {
		t.Error("another pod of the name is no change")
	}
}
