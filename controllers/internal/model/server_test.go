package model

import (
	"context"
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/apply"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/identity"
	"example.com/memcached-operator/controllers/internal/observe"
	"example.com/memcached-operator/controllers/internal/remembered"
	"example.com/memcached-operator/controllers/internal/rollout"
	"example.com/memcached-operator/controllers/internal/trim"
)

// world makes API servers with the states of one exploration.
type world struct {
	model    *model
	base     *cachev1alpha1.Memcached
	prepared prepared
	// random chooses the writes that fail.
	random *rand.Rand
}

func newWorld(t testing.TB, o *Options) *world {
	options := *o
	options.Sample = nil
	w := &world{model: newModel(options), base: memcached(o)}
	w.prepared.lists = map[list]*corev1.ConfigMap{}
	s := w.onlyMemcached()
	take := func(planned action.Action) {
		if _, err := s.applier().Apply(t.Context(), w.base, &observe.Objects{}, []action.Action{planned}); err != nil {
			t.Fatalf("%s: %v", planned, err)
		}
	}
	take(action.ApplyService{})
	w.prepared.service = get[corev1.Service](s, clusterName)
	for n := range w.prepared.members {
		w.base.Spec.Size = ptr.To(int32(n))
		take(action.ApplyStatefulSet{Replicas: int32(n)})
		w.prepared.members[n] = get[appsv1.StatefulSet](s, clusterName)
		w.prepared.members[n].UID = setUID
		if err := s.Delete(t.Context(), w.prepared.members[n]); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// onlyMemcached serves a Memcached and nothing else.
func (w *world) onlyMemcached() *server {
	s := &server{Client: newClient([]client.Object{w.base.DeepCopy()}, nil)}
	s.cache = s.Client
	return s
}

// makeList lets package apply write a list. A list without a ring is from an operator that kept no
// record.
func (w *world) makeList(l list) *corev1.ConfigMap {
	s := w.onlyMemcached()
	planned := action.WriteList{ListSize: int32(l.size), Record: l.record()}
	if _, err := s.applier().Apply(context.Background(), w.base, &observe.Objects{}, []action.Action{planned}); err != nil {
		panic(err)
	}
	made := get[corev1.ConfigMap](s, build.ServersName(clusterName))
	if !w.model.options.Moving {
		delete(made.Annotations, cachev1alpha1.AnnotationRing)
	}
	return made
}

func get[T any, P interface {
	*T
	client.Object
}](s *server, name string) P {
	object, err := read.Get[T, P](context.Background(), s.Client, client.ObjectKey{Namespace: namespace, Name: name})
	if err != nil {
		panic(err)
	}
	if object != nil {
		object.SetResourceVersion(versionNow)
	}
	return object
}

var (
	// scheme only has the kinds that are used here, because each client that writes makes
	// a table of all kinds.
	scheme = sync.OnceValue(func() *runtime.Scheme {
		s := runtime.NewScheme()
		for _, add := range []func(*runtime.Scheme) error{
			corev1.AddToScheme, appsv1.AddToScheme, batchv1.AddToScheme, discoveryv1.AddToScheme, networkingv1.AddToScheme, policyv1.AddToScheme, cachev1alpha1.AddToScheme,
		} {
			utilruntime.Must(add(s))
		}
		return s
	})
	converters = sync.OnceValue(func() []managedfields.TypeConverter {
		return []managedfields.TypeConverter{applyconfigurations.NewTypeConverter(scheme()), managedfields.NewDeducedTypeConverter()}
	})
)

// indexer stands for the manager when the operator adds the indexes of its cache.
type indexer struct {
	ctrl.Manager
	into *fake.ClientBuilder
}

func (i indexer) GetFieldIndexer() client.FieldIndexer { return i }

func (i indexer) IndexField(_ context.Context, o client.Object, field string, f client.IndexerFunc) error {
	i.into.WithIndex(o, field, f)
	return nil
}

func newClient(objects []client.Object, funcs *interceptor.Funcs) client.WithWatch {
	b := fake.NewClientBuilder().WithScheme(scheme()).WithTypeConverters(converters()...).WithReturnManagedFields().
		WithStatusSubresource(&cachev1alpha1.Memcached{}).WithObjects(objects...)
	if err := observe.IndexByCluster(indexer{into: b}); err != nil {
		panic(err)
	}
	if funcs != nil {
		b.WithInterceptorFuncs(*funcs)
	}
	return b.Build()
}

// server is the API server with one state, and the operator's cache.
type server struct {
	client.Client
	cache client.Reader
	// writes counts the writes that changed something.
	writes int
	// failure is that of the write with the number failAt, if failAt is not 0. attempts counts the
	// writes; not those of the list if it follows the members at once.
	failure          failure
	failAt, attempts int
	listFollows      bool
	// touched: the object was changed right before this write. unlocked: a patch still succeeded.
	touched, unlocked bool
	// state has the numbers of the objects that are created.
	state state
}

func (w *world) serve(s *state) *server {
	out := &server{state: *s}
	out.Client = newClient(append(w.objects(s, &s.live), liveOnly(s)...), &interceptor.Funcs{
		Create: out.create, Delete: out.delete, Patch: out.patch, Apply: out.apply,
	})
	if out.cache = out.Client; s.seen != s.live {
		out.cache = newClient(w.objects(s, &s.seen), nil)
	}
	return out
}

// Get reads the cache, as the manager's client does.
func (s *server) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	return s.cache.Get(ctx, key, o, options...)
}

// List reads the cache.
func (s *server) List(ctx context.Context, o client.ObjectList, options ...client.ListOption) error {
	return s.cache.List(ctx, o, options...)
}

var errEnding = errors.New("it is being terminated")

func forbidden(kind, name string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: kind}, name, errEnding)
}

