package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"example.com/memcached-operator/cmd/kubectl-mc/internal/kube"
)

func newLogs(c *command) *cobra.Command {
	since, follow := time.Duration(0), false
	cmd := &cobra.Command{
		Use: "logs NAME", Short: "Show the logs and events of members, routers, drains, moves and the operator, by time",
		Long: `Show what belongs to a scaling in one log, merged by time: events, the logs of members,
routers, drains and moves that still have a pod, and the operator's lines about the object, where
you may read them.`,
		Example: "  kubectl mc logs cache\n  kubectl mc logs cache --since 10m\n  kubectl mc logs cache -f --since 0s",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: c.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			s, err := c.open()
			if err != nil {
				return err
			}
			owner, err := s.Find(ctx, args[0])
			if err != nil {
				return err
			}
			began := time.Now().Add(-since)
			logs := c.logs(ctx, s, owner, began)
			if err := c.printLogs(logs); err != nil || !follow {
				return err
			}
			return c.follow(ctx, s, owner, logs, began)
		},
	}
	cmd.Flags().DurationVar(&since, "since", time.Hour, "how far back")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on showing what is logged, until interrupted")
	return cmd
}

func (c *command) printLogs(logs []kube.Line) error {
	return c.print("", nil, func() (lines []string) {
		for i := range logs {
			lines = append(lines, logLine(&logs[i]))
		}
		return lines
	})
}

func logLine(l *kube.Line) string {
	return fmt.Sprintf("%s %s %s", l.At.UTC().Format("2006-01-02T15:04:05.000Z"), l.From, l.Text)
}

// logs reads the lines that belong to the owner since then, by time. Unreadable logs are warnings.
func (c *command) logs(ctx context.Context, s *kube.Session, owner client.Object, since time.Time) (lines []kube.Line) {
	warn := func(err error) {
		if err != nil {
			fmt.Fprintln(c.io.ErrOut, "warning:", err)
		}
	}
	lines, err := s.Events(ctx, owner.GetNamespace(), kube.About(owner), since)
	warn(err)
	pods, err := s.OwnPods(ctx, owner)
	warn(err)
	for i := range pods {
		lines = append(lines, s.Logs(ctx, &pods[i], since, warn)...)
	}
	managers, err := s.ManagerPods(ctx, owner)
	if !apierrors.IsForbidden(err) {
		warn(err)
	}
	for i := range managers {
		all := s.Logs(ctx, &managers[i], since, func(err error) {
			if !apierrors.IsForbidden(err) {
				warn(err)
			}
		})
		about := aboutOwner(owner)
		lines = append(lines, slices.DeleteFunc(all, func(l kube.Line) bool { return !about(l) })...)
	}
	slices.SortStableFunc(lines, byTime)
	return lines
}
