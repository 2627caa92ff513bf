package controllers

import (
	"context"
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/status"
)

// monitorInterval is how often a ServiceMonitor is looked at, or looked for
// where the API server didn't know the kind: it may be no kind of this cluster,
// or become one, so that nothing watches it.
const monitorInterval = 5 * time.Minute

// applyServiceMonitor brings the ServiceMonitor about, or takes back the one
// that the status tells of.
func (r *MemcachedReconciler) applyServiceMonitor(ctx context.Context, o *observed) error {
	desired := build.ServiceMonitor(o.cluster)
	if desired == nil && !meta.IsStatusConditionTrue(o.cluster.Status.Conditions, cachev1alpha1.ConditionMonitored) {
		o.monitored = status.NotMonitored
		return nil
	}
	if desired == nil {
		err := r.deleteServiceMonitor(ctx, o)
		if err == nil {
			o.monitored = status.NotMonitored
		}
		return err
	}
	now := r.Clock.Now()
	found, fresh := r.monitors.Last(o.cluster, now, monitorInterval)
	o.monitored = found
	if fresh {
		return nil
	}
	live, err := r.serviceMonitor(ctx, o)
	switch {
	case meta.IsNoMatchError(err):
		o.monitored = status.MonitoringUnknown
		r.monitors.Note(o.cluster, now, o.monitored)
		return nil
	case err != nil:
		return err
	case live != nil && !metav1.IsControlledBy(live, o.cluster):
		return &status.NameTakenError{Kind: build.ServiceMonitorKind.Kind, Name: o.cluster.Name}
	case live == nil || !contains(live.Object, desired.Object):
		err := r.Apply(ctx, client.ApplyConfigurationFromUnstructured(desired), client.FieldOwner(cachev1alpha1.ManagedBy), client.ForceOwnership)
		if err != nil {
			return err
		}
	}
	o.monitored = status.Monitored
	r.monitors.Note(o.cluster, now, o.monitored)
	return nil
}

// serviceMonitor of the cluster, or nil where there is none.
func (r *MemcachedReconciler) serviceMonitor(ctx context.Context, o *observed) (*unstructured.Unstructured, error) {
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(build.ServiceMonitorKind)
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(o.cluster), live); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return live, nil
}

func (r *MemcachedReconciler) deleteServiceMonitor(ctx context.Context, o *observed) error {
	live, err := r.serviceMonitor(ctx, o)
	if meta.IsNoMatchError(err) || err == nil && (live == nil || !metav1.IsControlledBy(live, o.cluster)) {
		return nil
	}
	if err != nil {
		return err
	}
	return r.deleteObject(ctx, live)
}

// contains tells whether everything that is desired is there: a server adds
// fields of its own.
func contains(live, desired any) bool {
	switch d := desired.(type) {
	case map[string]any:
		l, ok := live.(map[string]any)
		for key, value := range d {
			ok = ok && contains(l[key], value)
		}
		return ok
	case []any:
		l, ok := live.([]any)
		return ok && slices.EqualFunc(l, d, contains)
	}
	return reflect.DeepEqual(live, desired)
}