// create gives the object the model's next UID, and a claim its protection.
func (s *server) create(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
	if s.state.ending {
		return forbidden("objects", o.GetName())
	}
	next := s.state
	switch o := o.(type) {
	case *batchv1.Job:
		i := ordinalOf(identity.ClaimUID(o))
		o.UID = jobUIDs[i][next.nextInstance(i)]
	case *corev1.PersistentVolumeClaim:
		i, _ := build.AsideOrdinal(clusterName, o.Name)
		o.UID = claimUIDs[i][next.nextGeneration(int8(i))]
		o.Finalizers = append(o.Finalizers, trim.PVCProtection)
	}
	if err := c.Get(ctx, client.ObjectKeyFromObject(o), o.DeepCopyObject().(client.Object)); apierrors.IsNotFound(err) {
		if err := s.failCreate(o); err != nil {
			return err
		}
	}
	err := c.Create(ctx, o, options...)
	if err == nil {
		s.state = next
		s.writes++
	}
	return err
}

// ordinalOf is the ordinal of the claim of this UID.
func ordinalOf(claim types.UID) int8 {
	for i := range int8(ordinals) {
		if slices.Contains(claimUIDs[i][:], claim) {
			return i
		}
	}
	panic("whose claim is " + string(claim) + "?")
}

// delete checks the UID, which the fake client doesn't.
func (s *server) delete(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
	var all client.DeleteOptions
	all.ApplyOptions(options)
	live := o.DeepCopyObject().(client.Object)
	if err := c.Get(ctx, client.ObjectKeyFromObject(o), live); err != nil {
		return err
	}
	if p := all.Preconditions; p != nil && p.UID != nil && *p.UID != live.GetUID() {
		return apierrors.NewConflict(schema.GroupResource{Resource: "objects"}, o.GetName(), errors.New("the UID differs"))
	}
	if err := s.failWrite(ctx, c, live); err != nil {
		return err
	}
	s.touched = false
	err := c.Delete(ctx, o, options...)
	if err == nil {
		s.writes++
	}
	return err
}

// patch adds no finalizer to an object that is being deleted.
func (s *server) patch(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
	live := o.DeepCopyObject().(client.Object)
	if err := c.Get(ctx, client.ObjectKeyFromObject(o), live); err != nil {
		return err
	}
	if live.GetDeletionTimestamp() != nil && len(o.GetFinalizers()) > len(live.GetFinalizers()) {
		return apierrors.NewInvalid(schema.GroupKind{}, o.GetName(), nil)
	}
	if !lockLost(live, o, p) {
		if err := s.failWrite(ctx, c, live); err != nil {
			return err
		}
	}
	_, pod := o.(*corev1.Pod) // its kubelet writes the pod all the time, and the operator only adds annotations
	touched := s.touched && !pod
	s.touched = false
	err := c.Patch(ctx, o, p, options...)
	if err == nil {
		s.writes++
		s.unlocked = s.unlocked || touched
	}
	return err
}

