package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/test/internal/deployed"
	"example.com/memcached-operator/test/wait"
)

// inTime returns a context that ends when waits give up, or when the test has ended.
func inTime(t *testing.T) context.Context {
	ctx, cancel := context.WithDeadline(t.Context(), wait.Deadline())
	t.Cleanup(cancel)
	return ctx
}

// cleanupContext is for cleanups, even if the test's time is over.
func cleanupContext() (context.Context, context.CancelFunc) {
	return context.WithDeadline(context.Background(), wait.Deadline().Add(15*time.Second))
}

// fixture is a Memcached in a namespace of its own, where restricted Pod
// Security is enforced.
type fixture struct {
	*testing.T
	ctx       context.Context
	namespace string
	name      string
	// dialer is that of the applications.
	dialer memcache.Dialer
}

// onCluster is for a test that needs no namespace.
func onCluster(t *testing.T) *fixture { return &fixture{T: t, ctx: inTime(t)} }

// setup makes the namespace and the Memcached, and waits until it is available.
func setup(t *testing.T, spec cachev1alpha1.MemcachedSpec) *fixture {
	t.Helper()
	f := inNamespace(t)
	f.create(spec)
	return f
}

// inNamespace makes the namespace.
func inNamespace(t *testing.T) *fixture {
	t.Helper()
	f := onCluster(t)
	f.name = "cache"
	namespace := deployed.Namespace(prefix)
	namespace.Labels["pod-security.kubernetes.io/enforce"] = "restricted"
	f.must(kube.Create(f.ctx, namespace))
	f.namespace = namespace.Name
	t.Cleanup(func() { f.tearDown(namespace) })
	return f
}

// create makes a cluster whose leaving members leave at once, unless the spec has a patience.
func (f *fixture) create(spec cachev1alpha1.MemcachedSpec) {
	f.Helper()
	if spec.Routing.Patience == nil {
		spec.Routing.Patience = &metav1.Duration{}
	}
	f.must(kube.Create(f.ctx, &cachev1alpha1.Memcached{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: f.name}, Spec: spec,
	}))
	f.available()
}

func (f *fixture) available() {
	f.Helper()
	f.eventually("the cluster is available", func() bool {
		mc := f.memcached()
		return mc.Status.ObservedGeneration == mc.Generation &&
			meta.IsStatusConditionTrue(mc.Status.Conditions, cachev1alpha1.ConditionAvailable)
	})
}

// kubectl runs kubectl in the namespace, and returns the output.
func (f *fixture) kubectl(args ...string) string {
	f.Helper()
	out, err := exec.CommandContext(f.ctx, "kubectl", append([]string{"--namespace=" + f.namespace}, args...)...).CombinedOutput()
	if err != nil {
		f.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// tearDown deletes the namespace and expects that nothing holds it.
func (f *fixture) tearDown(namespace *corev1.Namespace) {
	ctx, cancel := cleanupContext()
	defer cancel()
	if f.Failed() {
		f.Log(f.dump())
	}
	if err := kube.Delete(ctx, namespace); err != nil {
		f.Errorf("delete namespace %s: %v", namespace.Name, err)
	}
	for began := time.Now(); ctx.Err() == nil; {
		asked := time.Now()
		if err := kube.Get(ctx, client.ObjectKeyFromObject(namespace), namespace); apierrors.IsNotFound(err) {
			return
		}
		time.Sleep(untilNext(began, asked))
	}
	f.Errorf("namespace %s is still there: %+v", namespace.Name, namespace.Status.Conditions)
}

// persistent is the spec of a cluster with storage.
func persistent(size int32) cachev1alpha1.MemcachedSpec {
	return cachev1alpha1.MemcachedSpec{
		Size:    ptr.To(size),
		Memory:  ptr.To(resource.MustParse("192Mi")),
		Storage: &cachev1alpha1.StorageSpec{Size: resource.MustParse("1Gi")},
		Routing: cachev1alpha1.RoutingSpec{Client: ringClient},
	}
}

// roomForSome changes the spec to less memory, which is enough for some of the objects.
func roomForSome(spec cachev1alpha1.MemcachedSpec) cachev1alpha1.MemcachedSpec {
	spec.Memory = ptr.To(resource.MustParse("64Mi"))
	return spec
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// eventually waits for a condition, and prints the cluster if it never holds.
func (f *fixture) eventually(what string, condition func() bool) {
	f.Helper()
	for began := time.Now(); ; {
		asked := time.Now()
		if condition() {
			f.Logf("%s after %s", what, time.Since(began).Round(100*time.Millisecond))
			return
		}
		if time.Now().After(wait.Deadline()) {
			f.Fatalf("after %s it is still not true that %s", time.Since(began).Round(time.Second), what)
		}
		time.Sleep(untilNext(began, asked))
	}
}

// untilNext returns how long a wait rests between two checks. The rest is longer if the wait has lasted longer,
// and if the API server is busier.
func untilNext(began, asked time.Time) time.Duration {
	return min(max(250*time.Millisecond, min(time.Since(began)/10, time.Second), 10*time.Since(asked)), 10*time.Second)
}

func (f *fixture) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: f.namespace, Name: name}
}

func (f *fixture) memcached() *cachev1alpha1.Memcached {
	f.Helper()
	mc := &cachev1alpha1.Memcached{}
	f.must(kube.Get(f.ctx, f.key(f.name), mc))
	return mc
}

// scale acts as kubectl scale.
func (f *fixture) scale(size int32) {
	f.Helper()
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, size))
	f.must(kube.SubResource("scale").Patch(f.ctx, f.memcached(), patch))
}

