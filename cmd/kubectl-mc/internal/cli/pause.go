package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
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

// pauseDrains holds the claims of all drains of a StatefulSetDrain, or ends their hold.
func (c *command) pauseDrains(ctx context.Context, s *kube.Session, d *cachev1alpha1.StatefulSetDrain, pause bool) error {
	n := 0
	for i := range d.Status.Drains {
		for _, name := range d.Status.Drains[i].Claims {
			claim, err := s.Claim(ctx, name)
			if err != nil {
				return err
			}
			held := claim.Annotations[cachev1alpha1.AnnotationDrain] == cachev1alpha1.DrainHold
			if held == pause {
				continue
			}
			before := claim.DeepCopy()
			if claim.Annotations == nil {
				claim.Annotations = map[string]string{}
			}
			if delete(claim.Annotations, cachev1alpha1.AnnotationDrain); pause {
				claim.Annotations[cachev1alpha1.AnnotationDrain] = cachev1alpha1.DrainHold
			}
			if err := s.Patch(ctx, claim, client.MergeFrom(before)); err != nil {
				return err
			}
			n++
		}
	}
	verb := "goes on with"
	if pause {
		verb = "holds"
	}
	fmt.Fprintf(c.io.Out, "%s %s %d claims\n", nameOf(d), verb, n)
	return nil
}
