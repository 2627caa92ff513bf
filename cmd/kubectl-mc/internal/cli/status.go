package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/cmd/kubectl-mc/internal/kube"
	"example.com/memcached-operator/cmd/kubectl-mc/internal/members"
	"example.com/memcached-operator/cmd/kubectl-mc/internal/screen"
)

// statusFlags are the flags of kubectl mc status.
type statusFlags struct {
	*command
	watch, everywhere, ask bool
	interval               time.Duration
	format                 string
	// line is the last one that was printed for an object, where the output is no terminal.
	line map[string]string
	// heard has the ends of drainers' logs, so that a bar doesn't go back if one can't be read for a moment.
	heard map[types.UID][]string
	// shown are the last lines on the terminal, troubled is the last trouble with the API server.
	shown    []string
	troubled string
	// lacks has the missing rights that were named.
	lacks map[string]bool
}

func newStatus(c *command) *cobra.Command {
	f := &statusFlags{command: c, line: map[string]string{}, heard: map[types.UID][]string{}, lacks: map[string]bool{}}
	cmd := &cobra.Command{
		Use: "status [NAME]", Short: "Show members, ring, drains, moves, and what waits for what",
		Long: `Show members with their items, memory, hit ratio and connections; the ring; drains and
moves with rates and the time that is left; what waits, since when, and the command that helps.

Members are asked for their numbers through a port-forward, with your rights.`,
		Example: `  kubectl mc status                 # all of the namespace
  kubectl mc status cache -w        # one, live
  kubectl mc status cache -o json`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: c.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context(), args) },
	}
	cmd.Flags().BoolVarP(&f.watch, "watch", "w", false, "go on showing it until interrupted; where the output is no terminal, a line for each change")
	cmd.Flags().BoolVarP(&f.everywhere, "all-namespaces", "A", false, "show the clusters of all namespaces")
	cmd.Flags().BoolVar(&f.ask, "ask", true, "ask the members for their numbers, and read in logs how far they and drainers are")
	cmd.Flags().DurationVar(&f.interval, "interval", 2*time.Second, "how often --watch looks")
	addOutput(cmd, &f.format)
	return cmd
}

func (f *statusFlags) run(ctx context.Context, args []string) error {
	if err := checkOutput(f.format); err != nil {
		return err
	}
	if f.interval < 100*time.Millisecond {
		return errors.New("--interval must be 100ms at least")
	}
	s, err := f.open()
	if err != nil {
		return err
	}
	if !f.watch {
		return f.once(ctx, s, args)
	}
	if f.format != "" {
		return errors.New("--watch has no --output: run kubectl mc status -o again and again")
	}
	for begun := false; ; begun = true {
		err := f.refresh(ctx, s, args)
		if begun && passes(err) {
			err = f.trouble(err)
		}
		switch {
		case ctx.Err() != nil:
			return nil // a person has interrupted it
		case err != nil:
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(f.interval):
		}
	}
}

// objects are those that the arguments name.
func (f *statusFlags) objects(ctx context.Context, s *kube.Session, args []string) (objects []client.Object, err error) {
	if len(args) > 0 {
		object, err := s.Find(ctx, args[0])
		return []client.Object{object}, err
	}
	clusters, err := s.Memcacheds(ctx, f.everywhere)
	if err != nil && !apierrors.IsForbidden(err) {
		return nil, err
	}
	for i := range clusters {
		objects = append(objects, &clusters[i])
	}
	drains, drainsErr := s.StatefulSetDrains(ctx, f.everywhere)
	for i := range drains {
		objects = append(objects, &drains[i])
	}
	if err != nil && drainsErr != nil || drainsErr != nil && !apierrors.IsForbidden(drainsErr) {
		return nil, errors.Join(err, drainsErr)
	}
	if lacks := cmp.Or(err, drainsErr); lacks != nil && !f.lacks[lacks.Error()] {
		f.lacks[lacks.Error()] = true
		fmt.Fprintln(f.io.ErrOut, "warning:", lacks)
	}
	return objects, nil
}

// passes tells whether an error will pass when the API server answers again.
func passes(err error) bool {
	return errors.As(err, new(*kube.Silent)) || errors.As(err, new(net.Error)) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
		apierrors.IsTooManyRequests(err) || apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err)
}

// trouble prints, below the last state, why there is no newer one.
func (f *statusFlags) trouble(err error) error {
	if width, height, is := terminal(f.io.Out); is {
		lines := screen.Fold(append(slices.Clone(f.shown), f.style().Warn("this is no longer new: "+err.Error())), width)
		return f.draw(lines[max(0, len(lines)-height+1):])
	}
	if f.troubled != err.Error() {
		f.troubled = err.Error()
		fmt.Fprintln(f.io.ErrOut, "warning:", err)
	}
	return nil
}

func (f *statusFlags) once(ctx context.Context, s *kube.Session, args []string) error {
	objects, err := f.objects(ctx, s, args)
	if err != nil {
		return err
	}
	if len(objects) == 0 && f.format == "" {
		fmt.Fprintln(f.io.ErrOut, "there is no Memcached and no StatefulSetDrain")
		return nil
	}
	width, _, _ := terminal(f.io.Out) // what has scrolled away can be scrolled back
	shown := make([]any, len(objects))
	var lines []string
	for i, object := range objects {
		var more []string
		if shown[i], more, err = f.show(ctx, s, object, width, 0); err != nil {
			return err
		}
		if i > 0 {
			lines = append(lines, "")
		}
		lines = append(lines, more...)
	}
	if len(args) > 0 {
		return f.print(f.format, shown[0], func() []string { return lines })
	}
	return f.print(f.format, shown, func() []string { return lines })
}

