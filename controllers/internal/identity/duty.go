package identity

import (
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/ring"
)

// Duty is what a drainer's Job, or its pod, is for, by its annotations. Where they are
// not those that the operator writes, the duty is none.
type Duty struct {
	Claim types.UID
	// Survivors that it drains into; 0 of a move between members.
	Survivors int32
	// Target names the ring by which it moves; empty of a drain.
	Target string
}

// MaxUID and maxTarget are the longest values that the operator writes, in bytes. Both are
// below MaxAnnotation.
const (
	MaxUID    = 64
	maxTarget = 64
)

// DutyOf of a Job or a pod.
func DutyOf(o metav1.Object) Duty {
	annotations := o.GetAnnotations()
	d := Duty{Claim: types.UID(annotations[cachev1alpha1.AnnotationClaimUID])}
	if d.Claim == "" || len(d.Claim) > MaxUID {
		return Duty{}
	}
	switch o.GetLabels()[cachev1alpha1.LabelComponent] {
	case cachev1alpha1.ComponentDrainer:
		survivors := annotations[cachev1alpha1.AnnotationSurvivors]
		n, err := strconv.ParseInt(survivors, 10, 32)
		if len(survivors) > cachev1alpha1.MaxAnnotation || err != nil || n < 1 || n > cachev1alpha1.MaxSize {
			return Duty{}
		}
		d.Survivors = int32(n)
	case cachev1alpha1.ComponentPlacement:
		if d.Target = annotations[cachev1alpha1.AnnotationTarget]; d.Target == "" || len(d.Target) > maxTarget {
			return Duty{}
		}
	default:
		return Duty{}
	}
	return d
}

// jobName is how the name of its Job ends.
func (d Duty) jobName() string {
	if d.Target != "" {
		return build.PlacementName("", d.Claim, d.Target)
	}
	return build.DrainName("", d.Claim)
}

// Source is what the receipt has to be about.
func (d Duty) Source() string {
	if d.Target != "" {
		return ring.Source(d.Claim, d.Target)
	}
	return string(d.Claim)
}

// Places tells a placement's Job from a drain's.
func Places(job *batchv1.Job) bool { return DutyOf(job).Target != "" }

// ClaimUID is that of the claim that the Job is about.
func ClaimUID(job *batchv1.Job) types.UID { return DutyOf(job).Claim }
