package remembered

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

func atVersion(version string) *cachev1alpha1.Memcached {
	return &cachev1alpha1.Memcached{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cache", ResourceVersion: version}}
}

func TestAReconcileStartsFromOurOwnLastWriteUntilTheCacheHasIt(t *testing.T) {
	var w Written
	now := time.Unix(1000, 0)
	if got := w.Newest(atVersion("7"), now).ResourceVersion; got != "7" {
		t.Errorf("nothing was written: got version %s, want the cached 7", got)
	}
	w.Note(atVersion("10"), 0, now)
	for _, step := range []struct{ cached, want string }{{"7", "10"}, {"9", "10"}, {"10", "10"}, {"8", "8"}, {"11", "11"}} {
		// After the cache had version 10, our write is forgotten.
		if got := w.Newest(atVersion(step.cached), now).ResourceVersion; got != step.want {
			t.Errorf("version %s is cached: got %s, want %s", step.cached, got, step.want)
		}
	}
	w.Note(atVersion("20"), 0, now)
	w.Forget(client.ObjectKeyFromObject(atVersion("20")))
	if got := w.Newest(atVersion("12"), now).ResourceVersion; got != "12" {
		t.Errorf("the Memcached was gone in between: got version %s, want the cached 12", got)
	}
}
