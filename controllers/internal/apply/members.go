package apply

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	appsac "k8s.io/client-go/applyconfigurations/apps/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/ptr"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/build"
)

// The kinds that are applied.
const (
	kindService             = "Service"
	kindConfigMap           = "ConfigMap"
	kindNetworkPolicy       = "NetworkPolicy"
	kindPodDisruptionBudget = "PodDisruptionBudget"
	kindDeployment          = "Deployment"
	kindStatefulSet         = "StatefulSet"
	kindListService         = "list's Service"
	kindDiscovery           = "discovery's Service"
	kindMemberService       = "member's Service " // and the ordinal
	kindEndpointSlice       = "EndpointSlice"
)

func (r *run) applyDeployment(ctx context.Context, a action.ApplyDeployment) error {
	var applied func() (*appsac.DeploymentApplyConfiguration, error)
	from, to := int32(0), a.Replicas
	desired := build.Deployment(r.cluster, r.Options)
	d := firstTemplate(r.cluster, build.TemplateSpec(r.cluster), desired.Spec.Template)
	if r.present.Deployment != nil {
		if r.Matches.Has(r.cluster, kindDeployment, &r.present.Deployment.ObjectMeta, to) {
			return nil
		}
		applied = extracted(appsac.ExtractDeployment, r.present.Deployment)
		from = ptr.Deref(r.present.Deployment.Spec.Replicas, 1)
		m := &templateInput{
			turns: r.Turns, spec: build.TemplateSpec(r.cluster), otherSize: a.Replicas != *r.cluster.Spec.Size,
			object: r.present.Deployment, live: &r.present.Deployment.Spec.Template, desired: desired.Spec.Template,
			replicas: from, wanted: to, ready: deploymentReady(r.present.Deployment), applied: templateOfDeployment(applied),
		}
		var err error
		if d, err = r.decideTemplate(ctx, m); err != nil {
			return err
		}
		desired.Spec.Template = d.template
	}
	desired.WithAnnotations(d.annotations())
	changed, err := false, error(nil)
	if r.present.Deployment != nil {
		hash, same := hashOf(desired), false
		if same, err = asWanted(desired, applied, r.present.Deployment, hash); err == nil && !same {
			changed, err = applyHashed(ctx, r, desired, r.present.Deployment, hash)
		}
	} else {
		var stale bool
		if stale, err = create[appsv1.Deployment](ctx, r, kindDeployment, r.cluster.Name, desired); stale {
			return nil
		}
		changed = err == nil
	}
	r.done.MembersWritten = changed
	r.noteTemplateWrite(r.Turns, d, err)
	if written, why := r.deploymentSize(ctx, r.present.Deployment, to, err); why != nil {
		r.done.MembersWritten = r.done.MembersWritten || written
		err = why
	}
	switch {
	case changed || err != nil:
	case from != to:
		r.sizeChanged("members", to, from)
	case d.settled:
		r.Matches.Note(r.cluster, kindDeployment, &r.present.Deployment.ObjectMeta, to)
	}
	if err == nil && changed && from != to {
		r.event(r.cluster, "Scaling", "Scale", "Deployment goes from %d to %d members", from, to)
	}
	return err
}

// templateOfDeployment is the template that we have applied, or nil.
func templateOfDeployment(applied func() (*appsac.DeploymentApplyConfiguration, error)) func() (*coreac.PodTemplateSpecApplyConfiguration, error) {
	return func() (*coreac.PodTemplateSpecApplyConfiguration, error) {
		d, err := applied()
		if err != nil || d.Spec == nil {
			return nil, err
		}
		return d.Spec.Template, nil
	}
}

