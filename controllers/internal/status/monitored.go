package status

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// Monitoring is the state of the ServiceMonitor of spec.metrics.
type Monitoring int

// The states of the ServiceMonitor.
const (
	// MonitoringUnseen: the ServiceMonitor was not read; status keeps its condition.
	MonitoringUnseen Monitoring = iota
	// NotMonitored: the spec asks for none, and none exists.
	NotMonitored
	// Monitored: the ServiceMonitor exists as wanted.
	Monitored
	// MonitoringUnknown: the API server doesn't know the kind.
	MonitoringUnknown
)

// monitored is nil if no ServiceMonitor is asked for, or if it is there.
func monitored(in *Input) *metav1.Condition {
	const kind = cachev1alpha1.ConditionMonitored
	switch in.Monitoring {
	case NotMonitored, Monitored:
		return nil
	case MonitoringUnknown:
		return says(kind, false, cachev1alpha1.ReasonServiceMonitorUnknown,
			"this cluster has no ServiceMonitors (monitoring.coreos.com/v1): install the Prometheus operator, "+
				"or remove spec.metrics.serviceMonitor and configure Prometheus to scrape the port named metrics")
	}
	return meta.FindStatusCondition(in.Cluster.Status.Conditions, kind)
}

// MonitoringBefore is the ServiceMonitor's state by the present status.
func MonitoringBefore(s *cachev1alpha1.MemcachedStatus) Monitoring {
	c := meta.FindStatusCondition(s.Conditions, cachev1alpha1.ConditionMonitored)
	switch {
	case s.ServiceMonitor != "":
		return Monitored
	case c != nil && c.Reason == cachev1alpha1.ReasonServiceMonitorUnknown:
		return MonitoringUnknown
	}
	return MonitoringUnseen
}

// serviceMonitor is the name of the ServiceMonitor that exists; if it was not read, that of before.
func serviceMonitor(in *Input) string {
	switch in.Monitoring {
	case Monitored:
		return in.Cluster.Name
	case NotMonitored, MonitoringUnknown:
		return ""
	}
	return in.Cluster.Status.ServiceMonitor
}
