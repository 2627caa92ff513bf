package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/cmd/kubectl-mc/internal/kube"
	"example.com/memcached-operator/cmd/kubectl-mc/internal/screen"
)

// A person's word about a drain or a move is an annotation of the holder of the member's items: its claim or,
// without volumes, its pod (docs/runbook.md).

func newHold(c *command) *cobra.Command {
	return c.wordCommand("hold", "Start no drain of the claim until kubectl mc retry", "  kubectl mc hold data-cache-2", hold)
}

func hold(ctx context.Context, w *word) error {
	if w.inPod() {
		return fmt.Errorf("%s has no volume, so there is no drain to hold: a member that is to leave runs on until its items are moved; "+
			"set spec.size back to keep the member", w.named())
	}
	return w.say(ctx, cachev1alpha1.AnnotationDrain, cachev1alpha1.DrainHold,
		fmt.Sprintf("no drain of %s starts, and none is tried again, until kubectl mc retry %s", w.named(), w.holder.GetName()))
}

func newRetry(c *command) *cobra.Command {
	return c.wordCommand("retry", "Drain the claim, or move its member's items, again and now; ends a hold; with mc/NAME, fill the cluster again", "  kubectl mc retry data-cache-2\n  kubectl mc retry mc/cache", retry)
}

func retry(ctx context.Context, w *word) error {
	if m, is := w.holder.(*cachev1alpha1.Memcached); is {
		return w.sayWarm(ctx, m, cachev1alpha1.WarmRetry, "is filled again, now")
	}
	switch said := w.holder.GetAnnotations()[cachev1alpha1.AnnotationDrain]; {
	case w.inPod():
	case w.departs():
		return w.say(ctx, cachev1alpha1.AnnotationDrain, cachev1alpha1.DrainRetry, w.named()+" is drained again, now")
	case said != "":
		return w.say(ctx, cachev1alpha1.AnnotationDrain, "", fmt.Sprintf("the member of %s stays, and no %s waits for it any more", w.named(), said))
	}
	if err := w.moves("retry"); err != nil {
		return err
	}
	return w.say(ctx, cachev1alpha1.AnnotationMove, cachev1alpha1.MoveRetry, "the items of the member of "+w.named()+" are moved again, now")
}

func newSkip(c *command) *cobra.Command {
	return c.wordCommand("skip", "Give up what is on the claim's volume, or leave its member's items where they are; with mc/NAME, end the warming", "  kubectl mc skip data-cache-2\n  kubectl mc skip mc/cache", skip)
}

func skip(ctx context.Context, w *word) error {
	if m, is := w.holder.(*cachev1alpha1.Memcached); is {
		if err := w.agree(ctx, w.yes, fmt.Sprintf("%s goes on with what was copied to it. Go on?", nameOf(m))); err != nil {
			return err
		}
		return w.sayWarm(ctx, m, cachev1alpha1.WarmSkip, "goes on with what was copied to it")
	}
	if err := w.obeyed(); err != nil {
		return err
	}
	if w.departs() {
		goes, done := "and the claim is released", w.named()+" is released without a drain"
		if w.inPod() {
			goes, done = "because they are in its memory alone", "the member of "+w.named()+" leaves with the items that it has"
		}
		if err := w.agree(ctx, w.yes, fmt.Sprintf("This gives up %s of %s for good, %s. Go on?", w.cost(), w.named(), goes)); err != nil {
			return err
		}
		return w.say(ctx, cachev1alpha1.AnnotationDrain, cachev1alpha1.DrainSkip, done)
	}
	if err := w.moves("skip"); err != nil {
		return err
	}
	err := w.agree(ctx, w.yes, fmt.Sprintf("The items of the member of %s stay where clients don't look for them: they are misses, and may come back as old values. Go on?", w.named()))
	if err != nil {
		return err
	}
	return w.say(ctx, cachev1alpha1.AnnotationMove, cachev1alpha1.MoveSkip, "the items of the member of "+w.named()+" stay where they are")
}

func newRelease(c *command) *cobra.Command {
	return c.wordCommand("release", "Remove the finalizer of a claim that nothing drains, so that it can go", "  kubectl mc release data-queue-4", func(ctx context.Context, w *word) error {
		if w.owner != nil && !w.inPod() {
			return fmt.Errorf("%s belongs to %s, which releases it after its drain: kubectl mc retry %s ends a hold, kubectl mc skip %s gives its items up",
				w.named(), nameOf(w.owner), w.holder.GetName(), w.holder.GetName())
		}
		if !slices.Contains(w.holder.GetFinalizers(), cachev1alpha1.ClaimFinalizer) {
			return fmt.Errorf("%s has no finalizer of the operator", w.named())
		}
		if err := w.agree(ctx, w.yes, fmt.Sprintf("Nothing drains %s: without its finalizer, what is on its volume goes with it when it is deleted. Go on?", w.named())); err != nil {
			return err
		}
		return w.write(ctx, w.named()+" has no finalizer of the operator any more", func() {
			w.holder.SetFinalizers(slices.DeleteFunc(w.holder.GetFinalizers(), func(f string) bool { return f == cachev1alpha1.ClaimFinalizer }))
		})
	})
}

