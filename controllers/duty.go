package controllers

import (
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/ring"
)

// duty is what a drainer's Job, or its pod, is for, by its annotations. Where they are
// not those that the operator writes, the duty is none.
type duty struct {
	claim types.UID
	// survivors that it drains into; 0 of a move between members.
	survivors int32
	// target names the ring by which it moves; empty of a drain.
	target string
}

// The longest values that the operator writes, in bytes; below MaxAnnotation.
const (
	maxUID    = 64
	maxTarget = 64
)

func duties(o metav1.Object) duty {
	annotations := o.GetAnnotations()
	d := duty{claim: types.UID(annotations[cachev1alpha1.AnnotationClaimUID])}
	if d.claim == "" || len(d.claim) > maxUID {
		return duty{}
	}
	switch o.GetLabels()[cachev1alpha1.LabelComponent] {
	case cachev1alpha1.ComponentDrainer:
		survivors := annotations[cachev1alpha1.AnnotationSurvivors]
		n, err := strconv.ParseInt(survivors, 10, 32)
		if len(survivors) > cachev1alpha1.MaxAnnotation || err != nil || n < 1 || n > cachev1alpha1.MaxSize {
			return duty{}
		}
		d.survivors = int32(n)
	case cachev1alpha1.ComponentPlacement:
		if d.target = annotations[cachev1alpha1.AnnotationTarget]; d.target == "" || len(d.target) > maxTarget {
			return duty{}
		}
	default:
		return duty{}
	}
	return d
}

// jobName is how the name of its Job ends.
func (d duty) jobName() string {
	if d.target != "" {
		return build.PlacementName("", d.claim, d.target)
	}
	return build.JobName("", d.claim)
}

// source is what the receipt has to be about.
func (d duty) source() string {
	if d.target != "" {
		return ring.Source(d.claim, d.target)
	}
	return string(d.claim)
}

// places tells a placement's Job from a drain's.
func places(job *batchv1.Job) bool { return duties(job).target != "" }

func claimUID(job *batchv1.Job) types.UID { return duties(job).claim }
