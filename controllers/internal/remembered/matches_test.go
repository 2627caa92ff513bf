package remembered

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

func TestAMatchHoldsForExactlyWhatWasCompared(t *testing.T) {
	type compared struct {
		cluster, object metav1.ObjectMeta
		kind            string
		replicas        int32
	}
	noted := compared{
		cluster: metav1.ObjectMeta{Namespace: "default", Name: "cache", UID: "c", Generation: 3},
		object:  metav1.ObjectMeta{UID: "o", ResourceVersion: "7"},
		kind:    "StatefulSet", replicas: 4,
	}
	for name, test := range map[string]struct {
		change func(*compared)
		want   bool
	}{
		"nothing changed":               {func(*compared) {}, true},
		"the spec changed":              {func(c *compared) { c.cluster.Generation++ }, false},
		"another Memcached of the name": {func(c *compared) { c.cluster.UID = "d" }, false},
		"a Memcached of another name":   {func(c *compared) { c.cluster.Name = "other" }, false},
		"the object changed":            {func(c *compared) { c.object.ResourceVersion = "8" }, false},
		"another object of the name":    {func(c *compared) { c.object.UID = "p" }, false},
		"another kind":                  {func(c *compared) { c.kind = "Service" }, false},
		"another size":                  {func(c *compared) { c.replicas = 3 }, false},
	} {
		t.Run(name, func(t *testing.T) {
			var m Matches
			seen := func(c compared) *cachev1alpha1.Memcached { return &cachev1alpha1.Memcached{ObjectMeta: c.cluster} }
			m.Note(seen(noted), noted.kind, &noted.object, noted.replicas)
			now := noted
			test.change(&now)
			if got := m.Has(seen(now), now.kind, &now.object, now.replicas); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
			m.Forget(client.ObjectKeyFromObject(seen(noted)))
			if m.Has(seen(noted), noted.kind, &noted.object, noted.replicas) {
				t.Error("it holds after the Memcached was forgotten")
			}
		})
	}
}