// word is a person's word about a member's items.
type word struct {
	*command
	*kube.Session
	yes bool
	// holder is the member's claim or, without volumes, its pod.
	holder client.Object
	// owner is the Memcached or the StatefulSetDrain of the holder; nil if there is none.
	owner client.Object
}

// wordCommand is a command about a claim, or about the pod of a member without a volume.
func (c *command) wordCommand(use, short, example string, do func(context.Context, *word) error) *cobra.Command {
	w := &word{command: c}
	cmd := &cobra.Command{
		Use: use + " CLAIM", Short: short, Example: example, Args: cobra.ExactArgs(1), ValidArgsFunction: c.completeHolders,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			ctx := cmd.Context()
			if w.Session, err = c.open(); err != nil {
				return err
			}
			if strings.Contains(args[0], "/") && (use == "skip" || use == "retry") { // a Memcached, about its warming
				m, err := w.Memcached(ctx, args[0])
				if err != nil {
					return err
				}
				w.holder, w.owner = m, m
				return do(ctx, w)
			}
			if w.holder, w.owner, err = w.Holder(ctx, args[0]); err != nil {
				return err
			}
			return do(ctx, w)
		},
	}
	cmd.Flags().BoolVarP(&w.yes, "yes", "y", false, "answer the question with yes")
	return cmd
}

func (w *word) inPod() bool {
	_, is := w.holder.(*corev1.Pod)
	return is
}

// named returns the holder's kind and name.
func (w *word) named() string {
	if m, is := w.holder.(*cachev1alpha1.Memcached); is {
		return nameOf(m)
	}
	if w.inPod() {
		return "pod " + w.holder.GetName()
	}
	return "claim " + w.holder.GetName()
}

// departs tells whether the holder's member was told to leave or has departed, or the claim is left over. A
// word about the drain of another claim would wait there until its member leaves one day.
func (w *word) departs() bool {
	name := w.holder.GetName()
	_, leaves := w.holder.GetAnnotations()[cachev1alpha1.AnnotationLeaving]
	if d, is := w.owner.(*cachev1alpha1.StatefulSetDrain); is {
		s := &d.Status
		leaves = leaves || slices.Contains(s.LeftOver, name) ||
			slices.ContainsFunc(s.Drains, func(m cachev1alpha1.MemberDrain) bool { return slices.Contains(m.Claims, name) }) ||
			len(s.LeftOver) >= mostListed || len(s.Drains) >= mostListed // there may be more
	}
	if w.inPod() {
		return leaves
	}
	return leaves || w.holder.GetDeletionTimestamp() != nil || w.holder.GetAnnotations()[cachev1alpha1.AnnotationAsideOf] != ""
}

// mostListed is how many claims each list in the status of a StatefulSetDrain has.
const mostListed = 32

// moves returns an error if there is nothing to move: the word would wait there for a later move.
func (w *word) moves(verb string) error {
	if err := w.obeyed(); err != nil {
		return err
	}
	m, is := w.owner.(*cachev1alpha1.Memcached)
	if !is {
		return fmt.Errorf("there is nothing to %s: the member of %s stays", verb, w.named())
	}
	if m.Status.Moving == 0 && !w.departs() {
		return fmt.Errorf("there is nothing to %s: the member of %s stays, and all items are where clients look", verb, w.named())
	}
	return nil
}

// cost returns what is given up, as far as that is known.
func (w *word) cost() string {
	if m, is := w.owner.(*cachev1alpha1.Memcached); is {
		for i := range m.Status.Drains {
			if d := &m.Status.Drains[i]; d.Claim == w.holder.GetName() && d.ItemsTotal > 0 {
				return screen.Count(d.ItemsTotal-d.ItemsDone) + " items"
			}
		}
	}
	if w.inPod() {
		return "all items"
	}
	return "everything on the volume"
}

// obeyed returns an error if the claim has no owner.
func (w *word) obeyed() error {
	if w.owner == nil {
		return fmt.Errorf("%s belongs to no Memcached and no StatefulSetDrain, so nothing obeys this: kubectl mc release %s removes its finalizer", w.named(), w.holder.GetName())
	}
	return nil
}

// say writes the annotation, or removes it for an empty value.
func (w *word) say(ctx context.Context, annotation, value, done string) error {
	if err := w.obeyed(); err != nil {
		return err
	}
	return w.write(ctx, done, func() {
		annotations := w.holder.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		if annotations[annotation] = value; value == "" {
			delete(annotations, annotation)
		}
		w.holder.SetAnnotations(annotations)
	})
}

func (w *word) write(ctx context.Context, done string, change func()) error {
	before := w.holder.DeepCopyObject().(client.Object)
	change()
	// The lock is for the finalizers, which are a list: an added one would be removed.
	if err := w.Patch(ctx, w.holder, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		if apierrors.IsConflict(err) {
			return fmt.Errorf("%s has just changed: look at it, and try again", w.named())
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
