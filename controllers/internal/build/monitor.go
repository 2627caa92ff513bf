package build

import (
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/drainer/contract"
)

const metricsPort = "metrics"

// ServiceMonitorKind is the kind of the Prometheus operator.
var ServiceMonitorKind = schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: "ServiceMonitor"}

// measured gives memcached's container the port at which its supervisor serves metrics, if the spec asks for them.
func measured(c *cachev1alpha1.Memcached, memcached *coreac.ContainerApplyConfiguration) *coreac.ContainerApplyConfiguration {
	if port := MetricsPort(c); port != 0 {
		memcached.WithPorts(coreac.ContainerPort().
			WithName(metricsPort).
			WithProtocol(corev1.ProtocolTCP).
			WithContainerPort(port))
	}
	return memcached
}

// MetricsPort is the port of the members' metrics; 0 if the spec asks for none. The API server sets the default.
func MetricsPort(c *cachev1alpha1.Memcached) int32 {
	switch m := c.Spec.Metrics; {
	case m == nil:
		return 0
	case m.Port == 0:
		return 9150
	default:
		return m.Port
	}
}

// ServiceMonitor is for the members; nil if the spec asks for none. The object has no field that the server sets,
// so that it can be compared with the live one.
func ServiceMonitor(c *cachev1alpha1.Memcached) *unstructured.Unstructured {
	if c.Spec.Metrics == nil || c.Spec.Metrics.ServiceMonitor == nil {
		return nil
	}
	given := c.Spec.Metrics.ServiceMonitor
	labels := maps.Clone(given.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, Labels(c, cachev1alpha1.ComponentMember))
	endpoint := map[string]any{"port": metricsPort, "path": contract.MetricsPath}
	if given.Interval != nil {
		endpoint["interval"] = prometheusDuration(given.Interval.Duration)
	}
	m := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"selector":          map[string]any{"matchLabels": anyMap(Labels(c, cachev1alpha1.ComponentMember))},
		"namespaceSelector": map[string]any{"matchNames": []any{c.Namespace}},
		"endpoints":         []any{endpoint},
		// Series of different members have different pod labels.
		"podTargetLabels": []any{cachev1alpha1.LabelInstance},
	}}}
	m.SetGroupVersionKind(ServiceMonitorKind)
	m.SetName(c.Name)
	m.SetNamespace(c.Namespace)
	m.SetLabels(labels)
	m.SetOwnerReferences([]metav1.OwnerReference{ownerReference(c)})
	return m
}

// prometheusDuration is a duration as Prometheus writes it, without fractions.
func prometheusDuration(d time.Duration) string {
	if d%time.Second == 0 {
		return fmt.Sprintf("%ds", d/time.Second)
	}
	return fmt.Sprintf("%dms", d.Milliseconds())
}

func anyMap(in map[string]string) map[string]any {
	out := make(map[string]any, len(in))
	for k, v := range in {
		out[k] = v
	}
	return out
}
