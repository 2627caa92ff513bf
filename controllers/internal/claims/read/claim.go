package read

import (
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/identity"
	"example.com/memcached-operator/controllers/internal/ring"
	"example.com/memcached-operator/controllers/internal/trim"
)

// Claim translates a claim for the plan, without its receipt, which names the claim itself, and without what
// only one kind of owner writes on it. asideName names the claim that takes over its volume.
func Claim(c *corev1.PersistentVolumeClaim, ordinal int32, aside bool, asideName string) claims.Claim {
	out := claims.Claim{
		Name:      c.Name,
		UID:       c.UID,
		Ordinal:   ordinal,
		Finalizer: slices.Contains(c.Finalizers, cachev1alpha1.ClaimFinalizer),
		Aside:     aside,
		First:     types.UID(c.Annotations[cachev1alpha1.AnnotationAsideOf]),
		Deleting:  c.DeletionTimestamp != nil,
		InUse:     slices.Contains(c.Finalizers, trim.PVCProtection),
		Volume:    c.Spec.VolumeName,
		AsideName: asideName,
		Pending:   aside && c.Status.Phase != corev1.ClaimBound,
		Request:   Request(c.Annotations[cachev1alpha1.AnnotationDrain], claims.Skip, claims.Retry, claims.Hold),
	}
	if c.Status.Phase == corev1.ClaimBound {
		out.Asked, out.Capacity = c.Spec.Resources.Requests.Storage().Value(), c.Status.Capacity.Storage().Value()
	}
	adopted, is := c.Annotations[cachev1alpha1.AnnotationAdopted]
	out.Adopted, out.Restored = is, adopted == cachev1alpha1.AdoptedRestored
	out.NeverStarted = c.Annotations[cachev1alpha1.AnnotationNeverStarted] != ""
	_, out.Unmoved = c.Annotations[cachev1alpha1.AnnotationUnmoved]
	out.Attempts = Attempts(c.Annotations[cachev1alpha1.AnnotationAttempts])
	if mark, ok := c.Annotations[cachev1alpha1.AnnotationLeaving]; ok {
		out.LeavingSince = leavingSince(mark)
		out.Left = ring.ParseSerial(c.Annotations[cachev1alpha1.AnnotationLeft])
		out.Policy, out.ReleaseUnreadable, out.Decided = decided(c.Annotations[cachev1alpha1.AnnotationPolicy])
	}
	if of, is := writtenFor(c); is {
		out.WrittenFor(of)
	}
	if out.Restored && out.Volume == "" {
		out.Where = claims.NoneYet
	}
	return out
}

// Pod translates the pod of a member without a volume for the plan, as the holder of its items. A pod that
// has ended has lost its items.
func Pod(p *corev1.Pod, ordinal int32) claims.Claim {
	out := claims.Claim{
		InPod: true, Name: p.Name, UID: p.UID, Ordinal: ordinal,
		Deleting:      p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded,
		NotStartedYet: p.Status.Phase == corev1.PodPending || p.Status.Phase == "",
		Request:       Request(p.Annotations[cachev1alpha1.AnnotationDrain], claims.Skip),
		MoveRequest:   Request(p.Annotations[cachev1alpha1.AnnotationMove], claims.Skip, claims.Retry),
		NeverStarted:  p.Annotations[cachev1alpha1.AnnotationNeverStarted] != "",
		Attempts:      Attempts(p.Annotations[cachev1alpha1.AnnotationAttempts]),
	}
	stamp, stamped := p.Annotations[cachev1alpha1.AnnotationMoved]
	out.Moved, out.Unstamped = ring.ParseSerial(stamp), !stamped
	_, out.Unmoved = p.Annotations[cachev1alpha1.AnnotationUnmoved]
	if mark, ok := p.Annotations[cachev1alpha1.AnnotationLeaving]; ok {
		out.LeavingSince = leavingSince(mark)
		out.Left = ring.ParseSerial(p.Annotations[cachev1alpha1.AnnotationLeft])
		out.Policy, out.ReleaseUnreadable, out.Decided = decided(p.Annotations[cachev1alpha1.AnnotationPolicy])
	}
	return out
}

// MarksOfAnother tells whether the marks on the claim are about another claim, because a backup has brought
// this one back.
func MarksOfAnother(c metav1.Object) bool {
	is := claims.Claim{UID: c.GetUID(), First: types.UID(c.GetAnnotations()[cachev1alpha1.AnnotationAsideOf])}
	is.Aside = is.First != ""
	if of, has := writtenFor(c); has {
		is.WrittenFor(of)
	}
	return is.Unnoted
}

// writtenFor is the UID that the marks on the claim name; false if it has none.
func writtenFor(c metav1.Object) (of types.UID, is bool) {
	text, is := c.GetAnnotations()[cachev1alpha1.AnnotationClaimUID]
	for _, mark := range []string{cachev1alpha1.AnnotationLeaving, cachev1alpha1.AnnotationProtected} {
		_, has := c.GetAnnotations()[mark]
		is = is || has
	}
	if len(text) > identity.MaxUID {
		text = ""
	}
	return types.UID(text), is
}

// Policy translates a policy; false for an unknown word.
func Policy(word cachev1alpha1.DrainPolicy) (policy claims.DrainPolicy, known bool) {
	switch word {
	case cachev1alpha1.PolicyDrain:
		return claims.Drain, true
	case cachev1alpha1.PolicyRetain:
		return claims.Retain, true
	case cachev1alpha1.PolicyDelete:
		return claims.Delete, true
	}
	return claims.Drain, false
}

// decided parses the decision about the volume that is beside the mark. A damaged decision counts as
// none.
func decided(s string) (policy claims.DrainPolicy, releaseUnreadable, known bool) {
	word, unreadable, _ := strings.Cut(s, ",")
	policy, known = Policy(cachev1alpha1.DrainPolicy(word))
	return policy, known && unreadable == string(cachev1alpha1.UnreadableRelease), known
}

// Request is a person's request by annotation, if it is one of the known words.
func Request(annotation string, known ...claims.Request) claims.Request {
	if r := claims.Request(annotation); slices.Contains(known, r) {
		return r
	}
	return claims.NoRequest
}

// MarkedAt is the time in a claim's leaving mark; zero if it has none, or a damaged one.
func MarkedAt(c *corev1.PersistentVolumeClaim) time.Time {
	if t, ok := Time(c.Annotations[cachev1alpha1.AnnotationLeaving]); ok {
		return t
	}
	return time.Time{}
}

// leavingSince parses the time in the mark. A damaged mark still counts as a mark.
func leavingSince(mark string) time.Time {
	if t, ok := Time(mark); ok {
		return t
	}
	return time.Unix(1, 0)
}

// Time parses a time in an annotation; false if it is missing or damaged.
func Time(s string) (time.Time, bool) {
	t, err := time.Parse(time.RFC3339, s)
	return t, err == nil && len(s) <= cachev1alpha1.MaxAnnotation
}

// Attempts parses the number of failures on the claim. A damaged number counts as none.
func Attempts(s string) action.Attempts {
	count, last, _ := strings.Cut(s, "/")
	failed, err := strconv.ParseInt(count, 10, 32)
	if err != nil || failed < 1 || len(last) > identity.MaxUID || len(s) > cachev1alpha1.MaxAnnotation {
		return action.Attempts{}
	}
	return action.Attempts{Failed: int32(failed), Last: types.UID(last)}
}
