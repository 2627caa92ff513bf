package e2e

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// TestRollOutsKeepTheCache: one member after the other is replaced, and the next one
// only when the last has its items again. So all of them are there when the last
// member is ready, without another look: after a change that a warm file bears, and
// after changes for which it has to be replayed.
func TestRollOutsKeepTheCache(t *testing.T) {
	t.Parallel()
	f := setup(t, persistent(2))
	objects := f.objects()
	f.fill(2, objects)
	ring := f.servers(2)

	for what, change := range map[string]func(*cachev1alpha1.MemcachedSpec){
		"a template":     func(s *cachev1alpha1.MemcachedSpec) { s.Template.Annotations = map[string]string{"changed": "yes"} },
		"another memory": func(s *cachev1alpha1.MemcachedSpec) { s.Memory = ptr.To(resource.MustParse("208Mi")) },
		"other flags": func(s *cachev1alpha1.MemcachedSpec) {
			s.MaxItemSize, s.ExtraArgs = ptr.To(resource.MustParse("2Mi")), []string{"-f", "1.3"}
		},
	} {
		f.Logf("rolling out %s", what)
		old := map[types.UID]bool{}
		for _, pod := range f.pods() {
			old[pod.UID] = true
		}
		mc := f.memcached()
		before := mc.DeepCopy()
		change(&mc.Spec)
		f.must(kube.Patch(f.ctx, mc, client.MergeFrom(before)))
		f.eventually(what+" is rolled out", func() bool {
			return f.rolling(old) == 2
		})
		f.expectAll(2, objects)
		if after := f.servers(2); after[0] != ring[0] || after[1] != ring[1] {
			t.Fatalf("the ring was %v and is %v", ring, after)
		}
		f.settled(2)
	}
}

// rolling counts the members that are replaced and ready, and fails where more than
// one is away.
func (f *fixture) rolling(old map[types.UID]bool) (replaced int) {
	f.Helper()
	present := 0
	for _, pod := range f.pods() {
		if !ready(&pod) || pod.DeletionTimestamp != nil {
			continue
		}
		present++
		if !old[pod.UID] {
			replaced++
		}
	}
	if present < 1 {
		f.Fatalf("at %s both members are away", time.Now().Format(time.TimeOnly))
	}
	return replaced
}
