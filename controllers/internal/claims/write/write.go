// Package write takes the steps about claims, their volumes, and the Jobs that drain them, for
// Memcacheds and StatefulSetDrains alike. Rules has the decisions that differ between the two. Before a
// step that can't be undone, package write reads live and asks package claims once more.
//
//	steps.go       a plan's steps, in order       claim.go       annotations and finalizers of claims
//	release.go     delete and release a claim     aside.go       give a volume to another claim
//	job.go         Jobs                           log.go         logs each write
//	owner.go       the finalizer of an owner       restored.go    whose marks are on a claim
package write

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/identity"
	"example.com/memcached-operator/controllers/internal/remembered"
)

// Rules are the decisions that differ between the controllers. Rules that read live are asked right before a
// step; a refusal is a read.ErrRefused.
type Rules interface {
	// Terms reads live the owner's settings for its claims.
	Terms(context.Context) (claims.Terms, error)
	// Unit is the unit of the live claim: all claims that are drained and released together.
	Unit(context.Context, *claims.Claim) (*claims.Claim, error)
	// Returned tells whether a member that is wanted, or that runs, uses the live claim again.
	Returned(context.Context, *claims.Claim) (bool, error)
	// MaySetAside is asked after claims.MaySetAside.
	MaySetAside(context.Context, *claims.Claim) error
	MayHandOver(context.Context, *claims.Claim) error
	MayDrain(context.Context, action.CreateDrain) error
	// DrainJob is the Job of a drain.
	DrainJob(action.CreateDrain) (client.Object, error)
	// Decision is the policy for the volume in a leaving mark: see AnnotationPolicy.
	Decision() string
	// Aside returns the labels and the annotations of the claim that takes over the volume of this
	// one, without the leaving mark.
	Aside(action.CreateAside, *corev1.PersistentVolumeClaim) (labels, annotations map[string]string)
	// Drained returns a receipt's counts, for an event.
	Drained(*action.Receipt) string
	// Event records an event about a write to the claim that succeeded.
	Event(claim action.ClaimRef, reason, action, note string, args ...any)
}

// Writer takes steps for one owner.
type Writer struct {
	client.Client
	Reader *read.Reader
	Rules  Rules
	// Made remembers the Jobs that this process has created.
	Made *remembered.Matches
	// Obstructed counts the Jobs of each claim; nil counts none.
	Obstructed *remembered.Obstructions
	// Now is the time of everything that is written.
	Now  time.Time
	Done Done
}

// Done has the writes.
type Done struct {
	// Drains are the Jobs that were created.
	Drains []client.Object
	// Marked has the claims that got the leaving mark, and when.
	Marked map[types.UID]time.Time
	// Recorded are the receipts that were recorded, and Released the released claims.
	Recorded []action.RecordReceipt
	Released []action.ReleaseClaim
}

// Take takes a step about a claim, its volume, or its Job; known is false for any other step.
func (w *Writer) Take(ctx context.Context, step action.Action) (known bool, err error) {
	switch a := step.(type) {
	case action.AddClaimFinalizer:
		_, err = w.Patch(ctx, a.Claim, func(c *corev1.PersistentVolumeClaim) error {
			controllerutil.AddFinalizer(c, cachev1alpha1.ClaimFinalizer)
			return nil
		})
	case action.CreateDrain:
		err = w.createDrain(ctx, a)
	case action.RecordReceipt:
		err = w.recordReceipt(ctx, a)
	case action.CountFailure:
		err = w.countFailure(ctx, a)
	case action.ClearRetry:
		err = w.clearRetry(ctx, a.Claim)
	case action.DeleteJob:
		_, err = w.DeleteJob(ctx, a)
	case action.DeleteClaim:
		err = w.deleteClaim(ctx, a)
	case action.SetAside:
		err = w.setAside(ctx, a.Claim)
	case action.ReserveVolume:
		err = w.reserveVolume(ctx, a)
	case action.CreateAside:
		err = w.createAside(ctx, a)
	case action.ReturnVolume:
		err = w.returnVolume(ctx, a)
	case action.CarryOver:
		err = w.carryOver(ctx, a)
	case action.NoteRestored:
		err = w.noteRestored(ctx, a)
	case action.SkipToo:
		err = w.skipToo(ctx, a)
	case action.ReleaseClaim:
		err = w.releaseClaim(ctx, a)
	default:
		return false, nil
	}
	return true, err
}

// claim translates the live claim; a refusal if it is no member's.
func (w *Writer) claim(ctx context.Context, pvc *corev1.PersistentVolumeClaim) (*claims.Claim, error) {
	c, ours := w.Reader.Claim(pvc)
	if !ours {
		return nil, read.Refuse("claim %s is not a member's", pvc.Name)
	}
	return w.Rules.Unit(ctx, &c)
}

// Delete deletes exactly this object, and its dependents in the background.
func Delete(ctx context.Context, c client.Writer, object client.Object) error {
	return client.IgnoreNotFound(c.Delete(ctx, object,
		client.Preconditions{UID: ptr.To(object.GetUID())},
		client.PropagationPolicy(metav1.DeletePropagationBackground)))
}

// deleteThis deletes the claim if it has not changed since it was read.
func (w *Writer) deleteThis(ctx context.Context, pvc *corev1.PersistentVolumeClaim) error {
	return client.IgnoreNotFound(w.Delete(ctx, pvc, client.Preconditions{UID: &pvc.UID, ResourceVersion: &pvc.ResourceVersion}))
}

// Label adds the label by which the cache selects the owner's objects.
func (w *Writer) Label(ctx context.Context, object client.Object) error {
	label, value := w.Reader.Label, w.Reader.Object.GetName()
	if object.GetLabels()[label] == value {
		return nil
	}
	before := object.DeepCopyObject().(client.Object)
	labels := object.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[label] = value
	object.SetLabels(labels)
	// The optimistic lock makes sure that only the object that was read is labelled.
	if err := w.Client.Patch(ctx, object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("label %s %s: %w", identity.KindOf(object), object.GetName(), err)
	}
	return nil
}

// exists tells why a create has found an object of that name: it is the owner's own, and the cache
// is stale or can't see it because it lacks its label; or it belongs to another owner. live is nil if
// it is gone again.
func (w *Writer) exists(ctx context.Context, kind, name string, live client.Object, ours bool) error {
	if live != nil && !ours {
		return w.Reader.NameTaken(live)
	}
	if live != nil {
		if err := w.Label(ctx, live); err != nil {
			return err
		}
	}
	return read.Refuse("%s %s exists already: the cache is stale", kind, name)
}
