package remembered

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// Installations remembers since when the annotations of each object about its installations of the
// operator have not changed, and what its status was given to say about them.
type Installations struct {
	kept ByObject[annotations]
	told ByObject[told]
}

// told has the words about an object's installation that a status was given.
type told struct {
	object types.UID
	// seen: a later read of the status has found that message. replaced is since when the message is gone.
	seen     bool
	replaced time.Time
}

// tellAgainTime is how long status is left alone after the object's installation has replaced this message.
const tellAgainTime = time.Hour

// Tells tells whether status is to say that the object's installation can't be asked whether it is at work.
// says: status says so now. If another client has replaced that message, the installation is at work.
func (i *Installations) Tells(object client.Object, says bool, now time.Time) (tells bool) {
	i.told.Use(client.ObjectKeyFromObject(object), func(t *told) {
		if t.object != object.GetUID() || says {
			*t = told{object: object.GetUID(), seen: says}
		}
		switch {
		case !t.seen || says:
			tells = true
		case t.replaced.IsZero():
			t.replaced = now
		case now.Sub(t.replaced) >= tellAgainTime:
			*t, tells = told{object: t.object}, true
		}
	})
	return tells
}

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
func (i *Installations) Forget(key client.ObjectKey) {
	i.kept.Forget(key)
	i.told.Forget(key)
}