func (r *run) applyStatefulSet(ctx context.Context, a action.ApplyStatefulSet) error {
	if r.present.StatefulSet != nil && !a.KeepTemplate && r.Matches.Has(r.cluster, kindStatefulSet, &r.present.StatefulSet.ObjectMeta, variant(a)) {
		return nil
	}
	desired := build.StatefulSet(r.cluster, r.Options, a.Replicas)
	d := firstTemplate(r.cluster, build.TemplateSpec(r.cluster), desired.Spec.Template)
	var applied func() (*appsac.StatefulSetApplyConfiguration, error)
	from := int32(0)
	if r.present.StatefulSet != nil {
		applied = extracted(appsac.ExtractStatefulSet, r.present.StatefulSet)
		from = ptr.Deref(r.present.StatefulSet.Spec.Replicas, 1)
		var err error
		if d, err = r.decideStatefulSet(ctx, a, desired, applied); err != nil {
			return err
		}
	}
	desired.WithAnnotations(d.annotations())
	build.WithPartition(desired, partition(a, d))
	hash := hashOf(desired)
	if r.present.StatefulSet != nil { // not part of the hash, because the first write takes the spec's
		build.KeepClaimTemplates(desired, r.present.StatefulSet)
	}
	r.tellLost(a, d, from)
	changed, err := r.applySized(ctx, a, desired, applied, hash)
	r.noteTemplateWrite(r.Turns, d, err)
	if errors.Is(err, errStale) {
		return nil // the StatefulSet's event starts the next reconcile
	}
	r.done.MembersWritten = changed
	switch {
	case r.view == nil, err == nil && !changed: // the size in the cache is not the live one
	case !r.view.StatefulSet.Exists || err != nil:
		r.view = nil
	default:
		r.view.StatefulSet.Replicas = a.Replicas
	}
	switch {
	case changed || err != nil:
	case from != a.Replicas:
		r.sizeChanged("members", a.Replicas, from)
	case d.settled:
		r.Matches.Note(r.cluster, kindStatefulSet, &r.present.StatefulSet.ObjectMeta, variant(a))
	}
	if err == nil && changed && from > 0 && a.Replicas > 0 {
		r.tellRollOut(a, d)
	}
	if err == nil && changed && (from < a.Replicas || a.Replicas == 0 && from > 0) {
		// If members leave while others stay, the events about their claims say so.
		r.event(r.cluster, "Scaling", "Scale", "StatefulSet goes from %d to %d members", from, a.Replicas)
	}
	return r.statefulSetSize(ctx, a, err)
}

// tellLost says which items this write loses, before the write: without volumes, a member's items are in its
// pod alone.
func (r *run) tellLost(a action.ApplyStatefulSet, d *templateDecision, from int32) {
	before := partitionOf(r.present.StatefulSet)
	switch {
	case !r.cluster.Spec.InPods() || from == 0:
	case a.Replicas == 0:
		r.itemsLost(nil, "Scale", "size 0: all items are lost with the %d members, because they have no volumes", from)
	case d.changes && !a.Steps:
		r.itemsLost(nil, "Restart", "the %d members restart one by one, each without its items, because they have no volumes: rollout: Moved, with exclusive routers, moves them first", from)
	case d.changes || !a.Loses || a.Partition >= before:
	case a.Partition < before-1:
		r.itemsLost(Related(r.cluster, build.PodName(r.cluster.Name, a.Partition)), "Restart", "the members from %d to %d restart one by one, each without its items, because they don't step out of the ring any more: see spec.rollout", a.Partition, before-1)
	default: // of its own pod, so that it is not counted as another member's
		r.itemsLost(Related(r.cluster, build.PodName(r.cluster.Name, a.Partition)), "Restart",
			"member %d restarts without its items: status says why it does not step out of the ring first", a.Partition)
	}
}

// tellRollOut says which way members get another template, and why: once for each roll-out, and of each member that
// can't go that way.
func (r *run) tellRollOut(a action.ApplyStatefulSet, d *templateDecision) {
	why := a.Why
	switch {
	case d.changes && a.Steps: // the next plan decides
	case d.changes:
		why = "rollout is Restart"
		if r.cluster.Spec.Rollout == "" && !build.RoutersExclusive(r.cluster) {
			why = "router.exclusive is not set"
		}
		r.event(r.cluster, "RollOut", "RollOut", "the members get another template, and restart one by one, where they are: %s", why)
	case why != "" && a.Partition < partitionOf(r.present.StatefulSet):
		r.event(r.cluster, "RollOut", "RollOut", "member %d gets another template, and restarts where it is: %s", a.Partition, why)
	}
}

