package build

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// TemplateSpec is a hash of the part of the spec that the members' pod template depends
// on. A change of any other part, such as the size, replaces no member. What is not left
// out here counts.
func TemplateSpec(c *cachev1alpha1.Memcached) string {
	spec := *c.Spec.DeepCopy()
	spec.Size = nil
	spec.Paused = false
	spec.Routing = cachev1alpha1.RoutingSpec{}
	spec.Drain = cachev1alpha1.DrainSpec{}
	spec.Binding = nil
	spec.Router = nil
	spec.Service = cachev1alpha1.ServiceTemplate{}
	spec.PodDisruptionBudget = cachev1alpha1.PodDisruptionBudgetSpec{}
	spec.NetworkPolicy = nil
	if spec.Storage != nil {
		spec.Storage = &cachev1alpha1.StorageSpec{Mode: spec.Storage.Mode}
	}
	if spec.Exporter != nil {
		spec.Exporter.ServiceMonitor = nil
	}
	b, _ := json.Marshal(spec) // a spec always has JSON
	const length = 8
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:length])
}
