package build

import (
	"cmp"
	"fmt"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// Decision is the part of spec.drain that decides about the volumes of members that leave now.
func Decision(c *cachev1alpha1.Memcached) string {
	policy := cmp.Or(c.Spec.Drain.Policy, cachev1alpha1.PolicyDrain)
	if c.Spec.Drain.OnUnrecoverable == cachev1alpha1.UnreadableRelease {
		return fmt.Sprintf("%s,%s", policy, cachev1alpha1.UnreadableRelease)
	}
	return string(policy)
}
