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

// ContainerExporter is the name of the exporter's container.
const ContainerExporter = "exporter"

const metricsPort = "metrics"

// ServiceMonitorKind is the kind of the Prometheus operator.
var ServiceMonitorKind = schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: "ServiceMonitor"}

// containers returns memcached's container, and the exporter's if the spec asks for it.
func containers(c *cachev1alpha1.Memcached, o Options, memcached *coreac.ContainerApplyConfiguration) []*coreac.ContainerApplyConfiguration {
	e := c.Spec.Exporter
	if e == nil {
		return []*coreac.ContainerApplyConfiguration{memcached}
	}
	image := e.Image
	if image == "" {
		image = o.ExporterImage
	}
	exporter := coreac.Container().
		WithName(ContainerExporter).
		WithImage(image).
		WithTerminationMessagePolicy(messagePolicy).
		WithArgs(
			fmt.Sprintf("--memcached.address=localhost:%d", c.Spec.ContainerPort),
			fmt.Sprintf("--web.listen-address=:%d", exporterPort(e))).
		WithPorts(coreac.ContainerPort().
			WithName(metricsPort).
			WithProtocol(corev1.ProtocolTCP).
			WithContainerPort(exporterPort(e))).
		WithResources(resourcesOf(&e.Resources, "10m", "32Mi")).
		WithSecurityContext(containerSecurity())
	if c.Spec.TLS != nil {
		exporter.WithArgs(
			"--memcached.tls.enable",
			"--memcached.tls.insecure-skip-verify", // the exporter connects to localhost, which the certificate is not for
			"--memcached.tls.cert-file="+tlsDir+"/"+contract.CertFile,
			"--memcached.tls.key-file="+tlsDir+"/"+contract.KeyFile).
			WithVolumeMounts(coreac.VolumeMount().WithName(tlsVolume).WithMountPath(tlsDir).WithReadOnly(true))
	}
	return []*coreac.ContainerApplyConfiguration{memcached, exporter}
}

// exporterPort is the spec's, with the API server's default.
func exporterPort(e *cachev1alpha1.ExporterSpec) int32 {
	if e.Port == 0 {
		return 9150
	}
	return e.Port
}

// ServiceMonitor is for the exporters; nil if the spec asks for none. It has no field that the
// server sets, so that it can be compared with the live one.
func ServiceMonitor(c *cachev1alpha1.Memcached) *unstructured.Unstructured {
	if c.Spec.Exporter == nil || c.Spec.Exporter.ServiceMonitor == nil {
		return nil
	}
	given := c.Spec.Exporter.ServiceMonitor
	labels := maps.Clone(given.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, Labels(c, cachev1alpha1.ComponentMember))
	endpoint := map[string]any{"port": metricsPort, "path": "/metrics"}
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