// show returns an object's view, and its lines.
func (f *statusFlags) show(ctx context.Context, s *kube.Session, object client.Object, width, height int) (any, []string, error) {
	now := time.Now()
	switch o := object.(type) {
	case *cachev1alpha1.Memcached:
		view, err := f.look(ctx, s, o, now)
		if err != nil {
			return nil, nil, err
		}
		return view, view.Lines(width, height, f.style(), now), nil
	case *cachev1alpha1.StatefulSetDrain:
		return screen.DrainOf(o), screen.DrainLines(o, width, f.style(), now), nil
	}
	return nil, nil, fmt.Errorf("%T has no screen", object)
}

// look reads a Memcached's objects, and asks its members.
func (f *statusFlags) look(ctx context.Context, s *kube.Session, m *cachev1alpha1.Memcached, now time.Time) (*screen.Cluster, error) {
	all, err := s.OwnPods(ctx, m)
	if err != nil {
		return nil, err
	}
	seen := &screen.Seen{Pods: kube.Members(all)}
	if f.ask {
		seen.Numbers, seen.Unasked = ask(ctx, s, m, seen.Pods, false)
		f.listen(ctx, s, all, seen)
	}
	return screen.Of(m, seen, now), nil
}

// listen reads the progress of members and drainers.
func (f *statusFlags) listen(ctx context.Context, s *kube.Session, pods []corev1.Pod, seen *screen.Seen) {
	pods = slices.DeleteFunc(pods, func(p corev1.Pod) bool {
		return p.Labels[cachev1alpha1.LabelComponent] == cachev1alpha1.ComponentRouter
	})
	ends, err := s.Ends(ctx, pods)
	if err != nil {
		seen.Unheard = err.Error()
	}
	for i := range pods {
		pod := &pods[i]
		if pod.Labels[cachev1alpha1.LabelComponent] != cachev1alpha1.ComponentMember {
			if len(ends[i]) == 0 {
				ends[i] = f.heard[pod.UID]
			}
			f.heard[pod.UID] = ends[i]
		}
		seen.Heard = append(seen.Heard, screen.Heard{Pod: pod, Lines: ends[i]})
	}
}

// ask asks the members for their numbers, for a plan or for the screen. unasked is why some have not answered.
func ask(ctx context.Context, s *kube.Session, m *cachev1alpha1.Memcached, pods []corev1.Pod, forPlan bool) (numbers map[string]*members.Numbers, unasked string) {
	asker, err := members.Of(ctx, s, members.Forwarded(s.Config, s.Clients), m)
	if err != nil {
		return nil, err.Error()
	}
	asker.ForPlan = forPlan
	numbers, why := asker.Each(ctx, m, pods)
	for _, pod := range pods {
		if err := why[pod.Name]; err != nil {
			return numbers, err.Error()
		}
	}
	return numbers, ""
}

// refresh shows the present state once more: a screen, or a line for each change.
func (f *statusFlags) refresh(ctx context.Context, s *kube.Session, args []string) error {
	objects, err := f.objects(ctx, s, args)
	if err != nil {
		return err
	}
	width, height, is := terminal(f.io.Out)
	if !is {
		for _, object := range objects {
			f.lineOf(object)
		}
		return nil
	}
	var lines []string
	for _, object := range objects {
		_, more, err := f.show(ctx, s, object, width, height/len(objects)-2)
		if err != nil {
			return err
		}
		lines = append(lines, append(more, "")...)
	}
	if len(lines) > height-1 {
		lines = append(lines[:max(0, height-2)], "…")
	}
	f.shown, f.troubled = lines, ""
	return f.draw(lines)
}

// draw shows the lines on the terminal, from its upper left. The cursor stays below the lines, so nothing has
// to be restored.
func (f *statusFlags) draw(lines []string) error {
	for i := range lines {
		lines[i] = screen.Plain(lines[i])
	}
	if len(lines) > 0 && lines[len(lines)-1] != "" {
		lines = append(slices.Clone(lines), "")
	}
	const home, clearLine, clearBelow = "\x1b[H", "\x1b[K\r\n", "\x1b[J"
	_, err := fmt.Fprint(f.io.Out, home, strings.Join(lines, clearLine), clearBelow)
	return err
}

// lineOf prints a line about the object, if it differs from the last one.
func (f *statusFlags) lineOf(object client.Object) {
	var words []string
	switch o := object.(type) {
	case *cachev1alpha1.Memcached:
		words = []string{string(o.Status.Phase), fmt.Sprintf("%d of %d ready", o.Status.ReadySize, o.Status.Size), o.Status.Progress}
	case *cachev1alpha1.StatefulSetDrain:
		words = []string{fmt.Sprintf("%d of %d ready", o.Status.ReadyReplicas, o.Status.Replicas), fmt.Sprintf("%d to drain", o.Status.Draining), o.Status.Progress}
	}
	words = slices.DeleteFunc(words, func(w string) bool { return w == "" })
	name := object.GetNamespace() + "/" + object.GetName()
	line := name + "  " + strings.Join(words, "  ")
	if f.line[name] != line {
		f.line[name] = line
		fmt.Fprintln(f.io.Out, time.Now().UTC().Format(time.RFC3339)+"  "+line)
	}
}
