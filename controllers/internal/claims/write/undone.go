package write

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/identity"
)

// Admission may undo a write: a policy removes finalizers, labels or annotations that it doesn't know. The
// API server reports success, and no event comes, so the operator would write the same again and again, and
// say nothing. So such a write counts as denied.

// metadata is what a merge patch changes of an object's metadata. A null removes a key, or all of them.
type metadata struct {
	Metadata struct{ Labels, Annotations, Finalizers json.RawMessage }
}

// undone returns an error that names the sent metadata that the answer to a merge patch lacks; nil if it has
// all.
func undone(kind types.PatchType, data []byte, answer client.Object) error {
	var sent metadata
	if kind != types.MergePatchType || json.Unmarshal(data, &sent) != nil {
		return nil
	}
	lacks := append(differs("label", sent.Metadata.Labels, answer.GetLabels()), differs("annotation", sent.Metadata.Annotations, answer.GetAnnotations())...)
	var finalizers []string
	if raw := sent.Metadata.Finalizers; raw != nil && json.Unmarshal(raw, &finalizers) == nil {
		for _, ours := range []string{cachev1alpha1.OwnerFinalizer, cachev1alpha1.ClaimFinalizer} {
			if slices.Contains(finalizers, ours) != slices.Contains(answer.GetFinalizers(), ours) {
				lacks = append(lacks, "finalizer "+ours)
			}
		}
	}
	if len(lacks) == 0 {
		return nil
	}
	slices.Sort(lacks)
	return deniedf("admission (a policy or a webhook) has undone the change of %s %s: %s", identity.KindOf(answer), answer.GetName(), strings.Join(lacks, ", "))
}

func deniedf(format string, args ...any) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: fmt.Sprintf(format, args...),
	}}
}

// spoilt says what an object that the owner controls lacks of the labels and annotations that it was made with, so that
// it is not known as the owner's any more; nil if the owner doesn't control it, or if it has all.
func spoilt(owner, made, live client.Object) error {
	if !metav1.IsControlledBy(live, owner) {
		return nil
	}
	var lacks []string
	for what, of := range map[string][2]map[string]string{
		"label": {made.GetLabels(), live.GetLabels()}, "annotation": {made.GetAnnotations(), live.GetAnnotations()},
	} {
		for key, value := range of[0] {
			if is, has := of[1][key]; !has || is != value {
				lacks = append(lacks, what+" "+key)
			}
		}
	}
	if len(lacks) == 0 {
		return nil
	}
	slices.Sort(lacks)
	return deniedf("admission (a policy or a webhook) or another client has changed %s %s: %s; when that is over, delete it, and it is made anew",
		identity.KindOf(live), live.GetName(), strings.Join(lacks, ", "))
}

// differs names the keys whose values in the answer aren't the sent ones.
func differs(what string, raw json.RawMessage, answer map[string]string) (lacks []string) {
	var sent map[string]*string
	if raw == nil || json.Unmarshal(raw, &sent) != nil {
		return nil
	}
	if sent == nil { // all keys were to go; others may have been added since
		for key := range answer {
			if strings.HasPrefix(key, cachev1alpha1.Group+"/") {
				lacks = append(lacks, what+" "+key)
			}
		}
	}
	for key, value := range sent {
		if is, has := answer[key]; has != (value != nil) || has && is != *value {
			lacks = append(lacks, what+" "+key)
		}
	}
	return lacks
}
