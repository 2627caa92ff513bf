package identity

import (
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/ring"
	"example.com/memcached-operator/drainer/contract"
)

// Duty is what a drainer's Job or pod does, by its annotations. It is empty if these are
// not as the operator writes them.
type Duty struct {
	Claim types.UID
	// Survivors is the number of members that a drain adds items to; 0 for a move.
	Survivors int32
	// Target names the ring of a move; empty for a drain.
	Target string
	// Waits: it is a prepared move, which was not told to begin.
	Waits bool
}

// MaxUID and maxTarget are the longest values that the operator writes, in bytes; both
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
	case cachev1alpha1.ComponentMove:
		if d.Target = annotations[cachev1alpha1.AnnotationTarget]; d.Target == "" || len(d.Target) > maxTarget {
			return Duty{}
		}
		begin, is := annotations[cachev1alpha1.AnnotationBegin] // an earlier operator wrote none
		d.Waits = is && strings.TrimSuffix(begin, contract.BeginLeases) != d.Target
	default:
		return Duty{}
	}
	return d
}

// jobName is the name of its Job.
func (d Duty) jobName() string {
	if d.Target != "" {
		return build.MoveName("", d.Claim, d.Target)
	}
	return build.DrainName("", d.Claim)
}

// Source is what its receipt has to name.
func (d Duty) Source() string {
	if d.Target != "" {
		return ring.Source(d.Claim, d.Target)
	}
	return string(d.Claim)
}

// Moves tells a move's Job from a drain's.
func Moves(job *batchv1.Job) bool { return DutyOf(job).Target != "" }

// ClaimUID is the UID of the claim that the Job is about.
func ClaimUID(job *batchv1.Job) types.UID { return DutyOf(job).Claim }