// tellEvicted says, before the budget opens, that members without volumes lose their items by evictions from now on.
func (r *run) tellEvicted(a action.ApplyBudget) {
	if b := r.present.Budget; a.Loses != "" && b != nil && build.EvictsNone(b) {
		r.itemsLost(nil, "Evict", "members on nodes that are drained may be evicted from now on, each without its items, because they have no volumes: %s", a.Loses)
	}
}

// itemsLost is the event that items of members without volumes are about to be lost.
func (r *run) itemsLost(related runtime.Object, verb, format string, args ...any) {
	r.Events.Eventf(r.cluster, related, corev1.EventTypeWarning, "ItemsLost", verb, format, args...)
}

func partitionOf(s *appsv1.StatefulSet) int32 {
	if s == nil || s.Spec.UpdateStrategy.RollingUpdate == nil {
		return 0
	}
	return ptr.Deref(s.Spec.UpdateStrategy.RollingUpdate.Partition, 0)
}

// decideStatefulSet decides about the template of the present StatefulSet.
func (r *run) decideStatefulSet(ctx context.Context, a action.ApplyStatefulSet, desired *appsac.StatefulSetApplyConfiguration,
	applied func() (*appsac.StatefulSetApplyConfiguration, error),
) (*templateDecision, error) {
	m := &templateInput{
		turns: r.Turns, spec: build.TemplateSpec(r.cluster), otherSize: a.Replicas != *r.cluster.Spec.Size,
		object: r.present.StatefulSet, live: &r.present.StatefulSet.Spec.Template, desired: desired.Spec.Template,
		replicas: ptr.Deref(r.present.StatefulSet.Spec.Replicas, 1), wanted: a.Replicas,
		ready: statefulSetReady(r.present.StatefulSet), kept: a.KeepTemplate,
		applied: func() (*coreac.PodTemplateSpecApplyConfiguration, error) {
			set, err := applied()
			if err != nil || set.Spec == nil {
				return nil, err
			}
			return set.Spec.Template, nil
		},
	}
	d, err := r.decideTemplate(ctx, m)
	if err == nil {
		desired.Spec.Template = d.template
	}
	return d, err
}

// sizeChanged notes that admission has changed the number that was sent. No other client owns the
// field, so another write would change nothing.
func (r *run) sizeChanged(what string, sent, is int32) {
	r.done.SizeChanged = fmt.Sprintf("the operator asked for %d %s, and admission made %d of it", sent, what, is)
}

// errStale: the size is set already, and the cache doesn't have it yet.
var errStale = errors.New("the cache is stale")

// applySized applies the StatefulSet. Any apply also sets the size, and the cache may be stale, so
// the live check comes first.
func (r *run) applySized(ctx context.Context, a action.ApplyStatefulSet, desired *appsac.StatefulSetApplyConfiguration,
	applied func() (*appsac.StatefulSetApplyConfiguration, error), hash string,
) (changed bool, err error) {
	from := int32(0)
	if r.present.StatefulSet != nil {
		from = ptr.Deref(r.present.StatefulSet.Spec.Replicas, 1)
		if same, err := asWanted(desired, applied, r.present.StatefulSet, hash); err != nil || same {
			return false, err
		}
	}
	stale, err := r.maySetReplicas(ctx, a.Replicas)
	if err == nil && stale && from != a.Replicas {
		err = errStale
	}
	if err != nil {
		return false, err
	}
	if r.present.StatefulSet != nil {
		return applyHashed(ctx, r, desired, r.present.StatefulSet, hash)
	}
	stale, err = create[appsv1.StatefulSet](ctx, r, kindStatefulSet, r.cluster.Name, desired)
	if err == nil && stale {
		err = errStale
	}
	return err == nil, err
}
