package status

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// Monitoring is what became of the ServiceMonitor that a spec may ask for.
type Monitoring int

// What may become of it.
const (
	// NotMonitored: none is asked for.
	NotMonitored Monitoring = iota
	// Monitored: it is there as wanted.
	Monitored
	// MonitoringUnknown: the API server doesn't know the kind.
	MonitoringUnknown
)

func monitored(in *Input) metav1.Condition {
	const kind = cachev1alpha1.ConditionMonitored
	switch in.Monitoring {
	case Monitored:
		return condition(kind, true, cachev1alpha1.ReasonServiceMonitorApplied, "ServiceMonitor %s selects the exporters", in.Cluster.Name)
	case MonitoringUnknown:
		return condition(kind, false, cachev1alpha1.ReasonServiceMonitorUnknown,
			"this cluster has no ServiceMonitors (monitoring.coreos.com/v1): install the Prometheus operator, "+
				"or remove spec.exporter.serviceMonitor and let Prometheus find the port named metrics by itself")
	}
	return condition(kind, false, cachev1alpha1.ReasonNotRequested, "no ServiceMonitor is asked for")
}
