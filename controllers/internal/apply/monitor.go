package apply

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
	"example.com/memcached-operator/controllers/internal/identity"
	"example.com/memcached-operator/controllers/internal/remembered"
	"example.com/memcached-operator/controllers/internal/status"
)

// monitorInterval is how often a ServiceMonitor is checked. A ServiceMonitor is not watched, because its kind may
// be missing, or be added later.
const monitorInterval = 5 * time.Minute

// Monitors remembers the state of each ServiceMonitor.
type Monitors struct {
	found remembered.Answers[status.Monitoring]
}

// MonitorRecheck is how long until the ServiceMonitor is checked again; 0 if the spec asks for
// none.
func MonitorRecheck(m status.Monitoring) time.Duration {
	if m == status.Monitored || m == status.MonitoringUnknown {
		return monitorInterval
	}
	return 0
}

// apply writes the ServiceMonitor, or deletes the one that status names. apply returns the state; with an error it
// returns the last known one. If another owner's object has the name, the error is an identity.NameTakenError.
func (m *Monitors) apply(ctx context.Context, a access, c *cachev1alpha1.Memcached, now time.Time) (status.Monitoring, error) {
	desired := build.ServiceMonitor(c)
	if desired == nil {
		if c.Status.ServiceMonitor != "" {
			if err := a.deleteServiceMonitor(ctx, c); err != nil {
				return status.MonitoringUnseen, err
			}
		}
		return status.NotMonitored, nil
	}
	found, fresh := m.found.Last(c, now, monitorInterval)
	if fresh {
		return found, nil
	}
	hash := hashOf(desired)
	live, err := a.serviceMonitor(ctx, c)
	switch {
	case meta.IsNoMatchError(err):
		m.found.Note(c, now, status.MonitoringUnknown)
		return status.MonitoringUnknown, nil
	case err != nil:
		return found, err
	case live != nil && !metav1.IsControlledBy(live, c):
		return found, &identity.NameTakenError{Kind: build.ServiceMonitorKind.Kind, Name: c.Name}
	case live == nil || !monitorAsWanted(live, desired, hash):
		desired.SetAnnotations(map[string]string{cachev1alpha1.AnnotationApplied: hash})
		err := a.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(desired), client.FieldOwner(cachev1alpha1.ManagedBy), client.ForceOwnership)
		if err != nil {
			return found, err
		}
	}
	m.found.Note(c, now, status.Monitored)
	return status.Monitored, nil
}

// Forget forgets a Memcached that is gone.
func (m *Monitors) Forget(key client.ObjectKey) { m.found.Forget(key) }

// serviceMonitor reads the cluster's ServiceMonitor live; nil if there is none.
func (a access) serviceMonitor(ctx context.Context, c *cachev1alpha1.Memcached) (*unstructured.Unstructured, error) {
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(build.ServiceMonitorKind)
	if err := a.Live.Get(ctx, client.ObjectKeyFromObject(c), live); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return live, nil
}

func (a access) deleteServiceMonitor(ctx context.Context, c *cachev1alpha1.Memcached) error {
	live, err := a.serviceMonitor(ctx, c)
	if meta.IsNoMatchError(err) || err == nil && (live == nil || !metav1.IsControlledBy(live, c)) {
		return nil
	}
	if err != nil {
		return err
	}
	return a.delete(ctx, live)
}

// monitorAsWanted tells whether the live ServiceMonitor has not changed since the last write of the desired
// one. Only another write removes a field that is no longer desired, such as an interval.
func monitorAsWanted(live, desired *unstructured.Unstructured, hash string) bool {
	return live.GetAnnotations()[cachev1alpha1.AnnotationApplied] == hash && (contains(live.Object, desired.Object) || asSent(live, hash, desired))
}

// contains tells whether live has all desired fields and values; the server adds fields of its own.
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
