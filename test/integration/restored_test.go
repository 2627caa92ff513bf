package integration

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"example.com/memcached-operator/api/v1alpha1/apitest"
)

// restored removes the managed fields of an object, as a restore from a backup does.
func (w *world) restored(object client.Object) {
	w.Helper()
	w.change(object, `{"metadata":{"managedFields":[{}]}}`)
	if fields := object.GetManagedFields(); len(fields) != 0 {
		w.Fatalf("there are fields of %s", fields[0].Manager)
	}
}

// Claim templates can't change, and the present spec would make others.
func TestAStatefulSetThatWasRestoredFromABackupIsScaled(t *testing.T) {
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 1)
	w.change(w.memcached(), `{"spec":{"storage":{"size":"256Mi"}}}`)
	w.settled(1)
	w.stopOperator()
	w.restored(w.statefulSet())
	w.startOperator()
	w.scale(2)
	w.settled(2)
	w.quiet()
	before := len(w.journal.Writes())
	w.restartOperator()
	for range 10 {
		w.reconcile()
	}
	if wrote := w.journal.Writes()[before:]; len(wrote) != 0 {
		t.Errorf("at rest it wrote %v", wrote)
	}
	w.scale(1)
	w.settled(1)
}
