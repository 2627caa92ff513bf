package apply

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	networkingac "k8s.io/client-go/applyconfigurations/networking/v1"
	policyac "k8s.io/client-go/applyconfigurations/policy/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/claims/write"
	"example.com/memcached-operator/controllers/internal/identity"
	"example.com/memcached-operator/controllers/internal/observe"
)

func (r *run) applyService(ctx context.Context) error {
	return write.ApartIf(r.present.Service != nil, applyOwned(ctx, r, owned[corev1.Service, *corev1.Service, coreac.ServiceApplyConfiguration, *coreac.ServiceApplyConfiguration]{
		kind: kindService, name: r.cluster.Name, current: r.present.Service, extract: coreac.ExtractService,
		desired: func() *coreac.ServiceApplyConfiguration { return build.Service(r.cluster) },
	}))
}

// writeList writes the clients' list and the record of the rings.
func (r *run) writeList(ctx context.Context, a action.WriteList) error {
	servers, list := build.Servers(r.cluster, r.ports, a.ListSize), r.present.ServerList
	differs := r.cluster.Spec.Storage != nil && list != nil &&
		(list.Annotations[cachev1alpha1.AnnotationRing] != a.Record.String() || observe.ListSize(list) != len(servers))
	// Servers at other ports are written only if the list still has its cached version, and so the
	// same ring.
	other := r.cluster.Spec.Storage != nil && list != nil && build.OtherServers(list.Data, servers)
	locked := (differs || other) && metav1.IsControlledBy(list, r.cluster)
	if differs {
		var only *corev1.ConfigMap
		if locked {
			only = list
		}
		if err := r.mayWriteList(ctx, a, only); err != nil {
			return err
		}
	}
	stale := false
	err := applyOwned(ctx, r, owned[corev1.ConfigMap, *corev1.ConfigMap, coreac.ConfigMapApplyConfiguration, *coreac.ConfigMapApplyConfiguration]{
		kind: kindConfigMap, name: build.ServersName(r.cluster.Name), current: r.present.ServerList, extract: coreac.ExtractConfigMap,
		desired: func() *coreac.ConfigMapApplyConfiguration {
			return build.ServersConfigMap(r.cluster, servers, a.Record)
		},
		variant: int32(len(servers)) ^ r.ports.Variant(), differs: differs, stale: &stale, locked: locked,
	})
	r.done.ListWritten = err == nil
	err = write.ApartIf(r.cluster.Spec.Storage == nil, err) // members without storage don't wait for the list
	if err == nil && !stale && r.present.ServerList == nil {
		r.listMade = &a
	}
	if r.view != nil && err == nil && differs {
		r.view.ListSize, r.view.Record = a.ListSize, a.Record // so that the steps of the same plan can tell movers to begin
	}
	return err
}

func (r *run) applyNetworkPolicy(ctx context.Context) error {
	return write.ApartIf(r.present.NetworkPolicy != nil, applyOwned(ctx, r, owned[networkingv1.NetworkPolicy, *networkingv1.NetworkPolicy, networkingac.NetworkPolicyApplyConfiguration, *networkingac.NetworkPolicyApplyConfiguration]{
		kind: kindNetworkPolicy, name: r.cluster.Name, current: r.present.NetworkPolicy, extract: networkingac.ExtractNetworkPolicy,
		desired: func() *networkingac.NetworkPolicyApplyConfiguration {
			return build.NetworkPolicy(r.cluster, r.Options, r.ports)
		},
		variant: r.ports.Variant(),
	}))
}

func (r *run) applyBudget(ctx context.Context, a action.ApplyBudget) error {
	variant := int32(0)
	if a.StepOut {
		variant = 1
	}
	r.tellEvicted(a)
	return applyOwned(ctx, r, owned[policyv1.PodDisruptionBudget, *policyv1.PodDisruptionBudget, policyac.PodDisruptionBudgetApplyConfiguration, *policyac.PodDisruptionBudgetApplyConfiguration]{
		kind: kindPodDisruptionBudget, name: r.cluster.Name, current: r.present.Budget, extract: policyac.ExtractPodDisruptionBudget,
		desired: func() *policyac.PodDisruptionBudgetApplyConfiguration {
			return build.DisruptionBudget(r.cluster, a.StepOut)
		},
		variant: variant,
	})
}

