package integration

import (
	"testing"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
)

// No rule can know that a volume is missing. The API server refuses the pods, and status has its words.
func TestAMountWithoutItsVolumeIsDegradedInTheAPIServersWords(t *testing.T) {
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 1)
	w.change(w.memcached(), `{"spec":{"podTemplate":{"volumeMounts":[{"name":"missing","mountPath":"/etc/missing"}]}}}`)
	w.degraded(cachev1alpha1.ReasonInvalidSpec, "volumeMounts", "missing")
	w.change(w.memcached(), `{"spec":{"podTemplate":{"volumeMounts":null}}}`)
	w.settled(1)
}
