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

// applyPlain reconciles a cluster without storage. Its owner references are all
// that a deletion needs.
func (r *MemcachedReconciler) applyPlain(ctx context.Context, o *observed) error {
	if o.cluster.DeletionTimestamp != nil {
		return nil
	}
	if err := r.applyBefore(ctx, o); err != nil {
		return err
	}
	return errors.Join(r.applyDeployment(ctx, o), r.applyAfter(ctx, o))
}

func (r *MemcachedReconciler) applyDeployment(ctx context.Context, o *observed) error {
	var current *appsac.DeploymentApplyConfiguration
	from, to := int32(0), *o.cluster.Spec.Size
	if o.deployment != nil {
		if r.matches.holds(o, kindDeployment, &o.deployment.ObjectMeta, to) {
			return nil
		}
		var err error
		if current, err = appsac.ExtractDeployment(o.deployment, cachev1alpha1.ManagedBy); err != nil {
			return err
		}
		from = ptr.Deref(o.deployment.Spec.Replicas, 1)
	} else if behind, err := mayCreate[appsv1.Deployment](ctx, r, o, o.cluster.Name); behind || err != nil {
		return err
	}
	desired := build.Deployment(o.cluster, r.Options)
	changed, err := applyChanged(ctx, r.Client, desired, current)
	if !changed && err == nil {
		r.matches.note(o, kindDeployment, &o.deployment.ObjectMeta, to)
	}
	if err == nil && changed && from != to {
		r.event(o, "Scaling", "Scale", "Deployment goes from %d to %d members", from, to)
	}
	return err
}

// applyMembers brings about what the members need, and then as many of them as
// are to be: the clients' list is without those that leave before they do.
func (r *MemcachedReconciler) applyMembers(ctx context.Context, o *observed, a plan.ApplyMembers) error {
	if err := r.refreshList(ctx, o, a); err != nil {
		return err
	}
	if err := r.applyBefore(ctx, o); err != nil {
		return err
	}
	return errors.Join(r.applyStatefulSet(ctx, o, a), r.applyAfter(ctx, o))
}

func (r *MemcachedReconciler) applyStatefulSet(ctx context.Context, o *observed, a plan.ApplyMembers) error {
	if o.statefulSet != nil && !a.KeepTemplate && r.matches.holds(o, kindStatefulSet, &o.statefulSet.ObjectMeta, a.Replicas) {
		return nil
	}
	desired := build.StatefulSet(o.cluster, r.Options, a.Replicas)
	var current *appsac.StatefulSetApplyConfiguration
	from := int32(0)
	if o.statefulSet != nil {
		var err error
		if current, err = appsac.ExtractStatefulSet(o.statefulSet, cachev1alpha1.ManagedBy); err != nil {
			return err
		}
		from = ptr.Deref(o.statefulSet.Spec.Replicas, 1)
		if current.Spec != nil {
			// They can't change after birth, and a later operator may build others.
			desired.Spec.VolumeClaimTemplates = current.Spec.VolumeClaimTemplates
			if a.KeepTemplate {
				desired.Spec.Template = current.Spec.Template
			}
		}
	} else if behind, err := mayCreate[appsv1.StatefulSet](ctx, r, o, o.cluster.Name); behind || err != nil {
		return err
	}
	if from != a.Replicas || !equality.Semantic.DeepEqual(desired, current) {
		// Whatever is applied sets the size, too, and the cache may be behind.
		if behind, err := r.maySetReplicas(ctx, o, a.Replicas); err != nil || behind && from != a.Replicas {
			return err
		}
	}
	changed, err := applyChanged(ctx, r.Client, desired, current)
	if !changed && err == nil && !a.KeepTemplate {
		r.matches.note(o, kindStatefulSet, &o.statefulSet.ObjectMeta, a.Replicas)
	}
	if err == nil && changed && (from < a.Replicas || a.Replicas == 0 && from > 0) {
		// Of members that leave while others stay, the events of their claims tell.
		r.event(o, "Scaling", "Scale", "StatefulSet goes from %d to %d members", from, a.Replicas)
	}
	return err
}
