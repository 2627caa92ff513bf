package observe

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/controllers/internal/ring"
)

// PlanList translates the clients' list for the plan; nil if there is none.
func PlanList(list *corev1.ConfigMap) *plan.List {
	if list == nil {
		return nil
	}
	l := &plan.List{Servers: int32(min(ListSize(list), cachev1alpha1.MaxSize))}
	var kept string
	if kept, l.Recorded = list.Annotations[cachev1alpha1.AnnotationRing]; l.Recorded {
		if record, err := ring.Parse(kept); err == nil {
			l.Record = &record
		}
	}
	return l
}

// statusListSize is how many servers status names. Status is never older than our last write of the list, but
// any client may have written it.
func statusListSize(c *cachev1alpha1.Memcached) int32 {
	return int32(min(len(c.Status.Servers), cachev1alpha1.MaxSize))
}

// ListSize is how many servers the list has.
func ListSize(list *corev1.ConfigMap) int { return strings.Count(list.Data[build.ServersKey], "\n") }

// NeverListed tells whether no member has ever been on this list.
func NeverListed(list *corev1.ConfigMap) bool {
	l := PlanList(list)
	return l.Servers == 0 && l.Record != nil && l.Record.Ring.Size == 0 && l.Record.From.Size == 0
}
