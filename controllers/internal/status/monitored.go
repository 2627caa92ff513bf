package status

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// Monitoring is the state of the ServiceMonitor of spec.exporter.
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

// monitored is the condition Monitored; nil if the spec asks for no ServiceMonitor, and none is
// left.
func monitored(in *Input) *metav1.Condition {
	const kind = cachev1alpha1.ConditionMonitored
	var c metav1.Condition
	switch in.Monitoring {
	case NotMonitored:
		return nil
	case Monitored:
		c = condition(kind, true, cachev1alpha1.ReasonServiceMonitorApplied, "ServiceMonitor %s selects the exporters", in.Cluster.Name)
	case MonitoringUnknown:
		c = condition(kind, false, cachev1alpha1.ReasonServiceMonitorUnknown,
			"this cluster has no ServiceMonitors (monitoring.coreos.com/v1): install the Prometheus operator, "+
				"or remove spec.exporter.serviceMonitor and configure Prometheus to scrape the port named metrics")
	default:
		return meta.FindStatusCondition(in.Cluster.Status.Conditions, kind)
	}
	return &c
}
