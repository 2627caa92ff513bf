package observe

import (
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/identity"
	"example.com/memcached-operator/controllers/internal/stsdrain"
)

// Owner says which claims, Jobs and pods are a StatefulSetDrain's. set is the StatefulSet, or nil.
func Owner(d *cachev1alpha1.StatefulSetDrain, set *appsv1.StatefulSet) *read.Owner {
	labelled := client.MatchingLabels{cachev1alpha1.LabelStatefulSetDrain: d.Name}
	// A rule that doesn't compile proves nothing; status says why.
	rule, ruleErr := stsdrain.CompileRule(d.Spec.Receipt)
	return &read.Owner{
		Object: d, Kind: "StatefulSetDrain", Label: cachev1alpha1.LabelStatefulSetDrain, Cached: labelled,
		Pods:    []client.ListOption{client.InNamespace(d.Namespace), labelled},
		PodName: func(ordinal int32) string { return stsdrain.PodName(d.Spec.StatefulSetName, ordinal) },
		Named: func(claim string) bool {
			_, is := stsdrain.ParseClaimName(d.Spec.StatefulSetName, claim)
			return is
		},
		Owns:  func(c *corev1.PersistentVolumeClaim) bool { return owns(d, set, c) },
		Claim: func(c *corev1.PersistentVolumeClaim) (claims.Claim, bool) { return planClaim(d, c) },
		OwnsJob: func(job *batchv1.Job) bool {
			return metav1.IsControlledBy(job, d) && identity.DutyOf(job) != identity.Duty{}
		},
		Receipt: func(job *batchv1.Job, ended *corev1.Pod) (*action.Receipt, error) {
			return jobReceipt(rule, ruleErr, job, ended)
		},
		Grace:      grace(d),
		MoreMemory: "; raise resources.limits.memory of the drainer's container in spec.template",
	}
}

// owns tells whether the claim is a member's of the StatefulSet, or has a member's volume. The claim's name
// counts, because a StatefulSet uses any claim of the right name; but the name must be that of a present
// template, or the StatefulSetDrain has protected the claim before. Another controller than the StatefulSet
// and its pods keeps its claim.
func owns(d *cachev1alpha1.StatefulSetDrain, set *appsv1.StatefulSet, c *corev1.PersistentVolumeClaim) bool {
	is, ok := stsdrain.ParseClaimName(d.Spec.StatefulSetName, c.Name)
	if !ok || !Ours(d, c) && (set == nil || !hasTemplate(set, is.Template)) {
		return false
	}
	ref := metav1.GetControllerOfNoCopy(c)
	switch {
	case ref == nil:
		return !is.Aside || Ours(d, c) || c.Annotations[cachev1alpha1.AnnotationAsideOf] != "" // by its name alone, it may be any client's
	case is.Aside:
		return false
	case ref.Kind == "Pod":
		_, member := stsdrain.PodOrdinal(d.Spec.StatefulSetName, ref.Name)
		return member
	}
	return ref.Kind == "StatefulSet" && ref.Name == d.Spec.StatefulSetName
}

// left tells whether a StatefulSetDrain that is gone has begun to drain the claim, and has not released
// it: its finalizer was taken off, or a backup has brought the claim back alone.
func left(d *cachev1alpha1.StatefulSetDrain, c *corev1.PersistentVolumeClaim) bool {
	_, marked := c.Annotations[cachev1alpha1.AnnotationLeaving]
	return marked && c.Annotations[cachev1alpha1.AnnotationProtected] != "" && !Ours(d, c) && controllerutil.ContainsFinalizer(c, cachev1alpha1.ClaimFinalizer)
}

// Ours tells whether this StatefulSetDrain has protected the claim, or made it to take over a volume.
func Ours(d *cachev1alpha1.StatefulSetDrain, c metav1.Object) bool {
	return d.UID != "" && c.GetAnnotations()[cachev1alpha1.AnnotationProtected] == string(d.UID)
}

func hasTemplate(set *appsv1.StatefulSet, name string) bool {
	return slices.ContainsFunc(set.Spec.VolumeClaimTemplates, func(t corev1.PersistentVolumeClaim) bool { return t.Name == name })
}

