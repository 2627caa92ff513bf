package build

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// TemplateSpec is a hash of the part of the spec that the members' pod template depends on. A
// change of any other part, such as the size, replaces no member. Fields that are not cleared here
// count.
func TemplateSpec(c *cachev1alpha1.Memcached) string {
	spec := *c.Spec.DeepCopy()
	spec.Size = nil
	spec.Paused = false
	spec.Routing = cachev1alpha1.RoutingSpec{}
	spec.Drain = cachev1alpha1.DrainSpec{}
	spec.Binding = nil
	spec.Router = nil
	spec.Service = cachev1alpha1.ServiceSpec{}
	spec.PodDisruptionBudget = cachev1alpha1.PodDisruptionBudgetSpec{}
	spec.NetworkPolicy = nil
	spec.WarmFrom = nil
	if spec.Storage != nil {
		spec.Storage = &cachev1alpha1.StorageSpec{Mode: spec.Storage.Mode}
	}
	if spec.Metrics != nil {
		spec.Metrics.ServiceMonitor = nil
	}
	return hashOf(spec)
}

// RouterSpec is TemplateSpec for the routers' pods. Only fields that are listed here count.
func RouterSpec(c *cachev1alpha1.Memcached) string {
	router := *c.Spec.Router.DeepCopy()
	router.Replicas, router.Service = nil, cachev1alpha1.ServiceSpec{}
	var source *cachev1alpha1.WarmSource
	if from := c.Spec.WarmFrom; from != nil && from.OnMiss {
		source = from.DeepCopy()
		source.RateLimit, source.Until, source.OnShortage = nil, "", ""
	}
	return hashOf(cachev1alpha1.MemcachedSpec{
		WarmFrom: source, Router: &router, PodTemplate: c.Spec.PodTemplate, TLS: c.Spec.TLS, Auth: c.Spec.Auth,
		ContainerPort: c.Spec.ContainerPort, MaxItemSize: c.Spec.MaxItemSize,
	})
}

func hashOf(spec cachev1alpha1.MemcachedSpec) string {
	b, _ := json.Marshal(spec) // a spec can always be marshalled
	const length = 8
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:length])
}
