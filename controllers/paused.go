package controllers

import (
	"k8s.io/apimachinery/pkg/api/meta"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/status"
)

// monitoredBefore is the ServiceMonitor's state according to the present status.
func monitoredBefore(cluster *cachev1alpha1.Memcached) (is status.Monitoring) {
	c := meta.FindStatusCondition(cluster.Status.Conditions, cachev1alpha1.ConditionMonitored)
	switch {
	case c == nil:
	case c.Reason == cachev1alpha1.ReasonServiceMonitorApplied:
		is = status.Monitored
	case c.Reason == cachev1alpha1.ReasonServiceMonitorUnknown:
		is = status.MonitoringUnknown
	}
	return is
}
