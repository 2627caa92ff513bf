package controllers

import (
	"k8s.io/apimachinery/pkg/api/meta"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/status"
)

// paused tells whether a person wants nothing of the cluster changed. A deletion is
// a later word of theirs, and goes on.
func paused(c *cachev1alpha1.Memcached) bool { return c.Spec.Paused && c.DeletionTimestamp == nil }

// keep lets status go on saying what nobody looks at while nothing is applied: which
// servers the clients were given, and what became of the ServiceMonitor.
func (o *observed) keep() {
	o.servers, o.record = o.cluster.Status.Servers, o.recorded()
	c := meta.FindStatusCondition(o.cluster.Status.Conditions, cachev1alpha1.ConditionMonitored)
	switch {
	case c == nil:
	case c.Reason == cachev1alpha1.ReasonServiceMonitorApplied:
		o.monitored = status.Monitored
	case c.Reason == cachev1alpha1.ReasonServiceMonitorUnknown:
		o.monitored = status.MonitoringUnknown
	}
}
