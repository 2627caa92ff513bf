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

func (r *MemcachedReconciler) applyDeployment(ctx context.Context, o *observed, a plan.ApplyDeployment) error {
	var current *appsac.DeploymentApplyConfiguration
	from, to := int32(0), a.Replicas
	desired := build.Deployment(o.cluster, r.Options)
	d := born(o.cluster)
	if o.deployment != nil {
		if r.matches.Holds(o.cluster, kindDeployment, &o.deployment.ObjectMeta, to) {
			return nil
		}
		var err error
		if current, err = appsac.ExtractDeployment(o.deployment, cachev1alpha1.ManagedBy); err != nil {
			return err
		}
		from = ptr.Deref(o.deployment.Spec.Replicas, 1)
		m := &members{
			object: o.deployment, live: &o.deployment.Spec.Template, desired: desired.Spec.Template,
			replicas: from, wanted: to, ready: deploymentReady(o.deployment),
		}
		if current.Spec != nil {
			m.applied = current.Spec.Template
		}
		if d, err = r.decide(ctx, o, m); err != nil {
			return err
		}
		desired.Spec.Template = d.template
	} else if behind, err := mayCreate[appsv1.Deployment](ctx, r, o, o.cluster.Name); behind || err != nil {
		return err
	}
	desired.WithAnnotations(d.annotations())
	changed, err := applyChanged(ctx, r.Client, desired, current)
	o.membersWritten = changed
	r.decidedApplied(o, d, err)
	if !changed && err == nil && d.settled {
		r.matches.Note(o.cluster, kindDeployment, &o.deployment.ObjectMeta, to)
	}
	if err == nil && changed && from != to {
		r.event(o, "Scaling", "Scale", "Deployment goes from %d to %d members", from, to)
	}
	return err
}

func (r *MemcachedReconciler) applyStatefulSet(ctx context.Context, o *observed, a plan.ApplyStatefulSet) error {
	if o.statefulSet != nil && !a.KeepTemplate && r.matches.Holds(o.cluster, kindStatefulSet, &o.statefulSet.ObjectMeta, a.Replicas) {
		return nil
	}
	desired := build.StatefulSet(o.cluster, r.Options, a.Replicas)
	d := born(o.cluster)
	var current *appsac.StatefulSetApplyConfiguration
	from := int32(0)
	if o.statefulSet != nil {
		var err error
		if current, err = appsac.ExtractStatefulSet(o.statefulSet, cachev1alpha1.ManagedBy); err != nil {
			return err
		}
		from = ptr.Deref(o.statefulSet.Spec.Replicas, 1)
		if d, err = r.decideStatefulSet(ctx, o, a, desired, current); err != nil {
			return err
		}
	} else if behind, err := mayCreate[appsv1.StatefulSet](ctx, r, o, o.cluster.Name); behind || err != nil {
		return err
	}
	desired.WithAnnotations(d.annotations())
	changed, err := r.applySized(ctx, o, a, desired, current)
	r.decidedApplied(o, d, err)
	if errors.Is(err, errBehind) {
		return nil // its event is next
	}
	o.membersWritten = changed
	if !changed && err == nil && d.settled {
		r.matches.Note(o.cluster, kindStatefulSet, &o.statefulSet.ObjectMeta, a.Replicas)
	}
	if err == nil && changed && (from < a.Replicas || a.Replicas == 0 && from > 0) {
		// Of members that leave while others stay, the events of their claims tell.
		r.event(o, "Scaling", "Scale", "StatefulSet goes from %d to %d members", from, a.Replicas)
	}
	return err
}

// decideStatefulSet fills in what of the present StatefulSet stays.
func (r *MemcachedReconciler) decideStatefulSet(
	ctx context.Context, o *observed, a plan.ApplyStatefulSet, desired, current *appsac.StatefulSetApplyConfiguration,
) (*decided, error) {
	m := &members{
		object: o.statefulSet, live: &o.statefulSet.Spec.Template, desired: desired.Spec.Template,
		replicas: ptr.Deref(o.statefulSet.Spec.Replicas, 1), wanted: a.Replicas,
		ready: statefulSetReady(o.statefulSet), kept: a.KeepTemplate,
	}
	build.KeepClaimTemplates(desired, o.statefulSet)
	if current.Spec != nil {
		m.applied = current.Spec.Template
	}
	d, err := r.decide(ctx, o, m)
	if err == nil {
		desired.Spec.Template = d.template
	}
	return d, err
}

// errBehind: the size is set already, and the cache doesn't know.
var errBehind = errors.New("the cache is behind")

// applySized applies the StatefulSet. Whatever is applied sets the size, too, and the
// cache may be behind.
func (r *MemcachedReconciler) applySized(
	ctx context.Context, o *observed, a plan.ApplyStatefulSet, desired, current *appsac.StatefulSetApplyConfiguration,
) (changed bool, err error) {
	from := int32(0)
	if o.statefulSet != nil {
		from = ptr.Deref(o.statefulSet.Spec.Replicas, 1)
	}
	if from != a.Replicas || !equality.Semantic.DeepEqual(desired, current) {
		behind, err := r.maySetReplicas(ctx, o, a.Replicas)
		if err == nil && behind && from != a.Replicas {
			err = errBehind
		}
		if err != nil {
			return false, err
		}
	}
	return applyChanged(ctx, r.Client, desired, current)
}