// apply counts applies that change something, and gives a new StatefulSet its UID.
func (s *server) apply(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, options ...client.ApplyOption) error {
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return err
	}
	applied := &unstructured.Unstructured{Object: raw}
	key := client.ObjectKeyFromObject(applied)
	read := func() (map[string]any, *unstructured.Unstructured) {
		live := &unstructured.Unstructured{}
		live.SetGroupVersionKind(applied.GroupVersionKind())
		if err := c.Get(ctx, key, live); err != nil {
			return nil, nil
		}
		content := live.DeepCopy()
		content.SetManagedFields(nil)
		content.SetResourceVersion("")
		return content.Object, live
	}
	before, old := read()
	if before == nil && s.state.ending {
		return forbidden(applied.GetKind(), key.Name)
	}
	if version := applied.GetResourceVersion(); version != "" { // a real API server creates with any version, and changes nothing with another version
		if before != nil && version != old.GetResourceVersion() {
			return apierrors.NewConflict(schema.GroupResource{Resource: applied.GetKind()}, key.Name, errors.New("the object has been modified"))
		}
		applied.SetResourceVersion("")
		o = client.ApplyConfigurationFromUnstructured(applied)
	}
	if err := c.Apply(ctx, o, options...); err != nil {
		return err
	}
	after, live := read()
	if !reflect.DeepEqual(before, after) {
		if err := s.failApply(live); err != nil {
			return errors.Join(err, restore(ctx, c, old, live))
		}
		s.writes++
	}
	if before == nil && applied.GetKind() == "StatefulSet" {
		live.SetUID(setUID)
		return c.Update(ctx, live)
	}
	return nil
}

var clock = testingclock.NewFakePassiveClock(justNow)

func (s *server) reader() *observe.Reader {
	return &observe.Reader{
		Cache: s, Live: s.Client, Clock: clock, NotCreated: &read.MissingPods{}, GrowthRefused: &remembered.Answers[string]{}, Options: &images,
	}
}

func (s *server) applier() *apply.Applier {
	turns := func() *rollout.Turns {
		return rollout.NewTurns(rollout.Options{
			Cache: s, Live: s.Client, Clock: clock, Wake: func(client.ObjectKey) {}, Tell: func(int, int) {},
		})
	}
	return &apply.Applier{
		Client: s, Reader: s.reader(), Events: &events.FakeRecorder{}, Options: images, Clock: clock, Matches: &remembered.Matches{},
		Turns: turns(), RouterTurns: turns(),
		Bindings: &apply.Bindings{}, Monitors: &apply.Monitors{},
	}
}

func (s *server) reconciler() *controllers.MemcachedReconciler {
	return &controllers.MemcachedReconciler{Client: s, Live: s.Client, Events: &events.FakeRecorder{}, Options: images, Clock: clock}
}

var clusterKey = client.ObjectKey{Namespace: namespace, Name: clusterName}

// observe reads as a reconcile does. If the Memcached and all claims that the operator keeps are
// gone, a reconcile reads no more, but observe reads what is left.
func (s *server) observe(ctx context.Context) (*observe.State, error) {
	r := s.reader()
	c, err := r.Cluster(ctx, clusterKey)
	if err != nil {
		return nil, err
	}
	if c == nil {
		c = &cachev1alpha1.Memcached{}
		c.Namespace, c.Name, c.DeletionTimestamp = namespace, clusterName, ptr.To(metav1.NewTime(justNow))
		c.Spec = cachev1alpha1.MemcachedSpec{Size: ptr.To[int32](0), Storage: &cachev1alpha1.StorageSpec{}}
	}
	if c.Spec.Size == nil {
		return nil, errors.New("the Memcached has no size")
	}
	return r.Observe(ctx, c)
}
