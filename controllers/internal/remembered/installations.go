package remembered

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// Installations remembers since when the annotations of each object about its installations of the
// operator have not changed.
type Installations struct{ kept Of[annotations] }

type annotations struct {
	object              types.UID
	operator, otherOnes string
	since               time.Time
}

// UnchangedFor is how long these annotations of the object have not changed, as far as this
// operator has seen.
func (i *Installations) UnchangedFor(object client.Object, now time.Time) (passed time.Duration) {
	a := object.GetAnnotations()
	says := annotations{object: object.GetUID(), operator: a[cachev1alpha1.AnnotationOperator], otherOnes: a[cachev1alpha1.AnnotationOtherOperator]}
	i.kept.Use(client.ObjectKeyFromObject(object), func(last *annotations) {
		says.since = last.since
		if *last != says {
			says.since = now
			*last = says
		}
		passed = now.Sub(last.since)
	})
	return passed
}

// Forget forgets an object that is gone.
func (i *Installations) Forget(key client.ObjectKey) { i.kept.Forget(key) }