func (f *fixture) claim(ordinal int) *corev1.PersistentVolumeClaim {
	f.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	err := kube.Get(f.ctx, f.key(fmt.Sprintf("data-%s-%d", f.name, ordinal)), claim)
	if apierrors.IsNotFound(err) {
		return nil
	}
	f.must(err)
	return claim
}

func (f *fixture) pod(ordinal int) *corev1.Pod {
	f.Helper()
	pod := &corev1.Pod{}
	err := kube.Get(f.ctx, f.key(fmt.Sprintf("%s-%d", f.name, ordinal)), pod)
	if apierrors.IsNotFound(err) {
		return nil
	}
	f.must(err)
	return pod
}

func (f *fixture) pods() []corev1.Pod {
	f.Helper()
	var pods corev1.PodList
	f.must(kube.List(f.ctx, &pods, client.InNamespace(f.namespace)))
	return pods.Items
}

// settled waits until nothing is left to do at this size.
func (f *fixture) settled(size int32) {
	f.Helper()
	f.eventually(fmt.Sprintf("the cluster is as wanted at size %d", size), func() bool {
		mc := f.memcached()
		s := mc.Status
		return s.ObservedGeneration == mc.Generation && s.ReadySize == size && s.Size == size &&
			s.Draining == 0 && s.Moving == 0 && meta.IsStatusConditionFalse(s.Conditions, cachev1alpha1.ConditionProgressing)
	})
}

// address returns that of a member's pod: the nodes are this machine.
func (f *fixture) address(server string) string {
	f.Helper()
	name, _, _ := strings.Cut(server, ".")
	pod := &corev1.Pod{}
	f.must(kube.Get(f.ctx, f.key(name), pod))
	return fmt.Sprintf("%s:%s", pod.Status.PodIP, server[strings.LastIndex(server, ":")+1:])
}

func held(claim *corev1.PersistentVolumeClaim) bool {
	return slices.Contains(claim.Finalizers, cachev1alpha1.ClaimFinalizer)
}

// dump returns the objects that a person would look at.
func (f *fixture) dump() string {
	ctx, cancel := cleanupContext()
	defer cancel()
	var b strings.Builder
	for _, list := range []client.ObjectList{
		&cachev1alpha1.MemcachedList{}, &corev1.PersistentVolumeClaimList{}, &corev1.PodList{}, &corev1.EventList{},
	} {
		if err := kube.List(ctx, list, client.InNamespace(f.namespace)); err != nil {
			fmt.Fprintf(&b, "%T: %v\n", list, err)
			continue
		}
		_ = meta.EachListItem(list, func(o runtimeObject) error {
			o.(metav1.Object).SetManagedFields(nil)
			if event, ok := o.(*corev1.Event); ok {
				fmt.Fprintf(&b, "event %s %s: %s\n", event.InvolvedObject.Name, event.Reason, event.Message)
				return nil
			}
			text, _ := yaml.Marshal(o)
			fmt.Fprintf(&b, "---\n%s", text)
			return nil
		})
	}
	return b.String()
}