// owned is an object of the cluster that is created, changed and deleted as the spec demands. T is
// its type, AC its apply configuration.
type owned[T any, P interface {
	*T
	client.Object
}, C any, AC interface {
	*C
	configuration[C]
}] struct {
	kind, name string
	// current is the cached object, or nil.
	current P
	// desired returns the object that the spec demands; nil for none.
	desired func() AC
	// extract returns the fields of the current object that we have applied.
	extract func(P, string) (AC, error)
	// variant is a number that desired depends on besides the spec. differs: the object is known to differ
	// from the desired one.
	variant int32
	differs bool
	// locked: the object is only changed if the cache has its latest version. In that version the
	// cluster owns the object, so no live read has to show that the Memcached isn't deleted.
	locked bool
	// stale, if set, gets whether the object was not written because the cache is stale.
	stale *bool
	// unsettled: the object is to be compared again next time although it is as desired now.
	unsettled bool
}

// applyOwned creates, changes or deletes the object, unless it is as wanted.
func applyOwned[T any, P interface {
	*T
	client.Object
}, C any, AC interface {
	*C
	configuration[C]
}](ctx context.Context, r *run, w owned[T, P, C, AC]) error {
	if w.current != nil && !w.differs && r.Matches.Has(r.cluster, w.kind, w.current, w.variant) {
		return nil
	}
	desired := w.desired()
	if desired == nil {
		return unwanted[T, P](ctx, r, w.kind, w.name, w.current)
	}
	if w.current == nil {
		stale, err := create[T, P](ctx, r, w.kind, w.name, desired)
		if w.stale != nil {
			*w.stale = stale
		}
		return err
	}
	hash := hashOf(desired)
	same, err := asWanted[AC, C](desired, extracted(w.extract, w.current), w.current, hash)
	switch {
	case err != nil:
		return err
	case same && !w.unsettled:
		r.Matches.Note(r.cluster, w.kind, w.current, w.variant)
		return nil
	case same:
		return nil
	case w.locked:
		desired.WithAnnotations(map[string]string{cachev1alpha1.AnnotationApplied: hash})
		err := r.apply(ctx, AC(desired.WithResourceVersion(w.current.GetResourceVersion())))
		if apierrors.IsConflict(err) {
			return read.Refuse("%s %s has changed: the cache is stale", identity.KindOf(w.current), w.name)
		}
		return err
	}
	_, err = applyHashed[AC, C](ctx, r, desired, w.current, hash)
	return err
}

// unwanted deletes an object that the spec does not want any more.
//
// The cache lacks an object whose label another client has removed, and then the spec says nothing of it that would bring
// the label back. So it is read live once: if this process has seen it as wanted, or if the spec has changed since an
// earlier process looked. At rest nothing is read.
func unwanted[T any, P interface {
	*T
	client.Object
}](ctx context.Context, r *run, kind, name string, current P) (err error) {
	its := func(k string) bool { return k == kind || k == kindMade+kind }
	if current == nil {
		if !r.unlooked && !r.Matches.Knows(r.cluster, kind) && !r.Matches.Knows(r.cluster, kindMade+kind) {
			return nil
		}
		if current, err = read.Get[T, P](ctx, r.Reader.Live, client.ObjectKey{Namespace: r.cluster.Namespace, Name: name}); err != nil {
			return err
		}
	}
	if current != nil && metav1.IsControlledBy(current, r.cluster) && current.GetDeletionTimestamp() == nil {
		err = write.Delete(ctx, r.Client, current)
	}
	if err == nil {
		r.Matches.Drop(r.cluster, its)
	}
	return err
}

// kindLooked is the key in Matches of a cluster whose unwanted objects this process has looked for.
const kindLooked = "looked for what is unwanted"

// looks tells whether this process has yet to look for unwanted objects of a cluster whose spec has changed since its
// status was written.
func (r *run) looks() bool {
	seen := r.cluster.Status.ObservedGeneration
	return seen != 0 && seen != r.cluster.Generation && !r.Matches.Knows(r.cluster, kindLooked)
}

