package apply

import (
	"context"

	"example.com/memcached-operator/controllers/internal/written"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	networkingac "k8s.io/client-go/applyconfigurations/networking/v1"
	policyac "k8s.io/client-go/applyconfigurations/policy/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/identity"
	"example.com/memcached-operator/controllers/internal/observe"
)

func (r *run) applyService(ctx context.Context) error {
	return applyOwned(ctx, r, owned[corev1.Service, *corev1.Service, coreac.ServiceApplyConfiguration, *coreac.ServiceApplyConfiguration]{
		kind: kindService, name: r.cluster.Name, current: r.present.Service, extract: coreac.ExtractService,
		desired: func() *coreac.ServiceApplyConfiguration { return build.Service(r.cluster) },
	})
}

// writeList writes the clients' list and the record of the rings.
func (r *run) writeList(ctx context.Context, a action.WriteList) error {
	servers, list := build.ClientServers(r.cluster, a.ListSize), r.present.ServerList
	differs := r.cluster.Spec.Storage != nil && list != nil &&
		(list.Annotations[cachev1alpha1.AnnotationRing] != a.Record.String() || observe.ListSize(list) != len(servers))
	if differs {
		if err := r.mayWriteList(ctx, a); err != nil {
			return err
		}
	}
	err := applyOwned(ctx, r, owned[corev1.ConfigMap, *corev1.ConfigMap, coreac.ConfigMapApplyConfiguration, *coreac.ConfigMapApplyConfiguration]{
		kind: kindConfigMap, name: build.ServersName(r.cluster.Name), current: r.present.ServerList, extract: coreac.ExtractConfigMap,
		desired: func() *coreac.ConfigMapApplyConfiguration {
			return build.ServersConfigMap(r.cluster, servers, a.Record)
		},
		variant: int32(len(servers)), differs: differs,
	})
	r.done.ListWritten = err == nil
	if r.view != nil && err == nil && differs {
		r.view.ListSize, r.view.Record = a.ListSize, a.Record // movers begin at once
	}
	return err
}

func (r *run) applyNetworkPolicy(ctx context.Context) error {
	return applyOwned(ctx, r, owned[networkingv1.NetworkPolicy, *networkingv1.NetworkPolicy, networkingac.NetworkPolicyApplyConfiguration, *networkingac.NetworkPolicyApplyConfiguration]{
		kind: kindNetworkPolicy, name: r.cluster.Name, current: r.present.NetworkPolicy, extract: networkingac.ExtractNetworkPolicy,
		desired: func() *networkingac.NetworkPolicyApplyConfiguration { return build.NetworkPolicy(r.cluster) },
	})
}

func (r *run) applyBudget(ctx context.Context) error {
	return applyOwned(ctx, r, owned[policyv1.PodDisruptionBudget, *policyv1.PodDisruptionBudget, policyac.PodDisruptionBudgetApplyConfiguration, *policyac.PodDisruptionBudgetApplyConfiguration]{
		kind: kindPodDisruptionBudget, name: r.cluster.Name, current: r.present.Budget, extract: policyac.ExtractPodDisruptionBudget,
		desired: func() *policyac.PodDisruptionBudgetApplyConfiguration { return build.DisruptionBudget(r.cluster) },
	})
}

// owned is an object of the cluster that is created, changed and deleted as the spec
// wants it. T is its type, AC its apply configuration.
type owned[T any, P interface {
	*T
	client.Object
}, C any, AC interface {
	*C
	written.Configuration[C]
}] struct {
	kind, name string
	// current is what the cache has, or nil.
	current P
	// desired by the spec; nil for none.
	desired func() AC
	// extract returns the fields of the current object that we have applied.
	extract func(P, string) (AC, error)
	// variant is a number that desired depends on besides the spec. differs: the object
	// is known to differ from what is desired.
	variant int32
	differs bool
}

