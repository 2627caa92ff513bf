package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/cmd/kubectl-mc/internal/kube"
	"example.com/memcached-operator/cmd/kubectl-mc/internal/screen"
)

// A person's word about a drain or a move is an annotation of the claim (docs/runbook.md).

func newHold(c *command) *cobra.Command {
	return c.wordCommand("hold", "Start no drain of the claim until kubectl mc retry", "  kubectl mc hold data-cache-2", func(ctx context.Context, w *word) error {
		return w.say(ctx, cachev1alpha1.AnnotationDrain, cachev1alpha1.DrainHold,
			"no drain of claim "+w.claim.Name+" starts, and none is tried again, until kubectl mc retry "+w.claim.Name)
	})
}

func newRetry(c *command) *cobra.Command {
	return c.wordCommand("retry", "Drain the claim, or move its member's items, again and now; ends a hold", "  kubectl mc retry data-cache-2", retry)
}

func retry(ctx context.Context, w *word) error {
	switch said := w.claim.Annotations[cachev1alpha1.AnnotationDrain]; {
	case w.departs():
		return w.say(ctx, cachev1alpha1.AnnotationDrain, cachev1alpha1.DrainRetry, "claim "+w.claim.Name+" is drained again, now")
	case said != "":
		return w.say(ctx, cachev1alpha1.AnnotationDrain, "", fmt.Sprintf("the member of claim %s stays, and no %s waits for it any more", w.claim.Name, said))
	}
	if err := w.moves("retry"); err != nil {
		return err
	}
	return w.say(ctx, cachev1alpha1.AnnotationMove, cachev1alpha1.MoveRetry, "the items of the member of claim "+w.claim.Name+" are moved again, now")
}

func newSkip(c *command) *cobra.Command {
	return c.wordCommand("skip", "Give up what is on the claim's volume, or leave its member's items where they are", "  kubectl mc skip data-cache-2", skip)
}

func skip(ctx context.Context, w *word) error {
	if err := w.obeyed(); err != nil {
		return err
	}
	if w.departs() {
		cost := w.cost()
		if err := w.agree(ctx, w.yes, fmt.Sprintf("This gives up %s of claim %s for good, and the claim is released. Go on?", cost, w.claim.Name)); err != nil {
			return err
		}
		return w.say(ctx, cachev1alpha1.AnnotationDrain, cachev1alpha1.DrainSkip, "claim "+w.claim.Name+" is released without a drain")
	}
	if err := w.moves("skip"); err != nil {
		return err
	}
	err := w.agree(ctx, w.yes, fmt.Sprintf("The items of the member of claim %s stay where clients don't look for them: they are misses, and may come back as old values. Go on?", w.claim.Name))
	if err != nil {
		return err
	}
	return w.say(ctx, cachev1alpha1.AnnotationMove, cachev1alpha1.MoveSkip, "the items of the member of claim "+w.claim.Name+" stay where they are")
}

func newRelease(c *command) *cobra.Command {
	return c.wordCommand("release", "Remove the finalizer of a claim that nothing drains, so that it can go", "  kubectl mc release data-queue-4", func(ctx context.Context, w *word) error {
		if w.owner != nil {
			return fmt.Errorf("claim %s belongs to %s, which releases it after its drain: kubectl mc retry %s ends a hold, kubectl mc skip %s gives its items up",
				w.claim.Name, nameOf(w.owner), w.claim.Name, w.claim.Name)
		}
		if !slices.Contains(w.claim.Finalizers, cachev1alpha1.ClaimFinalizer) {
			return fmt.Errorf("claim %s has no finalizer of the operator", w.claim.Name)
		}
		if err := w.agree(ctx, w.yes, fmt.Sprintf("Nothing drains claim %s: without its finalizer, what is on its volume goes with it when it is deleted. Go on?", w.claim.Name)); err != nil {
			return err
		}
		before := w.claim.DeepCopy()
		w.claim.Finalizers = slices.DeleteFunc(w.claim.Finalizers, func(f string) bool { return f == cachev1alpha1.ClaimFinalizer })
		return w.write(ctx, before, "claim "+w.claim.Name+" has no finalizer of the operator any more")
	})
}

// word is what a person says of a claim.
type word struct {
	*command
	*kube.Session
	yes   bool
	claim *corev1.PersistentVolumeClaim
	// owner is the Memcached or the StatefulSetDrain of the claim; nil if there is none.
	owner client.Object
}

