package apply

import (
	"context"
	"encoding/json"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/claims/write"
)

// Without volumes, the members' pods have the marks that claims have otherwise. No mark gets on a pod of the
// same name that has replaced the one in the plan, because its UID differs.

// holder is the word for what holds a member's items.
func (r *run) holder() string {
	if r.cluster.Spec.InPods() {
		return "pod"
	}
	return "claim"
}

// annotateHolder writes annotations on a member's pod; a value of nil removes one. If the pod is gone, nothing is
// written.
func (r *run) annotateHolder(ctx context.Context, ref action.ClaimRef, annotations map[string]any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": ref.UID, "annotations": annotations}})
	if err != nil {
		return err
	}
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = r.cluster.Namespace, ref.Name
	return client.IgnoreNotFound(r.Patch(ctx, pod, client.RawPatch(types.MergePatchType, patch)))
}

// markPod writes the leaving mark on a member's pod.
func (r *run) markPod(ctx context.Context, a action.MarkLeaving) error {
	live, err := r.mayMark(ctx, a.Claim)
	if err != nil {
		return err
	}
	c := live.Claim(a.Claim.UID)
	if c == nil || !c.LeavingSince.IsZero() {
		return nil
	}
	number := claims.NextLeft(live.Claims) // all marks of a plan share the live read
	annotations := map[string]any{cachev1alpha1.AnnotationAttempts: nil}
	for key, value := range write.LeavingMark(number, r.now, r.claims.Rules.Decision()) {
		annotations[key] = value
	}
	if a.NeverStarted {
		annotations[cachev1alpha1.AnnotationNeverStarted] = "true"
	}
	if a.Unmoved {
		annotations[cachev1alpha1.AnnotationUnmoved] = "true"
	}
	if err := r.annotateHolder(ctx, a.Claim, annotations); err != nil {
		return err
	}
	if r.markedPods == nil {
		r.markedPods = map[types.UID]int64{}
	}
	r.markedPods[a.Claim.UID] = number
	return nil
}

// addMarkedPods adds the marks that were written on pods to the live read.
func (r *run) addMarkedPods() {
	if r.view != nil {
		for uid, number := range r.markedPods {
			if c := r.view.Claim(uid); c != nil {
				c.LeavingSince, c.Left = r.now, number
			}
		}
	}
	r.markedPods = nil
}

// recordMovedInPod is recordMoved for a member without a volume.
func (r *run) recordMovedInPod(ctx context.Context, a action.RecordMoved) error {
	pod, err := read.Get[corev1.Pod](ctx, r.Reader.Live, client.ObjectKey{Namespace: r.cluster.Namespace, Name: a.Claim.Name})
	switch {
	case err != nil:
		return err
	case pod == nil || pod.UID != a.Claim.UID:
		return nil
	case a.Receipt == nil && pod.Annotations[cachev1alpha1.AnnotationMove] != cachev1alpha1.MoveSkip:
		return read.Refuse("pod %s is not annotated with a skip", pod.Name)
	}
	serial := strconv.FormatInt(a.Serial, 10)
	if pod.Annotations[cachev1alpha1.AnnotationMoved] == serial && pod.Annotations[cachev1alpha1.AnnotationMove] == "" {
		return nil
	}
	err = r.annotateHolder(ctx, a.Claim, map[string]any{
		cachev1alpha1.AnnotationMoved: serial, cachev1alpha1.AnnotationMove: nil, cachev1alpha1.AnnotationAttempts: nil,
	})
	if err == nil {
		r.done.Moved = append(r.done.Moved, a.Receipt)
		r.tellRecorded(a)
	}
	return err
}