// planClaim translates a claim for the plan.
func planClaim(d *cachev1alpha1.StatefulSetDrain, c *corev1.PersistentVolumeClaim) (claims.Claim, bool) {
	is, ok := stsdrain.ParseClaimName(d.Spec.StatefulSetName, c.Name)
	if !ok {
		return claims.Claim{}, false
	}
	out := read.Claim(c, is.Ordinal, is.Aside, stsdrain.AsideName(stsdrain.ClaimNameOf(d.Spec.StatefulSetName, is.Template, is.Ordinal), c.UID))
	out.Template, out.Protected = is.Template, !out.Unnoted && (Ours(d, c) || left(d, c))
	out.Created = c.CreationTimestamp.Time
	if c.DeletionTimestamp != nil {
		out.DeletedAt = c.DeletionTimestamp.Time
	}
	out.Labelled = c.Labels[cachev1alpha1.LabelStatefulSetDrain] == d.Name && !left(d, c) // a claim that was left gets our UID, too
	for _, ref := range c.OwnerReferences {
		out.OwnedByPod = out.OwnedByPod || ref.Kind == "Pod" && ref.Name == stsdrain.PodName(d.Spec.StatefulSetName, is.Ordinal)
		out.OwnedBySet = out.OwnedBySet || ref.Kind == "StatefulSet" && ref.Name == d.Spec.StatefulSetName
	}
	out.Receipt = recorded(c)
	return out, true
}

// recorded is the receipt on a claim; nil if there is none, or none that can be read. The receipt is checked
// again, by the rule that is written beside it.
func recorded(c *corev1.PersistentVolumeClaim) *action.Receipt {
	text, is := c.Annotations[cachev1alpha1.AnnotationReceipt]
	if !is {
		return nil
	}
	record, err := stsdrain.ParseRecord(text)
	if err != nil {
		return nil
	}
	return &action.Receipt{Source: record.Claims, Err: record.AddsUp(string(c.UID)), Message: record.Message, Text: text, SetVersion: record.Set}
}

// jobReceipt is what a Job's drainer has left. With exit code 0 the receipt proves the drain if the rule is
// true of its message, or, without a rule, if the drainer ended by itself.
func jobReceipt(rule *stsdrain.Rule, ruleErr error, job *batchv1.Job, pod *corev1.Pod) (*action.Receipt, error) {
	ended := read.Drainer(pod).Terminated
	of := job.Annotations[cachev1alpha1.AnnotationClaims]
	out := &action.Receipt{Source: of}
	switch {
	case ended.ExitCode != 0:
		out.Reason = cachev1alpha1.ReasonJobFailed
		out.Message = fmt.Sprintf("the drainer ended with exit code %d", ended.ExitCode)
		if ended.Reason != "" && ended.Reason != "Error" {
			out.Message += " (" + ended.Reason + ")"
		}
		if ended.Message != "" {
			out.Message += ": " + stsdrain.Quote(ended.Message)
		}
		out.Err = fmt.Errorf("%s", out.Message)
		return out, nil
	case ruleErr != nil:
		return nil, ruleErr
	case rule == nil && read.ToldToEnd(pod):
		return nil, errToldToEnd
	}
	if err := rule.Check(ended.Message); err != nil {
		return nil, err
	}
	record := stsdrain.NewRecord(of, rule, ended.Message)
	record.Set = job.Annotations[cachev1alpha1.AnnotationStatefulSet]
	out.Message, out.Text = record.Message, record.Encode()
	return out, nil
}

// errToldToEnd is why exit code 0 proves nothing.
var errToldToEnd = errors.New("the drainer ended with exit code 0 when its pod was told to end (it was deleted or evicted, or its deadline or its node ended it): " +
	"without spec.receipt this doesn't count, because many programs end so when they are told to")

// grace is the grace period of the template, in seconds; 0 if it has none.
func grace(d *cachev1alpha1.StatefulSetDrain) int64 {
	var pod struct {
		TerminationGracePeriodSeconds int64 `json:"terminationGracePeriodSeconds"`
	}
	if json.Unmarshal(d.Spec.Template.Spec.Raw, &pod) != nil {
		return 0
	}
	return max(0, pod.TerminationGracePeriodSeconds)
}
