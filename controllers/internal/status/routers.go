package status

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/claims"
)

// RouterBehind is a router that has not acknowledged the table, since when, and why; Why is empty
// if the router has not answered.
type RouterBehind struct {
	Pod   string
	Since time.Time
	Why   string
}

const (
	// behindAfter is how long a router may be behind before status names it.
	behindAfter = 5 * time.Second
	// maxBehind is how many routers status names.
	maxBehind = 8
)

// routers is status.routers; nil if the spec asks for none.
func routers(in *Input, w *waits) *cachev1alpha1.RouterStatus {
	if in.Cluster.Spec.Router == nil {
		return nil
	}
	s := &cachev1alpha1.RouterStatus{Address: build.RouterAddress(in.Cluster)}
	if d := in.Routers; d != nil {
		s.Replicas, s.Ready = d.Status.Replicas, d.Status.ReadyReplicas
	}
	for _, b := range in.RoutersBehind {
		if w.past(b.Since.Add(behindAfter)) {
			s.Behind = append(s.Behind, b.Pod)
		}
	}
	slices.Sort(s.Behind)
	s.Behind = s.Behind[:min(len(s.Behind), maxBehind)]
	return s
}

// routersReady says what is wrong with the first router that is not ready; nil if all are ready, or if the
// spec asks for none.
func routersReady(in *Input, w *waits) *metav1.Condition {
	const kind = cachev1alpha1.ConditionRoutersReady
	if in.Cluster.Spec.Router == nil {
		return nil
	}
	not := func(format string, args ...any) *metav1.Condition {
		return says(kind, false, cachev1alpha1.ReasonRoutersNotReady, format, args...)
	}
	d := in.Routers
	if d == nil {
		return not("Deployment %s is not there yet", build.RouterName(in.Cluster.Name))
	}
	wanted := ptr.Deref(d.Spec.Replicas, 1)
	if r := in.Cluster.Spec.Router.Replicas; r != nil {
		wanted = *r
	}
	s := d.Status
	why := routerTrouble(in, w)
	switch {
	case s.ReadyReplicas < wanted:
		return not("%d of %d routers are ready%s", s.ReadyReplicas, wanted, why)
	case s.ObservedGeneration != d.Generation || s.UpdatedReplicas != s.Replicas || s.Replicas != wanted:
		return not("routers are being replaced or stopped: %d exist, %d are of the new specification, %d are wanted%s", s.Replicas, s.UpdatedReplicas, wanted, why)
	}
	for _, b := range in.RoutersBehind {
		if b.Why != "" && w.past(b.Since.Add(claims.StuckAfter)) {
			return not("since %s, router %s has not followed the clients' list: %s", clock(b.Since), b.Pod, b.Why)
		}
	}
	return nil
}

// routerTrouble says why a router is missing or not ready; empty if all are ready.
func routerTrouble(in *Input, w *waits) string {
	for _, c := range in.Routers.Status.Conditions {
		if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue {
			return ": " + c.Message
		}
	}
	for i := range in.RouterPods {
		if t := podTrouble(in.Cluster, &in.RouterPods[i], w); t != nil {
			return ": " + t.message
		}
	}
	return ""
}
