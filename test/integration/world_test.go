package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers"
	"example.com/memcached-operator/test/argocd"
	"example.com/memcached-operator/test/internal/operator"
	"example.com/memcached-operator/test/wait"
)

// world is a namespace with an operator that watches only it.
type world struct {
	*testing.T
	namespace string
	// images are the operator's. rollouts is how many clusters an upgrade rolls out at once.
	images   operator.Images
	rollouts int
	// others are further namespaces that the operator watches.
	others []string
	// everywhere is set if the operator watches all namespaces.
	everywhere bool
	// user is the operator's: operatorUser, or one that has its rights in this namespace alone.
	user     string
	journal  *operator.Journal
	progress controllers.ProgressReader
	rings    controllers.RingReader // nil: each router acknowledges what it was told
	memory   controllers.MemoryReader
	// certificates asks members and routers for their certificates; nil asks none.
	certificates controllers.CertificateReader
	log          *logBuffer
	// clock is the operator's; nil for the machine's.
	clock clock.PassiveClock
	// byHand is set if a person acts in this namespace as no operator may. Then the invariants are not
	// checked.
	byHand bool
	// interval is how long a wait rests at least before it checks its condition again.
	interval time.Duration

	mu       sync.Mutex
	operator *operator.Operator
}

// newWorld makes a namespace and starts an operator in it.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := newNamespace(t)
	w.startOperator()
	return w
}

// newNamespace makes a namespace that no operator watches yet. Its test runs in parallel with others.
func newNamespace(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	return newSerialNamespace(t)
}

// newSerialNamespace makes a namespace whose test runs alone.
func newSerialNamespace(t *testing.T) *world {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	if err := admin.Create(t.Context(), namespace); err != nil {
		t.Fatalf("create a namespace: %v", err)
	}
	w := &world{T: t, namespace: namespace.Name, user: operatorUser, journal: &operator.Journal{}, log: &logBuffer{}, interval: 50 * time.Millisecond}
	t.Cleanup(func() {
		w.stopOperator()
		w.keptItsPromises()
		for _, v := range kubes.Violations(w.namespace) {
			t.Errorf("no kubelet would allow this: %s", v)
		}
		if t.Failed() {
			t.Logf("the operator's log:\n%s", w.log.tail(100))
		}
	})
	return w
}

// keptItsPromises replays all changes in the namespace, and checks every invariant for every step, and Argo CD's health
// for every status.
func (w *world) keptItsPromises() {
	w.Helper()
	defer recorder.Forget(w.namespace)
	if w.byHand {
		return
	}
	if err := recorder.CaughtUp(wait.Context(w), w.namespace); err != nil {
		w.Errorf("the record is not complete: %v", err)
	}
	broken, steps, err := recorder.Check(w.namespace, name)
	checkedSteps.Add(int64(steps))
	if err != nil {
		w.Errorf("the record has gaps: %v", err)
	}
	for _, what := range broken {
		w.Error(what)
	}
	for _, object := range recorder.Objects(w.namespace) {
		if err := argocd.Check(object); err != nil {
			w.Errorf("revision %s of %s: %v", object.GetResourceVersion(), object.GetName(), err)
		}
	}
	for _, write := range strayWrites(w.journal.Writes()) {
		w.Errorf("a StatefulSetDrain's operator may not write this: %s", write)
	}
}

// running returns the operator that runs, or the last one; nil if none was started.
func (w *world) running() *operator.Operator {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.operator
}

func (w *world) install(o *operator.Operator) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.operator = o
}

func (w *world) newOperator() (*operator.Operator, error) {
	options := operator.Options{Config: asUser(w.user), Journal: w.journal, Progress: w.progress, Rings: w.ringReader(), Memory: w.memory, Certificates: w.certificates, Steps: w.stepReader(), Images: w.images, RolloutsAtOnce: w.rollouts, Log: w.log.logger(), Clock: w.clock}
	if !w.everywhere {
		options.Namespaces = append([]string{w.namespace}, w.others...)
	}
	return operator.Start(options)
}

func (w *world) startOperator() {
	w.Helper()
	o, err := w.newOperator()
	if err != nil {
		w.Fatalf("start the operator: %v", err)
	}
	w.install(o)
}

func (w *world) stopOperator() {
	w.Helper()
	o := w.running()
	if o == nil {
		return
	}
	if err := o.Stop(); err != nil {
		w.Errorf("the operator ended with: %v", err)
	}
	w.install(nil)
}

func (w *world) restartOperator() {
	w.Helper()
	w.stopOperator()
	w.startOperator()
}

// eventually waits until the condition returns nil, or fails with its last error and a picture of the
// namespace. eventually checks the condition when an object of the namespace has changed, and twice a second,
// because a condition may depend on other objects.
func (w *world) eventually(what string, condition func() error) {
	w.Helper()
	w.within(500*time.Millisecond, what, condition)
}

