package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/cmd/kubectl-mc/internal/kube"
)

func newPause(c *command) *cobra.Command {
	return c.pauseCommand("pause", true, "Change nothing of the cluster; of a StatefulSetDrain, hold the drains that have not ended")
}

func newResume(c *command) *cobra.Command {
	return c.pauseCommand("resume", false, "End a pause")
}

func (c *command) pauseCommand(use string, pause bool, short string) *cobra.Command {
	return &cobra.Command{
		Use: use + " NAME", Short: short, Example: "  kubectl mc " + use + " cache\n  kubectl mc " + use + " stsdrain/queue",
		Args: cobra.ExactArgs(1), ValidArgsFunction: c.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			s, err := c.open()
			if err != nil {
				return err
			}
			object, err := s.Find(ctx, args[0])
			if err != nil {
				return err
			}
			if m, is := object.(*cachev1alpha1.Memcached); is {
				return c.pause(ctx, s, m, pause)
			}
			return c.pauseDrains(ctx, s, object.(*cachev1alpha1.StatefulSetDrain), pause)
		},
	}
}

func (c *command) pause(ctx context.Context, s *kube.Session, m *cachev1alpha1.Memcached, pause bool) error {
	before := m.DeepCopy()
	m.Spec.Paused = pause
	if err := s.Patch(ctx, m, client.MergeFrom(before)); err != nil {
		return err
	}
	if !pause {
		fmt.Fprintf(c.io.Out, "%s goes on\n", nameOf(m))
		return nil
	}
	fmt.Fprintf(c.io.Out, "%s is paused: no size, roll-out, move or drain begins, and crashed members come back as usual; what runs, runs on\n", nameOf(m))
	if n := len(m.Status.Drains); n > 0 {
		fmt.Fprintf(c.io.Out, "%d claims wait to be drained: until then, clients miss their items\n", n)
	}
	return nil
}

// pauseDrains holds the claims of all drains of a StatefulSetDrain, or ends their hold. If a volume is set
// aside meanwhile, another claim with another name replaces its claim, and the next status has that name.
func (c *command) pauseDrains(ctx context.Context, s *kube.Session, d *cachev1alpha1.StatefulSetDrain, pause bool) error {
	changed := map[string]bool{}
	for left := pauseLooks; ; left-- {
		gone, err := pauseClaims(ctx, s, d, pause, changed)
		if err != nil {
			return err
		}
		if !gone || left == 0 {
			break
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
		object, err := s.Find(ctx, "stsdrain/"+d.Name)
		if err != nil {
			return err
		}
		d = object.(*cachev1alpha1.StatefulSetDrain)
	}
	verb := "goes on with"
	if pause {
		verb = "holds"
	}
	fmt.Fprintf(c.io.Out, "%s %s %d claims\n", nameOf(d), verb, len(changed))
	return nil
}

// pauseLooks is how often the status is read again, a second apart, because a claim in the status is gone.
const pauseLooks = 5

// pauseClaims holds the claims in the status, or ends their hold. gone means that a claim doesn't exist any
// more.
func pauseClaims(ctx context.Context, s *kube.Session, d *cachev1alpha1.StatefulSetDrain, pause bool, changed map[string]bool) (gone bool, err error) {
	for i := range d.Status.Drains {
		for _, name := range d.Status.Drains[i].Claims {
			claim, err := s.Claim(ctx, name)
			switch {
			case apierrors.IsNotFound(err):
				gone = true
				continue
			case err != nil:
				return gone, err
			case (claim.Annotations[cachev1alpha1.AnnotationDrain] == cachev1alpha1.DrainHold) == pause:
				continue
			}
			before := claim.DeepCopy()
			if claim.Annotations == nil {
				claim.Annotations = map[string]string{}
			}
			if delete(claim.Annotations, cachev1alpha1.AnnotationDrain); pause {
				claim.Annotations[cachev1alpha1.AnnotationDrain] = cachev1alpha1.DrainHold
			}
			switch err := s.Patch(ctx, claim, client.MergeFrom(before)); {
			case apierrors.IsNotFound(err):
				gone = true
			case err != nil:
				return gone, err
			default:
				changed[name] = true
			}
		}
	}
	return gone, nil
}
