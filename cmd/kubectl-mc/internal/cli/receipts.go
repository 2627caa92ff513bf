package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/cmd/kubectl-mc/internal/screen"
)

func newReceipts(c *command) *cobra.Command {
	format := ""
	cmd := &cobra.Command{
		Use: "receipts NAME", Short: "Show the receipts of the last drains",
		Example: "  kubectl mc receipts cache\n  kubectl mc receipts stsdrain/queue -o yaml",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: c.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error { return c.receipts(cmd.Context(), args[0], format) },
	}
	addOutput(cmd, &format)
	return cmd
}

func (c *command) receipts(ctx context.Context, name, format string) error {
	if err := checkOutput(format); err != nil {
		return err
	}
	s, err := c.open()
	if err != nil {
		return err
	}
	object, err := s.Find(ctx, name)
	if err != nil {
		return err
	}
	if d, is := object.(*cachev1alpha1.StatefulSetDrain); is {
		return c.print(format, d.Status.LastDrains, func() []string { return screen.DrainReceipts(d, time.Now()) })
	}
	m := object.(*cachev1alpha1.Memcached)
	return c.print(format, m.Status.LastDrains, func() []string { return screen.Receipts(m, time.Now()) })
}
