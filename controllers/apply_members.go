package controllers

import (
	"context"
	"errors"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	appsac "k8s.io/client-go/applyconfigurations/apps/v1"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/plan"
)

// The kinds that are applied.
const (
	kindService             = "Service"
	kindConfigMap           = "ConfigMap"
	kindNetworkPolicy       = "NetworkPolicy"
	kindPodDisruptionBudget = "PodDisruptionBudget"
	kindDeployment          = "Deployment"
	kindStatefulSet         = "StatefulSet"
)

func (r *applier) applyDeployment(ctx context.Context, a plan.ApplyDeployment) error {
	var current *appsac.DeploymentApplyConfiguration
	from, to := int32(0), a.Replicas
	desired := build.Deployment(r.cluster, r.Options)
	d := born(r.cluster)
	if r.seen.deployment != nil {
		if r.matches.Holds(r.cluster, kindDeployment, &r.seen.deployment.ObjectMeta, to) {
			return nil
		}
		var err error
		if current, err = appsac.ExtractDeployment(r.seen.deployment, cachev1alpha1.ManagedBy); err != nil {
			return err
		}
		from = ptr.Deref(r.seen.deployment.Spec.Replicas, 1)
		m := &members{
			object: r.seen.deployment, live: &r.seen.deployment.Spec.Template, desired: desired.Spec.Template,
			replicas: from, wanted: to, ready: deploymentReady(r.seen.deployment),
		}
		if current.Spec != nil {
			m.applied = current.Spec.Template
		}
		if d, err = r.decide(ctx, m); err != nil {
			return err
		}
		desired.Spec.Template = d.template
	} else if behind, err := mayCreate[appsv1.Deployment](ctx, r, r.cluster.Name); behind || err != nil {
		return err
	}
	desired.WithAnnotations(d.annotations())
	changed, err := applyChanged(ctx, r.Client, desired, current)
	r.done.membersWritten = changed
	r.decidedApplied(d, err)
	if !changed && err == nil && d.settled {
		r.matches.Note(r.cluster, kindDeployment, &r.seen.deployment.ObjectMeta, to)
	}
	if err == nil && changed && from != to {
		r.event(r.cluster, "Scaling", "Scale", "Deployment goes from %d to %d members", from, to)
	}
	return err
}

func (r *applier) applyStatefulSet(ctx context.Context, a plan.ApplyStatefulSet) error {
	if r.seen.statefulSet != nil && !a.KeepTemplate && r.matches.Holds(r.cluster, kindStatefulSet, &r.seen.statefulSet.ObjectMeta, a.Replicas) {
		return nil
	}
	desired := build.StatefulSet(r.cluster, r.Options, a.Replicas)
	d := born(r.cluster)
	var current *appsac.StatefulSetApplyConfiguration
	from := int32(0)
	if r.seen.statefulSet != nil {
		var err error
		if current, err = appsac.ExtractStatefulSet(r.seen.statefulSet, cachev1alpha1.ManagedBy); err != nil {
			return err
		}
		from = ptr.Deref(r.seen.statefulSet.Spec.Replicas, 1)
		if d, err = r.decideStatefulSet(ctx, a, desired, current); err != nil {
			return err
		}
	} else if behind, err := mayCreate[appsv1.StatefulSet](ctx, r, r.cluster.Name); behind || err != nil {
		return err
	}
	desired.WithAnnotations(d.annotations())
	changed, err := r.applySized(ctx, a, desired, current)
	r.decidedApplied(d, err)
	if errors.Is(err, errBehind) {
		return nil // its event is next
	}
	r.done.membersWritten = changed
	if !changed && err == nil && d.settled {
		r.matches.Note(r.cluster, kindStatefulSet, &r.seen.statefulSet.ObjectMeta, a.Replicas)
	}
	if err == nil && changed && (from < a.Replicas || a.Replicas == 0 && from > 0) {
		// Of members that leave while others stay, the events of their claims tell.
		r.event(r.cluster, "Scaling", "Scale", "StatefulSet goes from %d to %d members", from, a.Replicas)
	}
	return err
}

// decideStatefulSet fills in what of the present StatefulSet stays.
func (r *applier) decideStatefulSet(ctx context.Context, a plan.ApplyStatefulSet, desired, current *appsac.StatefulSetApplyConfiguration,
) (*decided, error) {
	m := &members{
		object: r.seen.statefulSet, live: &r.seen.statefulSet.Spec.Template, desired: desired.Spec.Template,
		replicas: ptr.Deref(r.seen.statefulSet.Spec.Replicas, 1), wanted: a.Replicas,
		ready: statefulSetReady(r.seen.statefulSet), kept: a.KeepTemplate,
	}
	build.KeepClaimTemplates(desired, r.seen.statefulSet)
	if current.Spec != nil {
		m.applied = current.Spec.Template
	}
	d, err := r.decide(ctx, m)
	if err == nil {
		desired.Spec.Template = d.template
	}
	return d, err
}

// errBehind: the size is set already, and the cache doesn't know.
var errBehind = errors.New("the cache is behind")

// applySized applies the StatefulSet. Whatever is applied sets the size, too, and the
// cache may be behind.
func (r *applier) applySized(ctx context.Context, a plan.ApplyStatefulSet, desired, current *appsac.StatefulSetApplyConfiguration,
) (changed bool, err error) {
	from := int32(0)
	if r.seen.statefulSet != nil {
		from = ptr.Deref(r.seen.statefulSet.Spec.Replicas, 1)
	}
	if from != a.Replicas || !equality.Semantic.DeepEqual(desired, current) {
		behind, err := r.maySetReplicas(ctx, a.Replicas)
		if err == nil && behind && from != a.Replicas {
			err = errBehind
		}
		if err != nil {
			return false, err
		}
	}
	return applyChanged(ctx, r.Client, desired, current)
}