// applyOwned creates, changes or deletes the object, unless it is as wanted.
func applyOwned[T any, P interface {
	*T
	client.Object
}, C any, AC interface {
	*C
	written.Configuration[C]
}](ctx context.Context, r *run, w owned[T, P, C, AC]) error {
	if w.current != nil && !w.differs && r.Matches.Has(r.cluster, w.kind, w.current, w.variant) {
		return nil
	}
	desired := w.desired()
	if desired == nil {
		if w.current == nil || !metav1.IsControlledBy(w.current, r.cluster) || w.current.GetDeletionTimestamp() != nil {
			return nil
		}
		return r.deleteObject(ctx, w.current)
	}
	var current AC
	if w.current != nil {
		var err error
		if current, err = w.extract(w.current, cachev1alpha1.ManagedBy); err != nil {
			return err
		}
	} else if behind, err := mayCreate[T, P](ctx, r, w.name); behind || err != nil {
		return err
	}
	var live metav1.Object
	if w.current != nil {
		live = w.current
	}
	changed, err := applyChanged(ctx, r, desired, current, live)
	if !changed && err == nil {
		r.Matches.Note(r.cluster, w.kind, w.current, w.variant)
	}
	return err
}

// applyChanged applies the desired configuration, unless it equals what the server reports as
// applied by us, or the live object is what admission made of it.
func applyChanged[AC interface {
	*T
	written.Configuration[T]
}, T any](ctx context.Context, r *run, desired, current AC, live metav1.Object) (bool, error) {
	return applyHashed(ctx, r, desired, current, live, written.HashOf(desired))
}

// applyHashed is applyChanged for a configuration with a known hash.
func applyHashed[AC interface {
	*T
	written.Configuration[T]
}, T any](ctx context.Context, r *run, desired, current AC, live metav1.Object, hash string) (bool, error) {
	if current != nil && live != nil && written.AsWanted(desired, current, live, hash) {
		return false, nil
	}
	desired.WithAnnotations(map[string]string{cachev1alpha1.AnnotationApplied: hash})
	if err := r.mayOwn(ctx); err != nil {
		return false, err
	}
	return true, r.Client.Apply(ctx, desired, client.FieldOwner(cachev1alpha1.ManagedBy), client.ForceOwnership)
}

// mayOwn checks live that the Memcached is not deleted, because applying an object makes
// the cluster its owner. If somebody deleted the Memcached and keeps its objects
// (--cascade=orphan), these have lost their owner. If they got it again, the garbage
// collector would delete them.
func (r *run) mayOwn(ctx context.Context) error {
	if r.owns {
		return nil
	}
	live, err := observe.Get[cachev1alpha1.Memcached](ctx, r.Reader.Live, client.ObjectKeyFromObject(r.cluster))
	switch {
	case err != nil:
		return err
	case live == nil || live.UID != r.cluster.UID || live.DeletionTimestamp != nil:
		return observe.Refuse("Memcached %s was deleted: the cache is behind", r.cluster.Name)
	}
	r.owns = true
	return nil
}

// mayCreate checks live whether an object that the cache lacks exists. behind is true if
// it is the cluster's own, and an event is coming. An object that is somebody else's is
// an error.
func mayCreate[T any, P interface {
	*T
	client.Object
}](ctx context.Context, r *run, name string) (behind bool, err error) {
	if observe.Absent[P](r.present, name) {
		return false, nil
	}
	object, err := observe.Get[T, P](ctx, r.Reader.Live, client.ObjectKey{Namespace: r.cluster.Namespace, Name: name})
	switch {
	case err != nil || object == nil:
		return false, err
	case !identity.OwnsOrAdopts(r.cluster, object):
		return false, identity.NameTaken(object)
	}
	// Without its labels the cache can't have it; applying restores them.
	return identity.Selector(object).Matches(labels.Set(object.GetLabels())) && object.GetLabels()[cachev1alpha1.LabelCluster] == r.cluster.Name, nil
}
