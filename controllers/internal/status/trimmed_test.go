package status

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/trim"
	"example.com/memcached-operator/test/argocd"
)

// compute is Compute with pods as the cache has them, because production never has untrimmed pods. Argo CD's health has
// to follow from each status.
func compute(t *testing.T, in *Input) cachev1alpha1.MemcachedStatus {
	t.Helper()
	for i := range in.Pods {
		trimmed, err := trim.Pod(in.Pods[i].DeepCopy())
		if err != nil {
			t.Fatal(err)
		}
		in.Pods[i] = *trimmed.(*corev1.Pod)
	}
	s := Compute(in)
	written := in.Cluster.DeepCopy()
	written.Status = s
	if err := argocd.Check(written); err != nil {
		t.Error(err)
	}
	return s
}
