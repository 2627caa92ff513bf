package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/cmd/kubectl-mc/internal/bundle"
	"example.com/memcached-operator/cmd/kubectl-mc/internal/kube"
	"example.com/memcached-operator/cmd/kubectl-mc/internal/members"
)

func newSupportBundle(c *command) *cobra.Command {
	file, since, stats := "", time.Duration(0), true
	cmd := &cobra.Command{
		Use: "support-bundle NAME", Short: "Write objects, events, logs and statistics into one tar, without values, keys and secrets",
		Long: `Write what a person needs who helps you into one tar: objects, events, logs of the
operator's programs and members' statistics. It keeps what is known to be harmless: fields of
a list, words of the documentation, names of the cluster's objects. Values, keys, Secrets,
values of variables, arguments, other containers' logs and what messages quote are left out.`,
		Example: "  kubectl mc support-bundle cache --file cache.tar",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: c.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.supportBundle(cmd.Context(), args[0], file, time.Now().Add(-since), stats)
		},
	}
	cmd.Flags().StringVar(&file, "file", "", "the tar that is written; NAME-support.tar by default")
	cmd.Flags().DurationVar(&since, "since", 24*time.Hour, "how far back logs and events go")
	cmd.Flags().BoolVar(&stats, "ask", true, "ask the members for their statistics")
	return cmd
}

func (c *command) supportBundle(ctx context.Context, name, file string, since time.Time, stats bool) error {
	s, err := c.open()
	if err != nil {
		return err
	}
	owner, err := s.Find(ctx, name)
	if err != nil {
		return err
	}
	if file == "" {
		file = owner.GetName() + "-support.tar"
	}
	if _, err := os.Lstat(file); err == nil {
		return fmt.Errorf("%s exists: remove it, or say --file", file)
	}
	contents := bundle.Collect(ctx, s, owner)
	contents.Lines = c.logs(ctx, s, owner, since)
	if m, is := owner.(*cachev1alpha1.Memcached); is && stats {
		c.statistics(ctx, s, m, contents)
	}
	if ctx.Err() != nil {
		return &exit{exitFailed, "interrupted: nothing is written"}
	}
	if err := write(file, contents); err != nil {
		return err
	}
	fmt.Fprintln(c.io.Out, "written:", file)
	return nil
}

// write writes the archive. The file gets its name when the archive is complete.
func write(file string, contents *bundle.Contents) (err error) {
	out, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*.part") // which its owner alone may read
	if err != nil {
		return err
	}
	err = errors.Join(contents.Write(out, time.Now()), out.Close())
	if err == nil {
		err = os.Rename(out.Name(), file)
	}
	if err != nil {
		_ = os.Remove(out.Name())
	}
	return err
}

// statistics asks each member that runs.
func (c *command) statistics(ctx context.Context, s *kube.Session, m *cachev1alpha1.Memcached, contents *bundle.Contents) {
	pods, err := s.Pods(ctx, m)
	var asker *members.Members
	if err == nil {
		asker, err = members.Of(ctx, s, members.Forwarded(s.Config, s.Clients), m)
	}
	if err != nil {
		contents.Missing = append(contents.Missing, err.Error())
		return
	}
	for i := range pods {
		if pods[i].Status.Phase != corev1.PodRunning {
			continue
		}
		for _, arg := range []string{"", "settings", "items", "slabs"} {
			all, err := asker.Statistics(ctx, m, &pods[i], arg)
			if err != nil {
				contents.Missing = append(contents.Missing, err.Error())
				break
			}
			contents.Statistics[pods[i].Name+map[bool]string{true: "", false: "-" + arg}[arg == ""]] = all
		}
	}
}
