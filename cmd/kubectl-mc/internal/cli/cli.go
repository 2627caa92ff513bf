// Package cli has the commands of kubectl mc, one file each: flags in, exit code out.
package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"example.com/memcached-operator/cmd/kubectl-mc/internal/kube"
	"example.com/memcached-operator/version"
)

// Exit codes. A command that only failed ends with 1.
const (
	exitFailed = 1
	// exitLoses: the change would give items up.
	exitLoses = 3
	// exitBlocked: something else has to happen first.
	exitBlocked = 4
	// exitRefused: the person did not say yes.
	exitRefused = 5
)

// exit ends the program with a code.
type exit struct {
	code int
	why  string
}

func (e *exit) Error() string { return e.why }

// command has the parts that all commands share.
type command struct {
	flags *genericclioptions.ConfigFlags
	io    genericiooptions.IOStreams
}

// Run runs kubectl mc with these arguments, and returns its exit code.
func Run(args []string, io genericiooptions.IOStreams) int {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := newRoot(&command{flags: genericclioptions.NewConfigFlags(true), io: io})
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	coded := (*exit)(nil)
	if !errors.As(err, &coded) {
		fmt.Fprintln(io.ErrOut, "error:", err)
		return exitFailed
	}
	if coded.why != "" {
		fmt.Fprintln(io.ErrOut, coded.why)
	}
	return coded.code
}

const rootLong = `See it before it happens, and watch it happen: memcached clusters and StatefulSetDrains
of the memcached-operator.

Each command uses your kubeconfig and your rights. A NAME is that of a Memcached or of a
StatefulSetDrain; mc/NAME and stsdrain/NAME say which. A CLAIM is a PersistentVolumeClaim of
a member, as kubectl mc status names it.

Exit codes: 0 it is done; 1 it failed; 3 items would be given up; 4 something has to happen
first; 5 the question was not answered with yes.`

func newRoot(c *command) *cobra.Command {
	root := &cobra.Command{
		Use: "kubectl-mc", Short: "See what a scaling costs, and watch it", Long: rootLong,
		// kubectl finds a plugin by its file's name.
		Annotations:  map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl mc"},
		SilenceUsage: true, SilenceErrors: true,
		Version: version.String(),
	}
	root.SetIn(c.io.In)
	root.SetOut(c.io.Out)
	root.SetErr(c.io.ErrOut)
	c.flags.AddFlags(root.PersistentFlags())
	root.AddCommand(newStatus(c), newPlan(c), newOwner(c), newGet(c), newTouch(c), newDelete(c), newReceipts(c), newPause(c), newResume(c), newHold(c), newSkip(c), newRetry(c), newRelease(c), newWarm(c), newLogs(c), newSupportBundle(c))
	return root
}

func (c *command) open() (*kube.Session, error) { return kube.Open(c.flags) }

// agree asks a question, unless yes is given. Only the word yes, or y, agrees. An interrupt answers no.
func (c *command) agree(ctx context.Context, yes bool, question string) error {
	if yes {
		return nil
	}
	fmt.Fprintf(c.io.ErrOut, "%s (yes/no) ", question)
	answers := make(chan string, 1)
	go func() {
		answer, _ := bufio.NewReader(c.io.In).ReadString('\n')
		answers <- answer
	}()
	answer := ""
	select {
	case answer = <-answers:
	case <-ctx.Done():
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "yes", "y":
		return nil
	}
	if !strings.HasSuffix(answer, "\n") {
		fmt.Fprintln(c.io.ErrOut)
	}
	return &exit{exitRefused, "nothing was changed; --yes answers without the question"}
}
