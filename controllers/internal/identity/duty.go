package identity

import (
	"math"
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

// Duty is the work of a drainer's Job or pod, by its annotations; empty if the annotations are not as the
// operator writes them.
type Duty struct {
	Claim types.UID
	// Survivors is the number of members that a drain gives data to, the ordinals from Start on; 0 for a
	// move.
	Start, Survivors int32
	// Target names the ring of a move; empty for a drain.
	Target string
	// Waits: a prepared move that was not told to begin yet.
	Waits bool
}

// MaxUID and maxTarget are the longest values that the operator writes, in bytes; both
// below MaxAnnotation.
const (
	MaxUID    = 64
	maxTarget = 64
)

// DutyOf parses the annotations of a Job or a pod.
func DutyOf(o metav1.Object) Duty {
	annotations := o.GetAnnotations()
	d := Duty{Claim: types.UID(annotations[cachev1alpha1.AnnotationClaimUID])}
	if d.Claim == "" || len(d.Claim) > MaxUID {
		return Duty{}
	}
	switch o.GetLabels()[cachev1alpha1.LabelComponent] {
	case cachev1alpha1.ComponentDrainer:
		_, general := o.GetLabels()[cachev1alpha1.LabelStatefulSetDrain]
		var ok bool
		if d.Start, d.Survivors, ok = survivors(annotations[cachev1alpha1.AnnotationSurvivors], general); !ok {
			return Duty{}
		}
	case cachev1alpha1.ComponentMove:
		if d.Target = annotations[cachev1alpha1.AnnotationTarget]; d.Target == "" || len(d.Target) > maxTarget {
			return Duty{}
		}
		d.Waits = strings.TrimSuffix(annotations[cachev1alpha1.AnnotationBegin], contract.BeginLeases) != d.Target
	default:
		return Duty{}
	}
	return d
}

// survivors parses AnnotationSurvivors. A Memcached's members have the ordinals from 0 on, below
// MaxSize; those of other StatefulSets (general) may have any.
func survivors(s string, general bool) (start, count int32, ok bool) {
	const most = math.MaxInt32
	from, number, has := strings.Cut(s, "+")
	if !has {
		from, number = "0", s
	}
	first, err := strconv.ParseInt(from, 10, 32)
	n, err2 := strconv.ParseInt(number, 10, 32)
	if len(s) > cachev1alpha1.MaxAnnotation || err != nil || err2 != nil || first < 0 || n < 1 || first+n > most {
		return 0, 0, false
	}
	return int32(first), int32(n), general || !has && n <= cachev1alpha1.MaxSize
}

// jobName is the name of the Job with this duty.
func (d Duty) jobName() string {
	if ring.IsWarm(d.Target) {
		return build.WarmName("", d.Claim, d.Target)
	}
	if d.Target != "" {
		return build.MoveName("", d.Claim, d.Target)
	}
	return build.DrainName("", d.Claim)
}

// Source is the source that the receipt of this duty has to name.
func (d Duty) Source() string {
	if d.Target != "" {
		return ring.Source(d.Claim, d.Target)
	}
	return string(d.Claim)
}

// Moves tells whether the Job moves items between members.
func Moves(job *batchv1.Job) bool { d := DutyOf(job); return d.Target != "" && !ring.IsWarm(d.Target) }

// Warms tells whether the Job copies from the source of spec.warmFrom. Its claim is the Memcached.
func Warms(job *batchv1.Job) bool { return ring.IsWarm(DutyOf(job).Target) }

// ClaimUID is the UID of the claim that the Job is about.
func ClaimUID(job *batchv1.Job) types.UID { return DutyOf(job).Claim }

// MaxClaims bounds AnnotationClaims, in bytes: a StatefulSet has some volumeClaimTemplates.
const MaxClaims = 4 << 10

// Claims has the UIDs of all claims that the Job drains, joined by commas; empty for one claim.
func Claims(job *batchv1.Job) string {
	if claims := job.Annotations[cachev1alpha1.AnnotationClaims]; len(claims) <= MaxClaims {
		return claims
	}
	return ""
}
