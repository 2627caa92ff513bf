package integration

import (
	"testing"

	"example.com/memcached-operator/api/v1alpha1/apitest"
)

// The operator watches all namespaces, as by default. No other operator may run meanwhile, so the test is not
// parallel.
func TestOneOperatorServesClustersOfOneNameInAllNamespaces(t *testing.T) {
	w, other := newSerialNamespace(t), newSerialNamespace(t)
	w.everywhere = true
	w.startOperator()
	w.storageCluster(apitest.MakeMemcached(name), 2)
	other.storageCluster(apitest.MakeMemcached(name), 2)
	left, kept := w.claim(1), other.claim(1)
	w.scale(1)
	w.claimGone(1, left.UID)
	w.settled(1)
	other.settled(2)
	equal(other, "the other cluster's claim", other.claim(1).UID, kept.UID)
	equal(other, "the other cluster's drains", len(other.memcached().Status.LastDrains), 0)
}
