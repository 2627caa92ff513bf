package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

func newWarm(c *command) *cobra.Command {
	return &cobra.Command{
		Use: "warm NAME", Short: "Copy what the cache of spec.warmFrom has got since it was copied", Example: "  kubectl mc warm cache",
		Args: cobra.ExactArgs(1), ValidArgsFunction: c.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := c.open()
			if err != nil {
				return err
			}
			m, err := s.Memcached(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			w := &word{command: c, Session: s, holder: m, owner: m}
			return w.sayWarm(cmd.Context(), m, cachev1alpha1.WarmAgain, "gets what the other cache has got since it was copied: kubectl mc status "+m.Name+" shows it")
		},
	}
}

// sayWarm writes a person's word about the warming.
func (w *word) sayWarm(ctx context.Context, m *cachev1alpha1.Memcached, said, done string) error {
	switch warm := m.Status.Warm; {
	case m.Spec.WarmFrom == nil:
		return fmt.Errorf("%s has no spec.warmFrom: there is nothing to copy", nameOf(m))
	case said == cachev1alpha1.WarmAgain && m.Annotations[cachev1alpha1.AnnotationWarm] == said:
		return fmt.Errorf("another copy of %s was asked for already, and may have begun: wait until its annotation %s is gone, then say it again", nameOf(m), cachev1alpha1.AnnotationWarm)
	case said == cachev1alpha1.WarmAgain || warm == nil:
	case warm.Phase == cachev1alpha1.WarmDone || warm.Phase == cachev1alpha1.WarmSkipped || warm.Phase == cachev1alpha1.WarmOnMiss || warm.Phase == cachev1alpha1.WarmGivenUp:
		return fmt.Errorf("the warming of %s has ended (%s): kubectl mc warm %s copies again", nameOf(m), warm.Phase, m.Name)
	}
	return w.say(ctx, cachev1alpha1.AnnotationWarm, said, nameOf(m)+" "+done)
}