// within is eventually with another interval: it checks the condition after each rest at least.
func (w *world) within(rest time.Duration, what string, condition func() error) {
	w.Helper()
	began := time.Now()
	for {
		news := recorder.News(w.namespace)
		err := condition()
		if err == nil {
			return
		}
		if time.Now().After(wait.Deadline()) {
			w.Fatalf("waited %s for: %s: %v\n%s", time.Since(began).Round(time.Second), what, err, w.picture())
		}
		next := time.After(rest)
		time.Sleep(w.interval) // changes come together
		select {
		case <-news:
		case <-next:
		}
	}
}

// always fails if the condition is false now, or after the operator has come to rest, three times in turn:
// controllers react to the operator's writes, and the operator to theirs.
func (w *world) always(what string, condition func() error) {
	w.Helper()
	for range 3 {
		if err := condition(); err != nil {
			w.Fatalf("does not hold: %s: %v\n%s", what, err, w.picture())
		}
		w.rests()
	}
	if err := condition(); err != nil {
		w.Fatalf("does not hold: %s: %v\n%s", what, err, w.picture())
	}
}

// rests waits until the operator has seen all objects in its namespaces as they are, and a reconcile of
// each Memcached and StatefulSetDrain writes nothing.
func (w *world) rests() {
	w.Helper()
	o := w.running()
	if o == nil {
		return // no operator acts
	}
	w.within(100*time.Millisecond, "the operator rests", func() error { // the cache is behind for a moment
		before := w.written()
		for _, namespace := range append([]string{w.namespace}, w.others...) {
			if err := upToDate(o, namespace); err != nil {
				return err
			}
			if err := w.reconcileEach(o, namespace); apierrors.IsConflict(err) {
				return err // its cache is behind
			}
			if err := upToDate(o, namespace); err != nil {
				return err
			}
		}
		if n := w.written() - before; n > 0 {
			return fmt.Errorf("%d writes", n)
		}
		return nil
	})
}

// written counts the operator's writes that have changed anything. One of an object that is another client's is refused.
func (w *world) written() (n int) {
	for _, write := range w.journal.Writes() {
		if write.Status < 300 {
			n++
		}
	}
	return n
}

// reconcileEach makes the operator reconcile each Memcached and StatefulSetDrain of a namespace without an event.
func (w *world) reconcileEach(o *operator.Operator, namespace string) error {
	var clusters cachev1alpha1.MemcachedList
	var drains cachev1alpha1.StatefulSetDrainList
	for _, list := range []client.ObjectList{&clusters, &drains} {
		if err := admin.List(context.Background(), list, client.InNamespace(namespace)); err != nil {
			return err
		}
	}
	keys := map[string]bool{name: true} // a cluster that is gone may have left objects
	for i := range clusters.Items {
		keys[clusters.Items[i].Name] = true
	}
	var failed error
	reconcile := func(r reconcile.Reconciler, name string) {
		if _, err := r.Reconcile(logr.NewContext(w.Context(), w.log.logger()), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: namespace, Name: name}}); err != nil && !apierrors.IsConflict(failed) {
			failed = err
		}
	}
	for cluster := range keys {
		reconcile(o.Reconciler, cluster)
	}
	for i := range drains.Items {
		reconcile(o.Drains, drains.Items[i].Name)
	}
	return failed
}

// upToDate returns nil if the operator's caches have the objects as the API server has them.
func upToDate(o *operator.Operator, namespace string) error {
	err := cacheIsUpToDate(o.Reconciler, namespace, cachev1alpha1.LabelCluster,
		func() client.ObjectList { return &cachev1alpha1.MemcachedList{} },
		func() client.ObjectList { return &cachev1alpha1.StatefulSetDrainList{} },
		func() client.ObjectList { return &appsv1.StatefulSetList{} },
		func() client.ObjectList { return &appsv1.DeploymentList{} },
		func() client.ObjectList { return &corev1.PodList{} },
		func() client.ObjectList { return &corev1.PersistentVolumeClaimList{} },
		func() client.ObjectList { return &corev1.ConfigMapList{} },
		func() client.ObjectList { return &corev1.ServiceList{} },
		func() client.ObjectList { return &batchv1.JobList{} })
	return errors.Join(err, cacheIsUpToDate(o.Drains.Objects(), namespace, cachev1alpha1.LabelStatefulSetDrain,
		func() client.ObjectList { return &corev1.PodList{} },
		func() client.ObjectList { return &corev1.PersistentVolumeClaimList{} },
		func() client.ObjectList { return &batchv1.JobList{} }))
}