// wordCommand is a command about a claim.
func (c *command) wordCommand(use, short, example string, do func(context.Context, *word) error) *cobra.Command {
	w := &word{command: c}
	cmd := &cobra.Command{
		Use: use + " CLAIM", Short: short, Example: example, Args: cobra.ExactArgs(1), ValidArgsFunction: c.completeClaims,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			ctx := cmd.Context()
			if w.Session, err = c.open(); err != nil {
				return err
			}
			if w.claim, err = w.Claim(ctx, args[0]); err != nil {
				return err
			}
			if w.owner, err = w.OwnerOf(ctx, w.claim); err != nil {
				return err
			}
			return do(ctx, w)
		},
	}
	cmd.Flags().BoolVarP(&w.yes, "yes", "y", false, "answer the question with yes")
	return cmd
}

// departs tells whether the claim's member was told to leave or has departed, or the claim is left over. What is said about the
// drain of another claim would wait there until its member leaves one day.
func (w *word) departs() bool {
	_, leaves := w.claim.Annotations[cachev1alpha1.AnnotationLeaving]
	if d, is := w.owner.(*cachev1alpha1.StatefulSetDrain); is {
		s := &d.Status
		leaves = leaves || slices.Contains(s.LeftOver, w.claim.Name) ||
			slices.ContainsFunc(s.Drains, func(m cachev1alpha1.MemberDrain) bool { return slices.Contains(m.Claims, w.claim.Name) }) ||
			len(s.LeftOver) >= mostListed || len(s.Drains) >= mostListed // there may be more
	}
	return leaves || w.claim.DeletionTimestamp != nil || w.claim.Annotations[cachev1alpha1.AnnotationAsideOf] != ""
}

// mostListed is how many of each the status of a StatefulSetDrain has.
const mostListed = 32

// moves returns an error if there is nothing to move: the word would stay on the claim until a later move.
func (w *word) moves(verb string) error {
	if err := w.obeyed(); err != nil {
		return err
	}
	m, is := w.owner.(*cachev1alpha1.Memcached)
	if !is {
		return fmt.Errorf("there is nothing to %s: the member of claim %s stays", verb, w.claim.Name)
	}
	if m.Status.Moving == 0 {
		return fmt.Errorf("there is nothing to %s: the member of claim %s stays, and all items are where clients look", verb, w.claim.Name)
	}
	return nil
}

// cost is what is on the claim's volume, as far as is known.
func (w *word) cost() string {
	if m, is := w.owner.(*cachev1alpha1.Memcached); is {
		for i := range m.Status.Drains {
			if d := &m.Status.Drains[i]; d.Claim == w.claim.Name && d.ItemsTotal > 0 {
				return screen.Count(d.ItemsTotal-d.ItemsDone) + " items"
			}
		}
	}
	return "everything on the volume"
}

// obeyed returns an error if the claim has no owner.
func (w *word) obeyed() error {
	if w.owner == nil {
		return fmt.Errorf("claim %s belongs to no Memcached and no StatefulSetDrain, so nothing obeys this: kubectl mc release %s removes its finalizer", w.claim.Name, w.claim.Name)
	}
	return nil
}

// say writes the annotation, or removes it for an empty value.
func (w *word) say(ctx context.Context, annotation, value, done string) error {
	if err := w.obeyed(); err != nil {
		return err
	}
	before := w.claim.DeepCopy()
	if w.claim.Annotations == nil {
		w.claim.Annotations = map[string]string{}
	}
	if w.claim.Annotations[annotation] = value; value == "" {
		delete(w.claim.Annotations, annotation)
	}
	return w.write(ctx, before, done)
}

func (w *word) write(ctx context.Context, before *corev1.PersistentVolumeClaim, done string) error {
	// The lock is for the finalizers, which are a list: an added one would be removed.
	if err := w.Patch(ctx, w.claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		if apierrors.IsConflict(err) {
			return fmt.Errorf("claim %s has just changed: look at it, and try again", w.claim.Name)
		}
		return err
	}
	fmt.Fprintln(w.io.Out, done)
	return nil
}

func nameOf(o client.Object) string {
	if _, is := o.(*cachev1alpha1.Memcached); is {
		return "Memcached " + o.GetName()
	}
	return "StatefulSetDrain " + o.GetName()
}
