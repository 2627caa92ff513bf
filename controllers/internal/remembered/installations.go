package remembered

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// Installations remembers since when the annotations of each Memcached about its installations of the
// operator have not changed.
type Installations struct{ kept Of[annotations] }

type annotations struct {
	cluster             types.UID
	operator, otherOnes string
	since               time.Time
}

// UnchangedFor is how long these annotations of the Memcached have not changed, as far as this
// operator has seen.
func (i *Installations) UnchangedFor(cluster *cachev1alpha1.Memcached, now time.Time) (passed time.Duration) {
	says := annotations{
		cluster: cluster.UID, operator: cluster.Annotations[cachev1alpha1.AnnotationOperator],
		otherOnes: cluster.Annotations[cachev1alpha1.AnnotationOtherOperator],
	}
	i.kept.Use(client.ObjectKeyFromObject(cluster), func(last *annotations) {
		says.since = last.since
		if *last != says {
			says.since = now
			*last = says
		}
		passed = now.Sub(last.since)
	})
	return passed
}

// Forget forgets a Memcached that is gone.
func (i *Installations) Forget(key client.ObjectKey) { i.kept.Forget(key) }