// cacheIsUpToDate returns nil if the cache has all objects with the label, and all of our own kinds.
func cacheIsUpToDate(cache client.Reader, namespace, label string, lists ...func() client.ObjectList) error {
	for _, list := range lists {
		cached, live := list(), list()
		err := errors.Join(
			cache.List(context.Background(), cached, client.InNamespace(namespace)),
			admin.List(context.Background(), live, client.InNamespace(namespace)))
		if err != nil {
			return err
		}
		versions := map[types.UID]string{}
		for _, o := range objectsOf(cached) {
			versions[o.GetUID()] = o.GetResourceVersion()
		}
		_, isCluster := live.(*cachev1alpha1.MemcachedList)
		_, isDrain := live.(*cachev1alpha1.StatefulSetDrainList)
		for _, o := range objectsOf(live) {
			_, labelled := o.GetLabels()[label]
			if version, is := versions[o.GetUID()]; version != o.GetResourceVersion() && (is || labelled || isCluster || isDrain) {
				return fmt.Errorf("%T %s: the cache has version %q, not %s", o, o.GetName(), version, o.GetResourceVersion())
			}
			delete(versions, o.GetUID())
		}
		if len(versions) > 0 {
			return fmt.Errorf("%T: %d that are gone are in the cache", cached, len(versions))
		}
	}
	return nil
}

func objectsOf(list client.ObjectList) []client.Object {
	var objects []client.Object
	_ = meta.EachListItem(list, func(o runtime.Object) error {
		objects = append(objects, o.(client.Object))
		return nil
	})
	return objects
}

// create creates an object in the world's namespace. A leaving member has no clients here: it leaves at once,
// unless its patience is given.
func (w *world) create(object client.Object) {
	w.Helper()
	if m, ok := object.(*cachev1alpha1.Memcached); ok && m.Spec.Routing.Patience == nil {
		m.Spec.Routing.Patience = &metav1.Duration{}
	}
	object.SetNamespace(w.namespace)
	if err := admin.Create(w.Context(), object); err != nil {
		w.Fatalf("create %T %s: %v", object, object.GetName(), err)
	}
}

// change changes an object by a merge patch.
func (w *world) change(object client.Object, patch string) {
	w.Helper()
	object.SetNamespace(w.namespace)
	if err := admin.Patch(w.Context(), object, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		w.Fatalf("patch %T %s with %s: %v", object, object.GetName(), patch, err)
	}
}

func (w *world) delete(object client.Object, options ...client.DeleteOption) {
	w.Helper()
	object.SetNamespace(w.namespace)
	if err := admin.Delete(w.Context(), object, options...); err != nil {
		w.Fatalf("delete %T %s: %v", object, object.GetName(), err)
	}
}

func (w *world) list(list client.ObjectList, options ...client.ListOption) {
	w.Helper()
	// The context is not the test's, because pictures are taken in cleanups, too.
	if err := admin.List(context.Background(), list, append(options, client.InNamespace(w.namespace))...); err != nil {
		w.Fatalf("list %T: %v", list, err)
	}
}

// logBuffer keeps the operator's log, which a failed test prints.
type logBuffer struct {
	mu    sync.Mutex
	lines []string
}

func (b *logBuffer) logger() logr.Logger {
	return funcr.New(func(prefix, args string) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.lines = append(b.lines, strings.TrimSpace(prefix+" "+args))
	}, funcr.Options{LogTimestamp: true, Verbosity: 1})
}

func (b *logBuffer) tail(n int) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.lines[max(0, len(b.lines)-n):], "\n")
}

// picture describes the present namespace.
func (w *world) picture() string {
	var out bytes.Buffer
	for _, m := range w.clusters() {
		fmt.Fprintf(&out, "Memcached %s size %d finalizers %v deleting %v\n  status %s\n",
			m.Name, *m.Spec.Size, m.Finalizers, m.DeletionTimestamp != nil, asJSON(m.Status))
	}
	for _, s := range w.statefulSets() {
		fmt.Fprintf(&out, "StatefulSet %s replicas %d ready %d\n", s.Name, *s.Spec.Replicas, s.Status.ReadyReplicas)
	}
	for _, p := range w.pods() {
		fmt.Fprintf(&out, "Pod %s %s deleting %v finalizers %v\n", p.Name, p.Status.Phase, p.DeletionTimestamp != nil, p.Finalizers)
	}
	for _, c := range w.claims() {
		fmt.Fprintf(&out, "Claim %s %s %s deleting %v finalizers %v annotations %s\n",
			c.Name, c.UID, c.Status.Phase, c.DeletionTimestamp != nil, c.Finalizers, asJSON(c.Annotations))
	}
	for _, j := range w.jobs() {
		fmt.Fprintf(&out, "Job %s deleting %v conditions %s\n", j.Name, j.DeletionTimestamp != nil, asJSON(j.Status.Conditions))
	}
	for _, e := range w.events() {
		fmt.Fprintf(&out, "Event %s %s: %s\n", e.Type, e.Reason, e.Note)
	}
	for _, write := range w.journal.Writes() {
		fmt.Fprintf(&out, "Write %s: %d\n", write, write.Status)
	}
	return out.String()
}