// noteLooked notes that this process has looked for them. From now on it knows what is wanted.
func (r *run) noteLooked() { r.Matches.Note(r.cluster, kindLooked, &metav1.ObjectMeta{}, 0) }

// applyHashed applies the configuration with this hash in place of the live object's. sent tells whether the request
// was sent.
func applyHashed[AC interface {
	*T
	configuration[T]
}, T any](ctx context.Context, r *run, desired AC, live metav1.Object, hash string) (sent bool, err error) {
	desired.WithAnnotations(map[string]string{cachev1alpha1.AnnotationApplied: hash})
	if err := r.mayOwn(ctx); err != nil {
		return false, err
	}
	return true, r.apply(ctx, renamed(desired, live))
}

// mayOwn checks live that the Memcached is not deleted, because applying an object makes the
// cluster its owner. If a person has deleted the Memcached and keeps its objects
// (--cascade=orphan), these have lost their owner. If they got the owner again, the garbage
// collector would delete them.
func (r *run) mayOwn(ctx context.Context) error {
	if r.owns {
		return nil
	}
	live, err := read.Get[cachev1alpha1.Memcached](ctx, r.Reader.Live, client.ObjectKeyFromObject(r.cluster))
	switch {
	case err != nil:
		return err
	case live == nil || live.UID != r.cluster.UID || live.DeletionTimestamp != nil:
		return read.Refuse("Memcached %s was deleted: the cache is stale", r.cluster.Name)
	}
	r.owns = true
	return nil
}

// noVersion is a resourceVersion that no object has. With it, apply can create the object, but
// fails with a conflict if the object exists.
const noVersion = "1"

// kindMade with a kind is the key in Matches of an object that this process has created.
const kindMade = "made "

// create creates an object that the cache lacks. If the API server says that the object exists, create reads
// it: stale is true if it is the cluster's own, and its event will come. An object of another owner is an
// error, and stays unchanged. If this process has created the object before, create reads first, because the
// cache usually is stale.
func create[T any, P interface {
	*T
	client.Object
}, C any, AC interface {
	*C
	configuration[C]
}](ctx context.Context, r *run, kind, name string, desired AC) (stale bool, err error) {
	made := kindMade + kind
	known := &metav1.ObjectMeta{UID: r.cluster.UID}
	if err := r.mayOwn(ctx); err != nil {
		return false, err
	}
	desired.WithAnnotations(map[string]string{cachev1alpha1.AnnotationApplied: hashOf(desired)})
	if !r.Matches.Has(r.cluster, made, known, 0) {
		err := r.apply(ctx, AC(desired.WithResourceVersion(noVersion)))
		if err == nil {
			r.Matches.Note(r.cluster, made, known, 0)
		}
		if !apierrors.IsConflict(err) {
			return false, err
		}
	}
	object, err := read.Get[T, P](ctx, r.Reader.Live, client.ObjectKey{Namespace: r.cluster.Namespace, Name: name})
	switch {
	case err != nil:
		return false, err
	case object == nil: // the object was deleted after the conflict
		return false, r.apply(ctx, AC(desired.WithResourceVersion(noVersion)))
	case !identity.OwnsOrAdopts(r.cluster, object):
		return false, identity.NameTaken(object)
	case identity.Selector(object).Matches(labels.Set(object.GetLabels())) && object.GetLabels()[cachev1alpha1.LabelCluster] == r.cluster.Name:
		return true, nil
	}
	// The cache can't see the object without its labels. Apply restores them, on exactly the object
	// that was read.
	if err = r.apply(ctx, AC(desired.WithResourceVersion(object.GetResourceVersion()))); apierrors.IsConflict(err) {
		err = read.Refuse("%s %s has just changed", identity.KindOf(object), name)
	}
	return false, err
}

func (r *run) apply(ctx context.Context, desired runtime.ApplyConfiguration) error {
	return r.Client.Apply(ctx, desired, client.FieldOwner(cachev1alpha1.ManagedBy), client.ForceOwnership)
}
