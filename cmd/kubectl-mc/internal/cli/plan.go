package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/cmd/kubectl-mc/internal/kube"
	"example.com/memcached-operator/cmd/kubectl-mc/internal/screen"
	"example.com/memcached-operator/controllers"
	"example.com/memcached-operator/drainer/routing"
	"example.com/memcached-operator/version"
)

// planFlags are the flags of kubectl mc plan.
type planFlags struct {
	*command
	size                  int32
	client, memory, image string
	file, keys            string
	apply, yes            bool
	format                string
	given                 func(flag string) bool
}

func newPlan(c *command) *cobra.Command {
	f := &planFlags{command: c}
	cmd := &cobra.Command{
		Use: "plan NAME", Short: "Show what a change would do, before it does",
		Long: `Show what a change of the spec would do: which members leave, join or restart, items and
bytes that move and from where to where, whether they fit, the share of keys that clients
look for elsewhere, how long it takes by the last receipts, and what comes first.

The API server checks the change, without storing it; the operator's own plan decides, on
what is observed now. --apply makes the change after a yes.

It ends with 3 if items would be lost or evicted, with 4 if something has to happen first.`,
		Example: `  kubectl mc plan cache --size 2
  kubectl mc plan cache --memory 512Mi --apply
  kubectl mc plan cache --client pymemcache --keys keys.txt
  kubectl mc plan cache -f cache.yaml -o json`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: c.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			f.given = func(flag string) bool { return cmd.Flags().Changed(flag) }
			return f.run(cmd.Context(), args[0])
		},
	}
	flags := cmd.Flags()
	flags.Int32Var(&f.size, "size", 0, "the number of members")
	flags.StringVar(&f.client, "client", "", "the client library (spec.routing.client)")
	flags.StringVar(&f.memory, "memory", "", "each member's memory")
	flags.StringVar(&f.image, "image", "", "the members' image")
	flags.StringVarP(&f.file, "filename", "f", "", "a manifest with another spec; - for standard input")
	flags.StringVar(&f.keys, "keys", "", "a file with keys of yours, one a line: which share of them clients look for elsewhere")
	flags.BoolVar(&f.apply, "apply", false, "make the change, after a yes")
	flags.BoolVarP(&f.yes, "yes", "y", false, "answer the question with yes")
	addOutput(cmd, &f.format)
	_ = cmd.RegisterFlagCompletionFunc("client", cobra.FixedCompletions(routing.Clients(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (f *planFlags) run(ctx context.Context, name string) error {
	if err := checkOutput(f.format); err != nil {
		return err
	}
	s, err := f.open()
	if err != nil {
		return err
	}
	before, err := s.Memcached(ctx, name)
	if err != nil {
		return err
	}
	change, err := f.change(before)
	if err != nil {
		return err
	}
	// A merge patch has only the changed fields, so that other fields stay their managers'.
	patch := client.MergeFrom(before)
	text, err := patch.Data(change)
	if err != nil {
		return err
	}
	after := change.DeepCopy()
	if err := s.Patch(ctx, after, patch, client.DryRunAll); err != nil {
		return fmt.Errorf("the API server refuses this change: %w", err)
	}
	keys, err := f.readKeys()
	if err != nil {
		return err
	}
	pods, err := s.Pods(ctx, before)
	if err != nil {
		return err
	}
	f.warnOfVersion(pods)
	if err := f.warnOfManagers(before, text); err != nil {
		return err
	}
	holds := f.holds(ctx, s, before, pods)
	forecast, err := controllers.Preview(ctx, s, before, after, holds, keys)
	if err != nil {
		return err
	}
	width, _, _ := terminal(f.io.Out)
	if err := f.print(f.format, forecast, func() []string { return screen.Forecast(forecast, width, f.style()) }); err != nil {
		return err
	}
	if !f.apply {
		return ends(forecast)
	}
	if err := f.agree(ctx, f.yes, question(forecast)); err != nil {
		return err
	}
	return f.make(ctx, s, before, change)
}

// make makes the change, if the spec is still the one that the plan is about.
func (f *planFlags) make(ctx context.Context, s *kube.Session, before, change *cachev1alpha1.Memcached) error {
	now := &cachev1alpha1.Memcached{}
	if err := s.Get(ctx, client.ObjectKeyFromObject(before), now); err != nil {
		return fmt.Errorf("make the change: %w", err)
	}
	if now.UID != before.UID || now.Generation != before.Generation {
		return fmt.Errorf("the spec of Memcached %s has changed since this plan, which may not hold any more: nothing was changed; make another plan", before.Name)
	}
	if err := s.Patch(ctx, change, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("make the change: %w", err)
	}
	fmt.Fprintf(f.io.ErrOut, "the change is made: kubectl mc status %s -w shows it\n", before.Name)
	return nil
}

// warnOfManagers names the other managers of a patch's fields, which may set these back.
func (f *planFlags) warnOfManagers(before *cachev1alpha1.Memcached, patch []byte) error {
	warnings, err := otherManagers(before.ManagedFields, patch)
	for _, w := range warnings {
		fmt.Fprintln(f.io.ErrOut, "warning:", w)
	}
	return err
}

// change is the Memcached with the change that the flags ask for.
func (f *planFlags) change(before *cachev1alpha1.Memcached) (*cachev1alpha1.Memcached, error) {
	after, changes := before.DeepCopy(), 0
	if f.file != "" {
		spec, err := f.readSpec(before)
		if err != nil {
			return nil, err
		}
		size := after.Spec.Size
		if after.Spec = *spec; spec.Size == nil {
			after.Spec.Size = size // the operator doesn't change it, either
		}
		changes++
	}
	if f.given("size") {
		after.Spec.Size = &f.size
		changes++
	}
	if f.given("client") {
		after.Spec.Routing.Client = cachev1alpha1.Client(f.client)
		changes++
	}
	if f.given("image") {
		after.Spec.Image = f.image
		changes++
	}
	if f.given("memory") {
		memory, err := resource.ParseQuantity(f.memory)
		if err != nil {
			return nil, fmt.Errorf("--memory: %w", err)
		}
		after.Spec.Memory = &memory
		changes++
	}
	if changes == 0 {
		return nil, errors.New("say what to change: --size, --client, --memory, --image or -f")
	}
	return after, nil
}

// readSpec reads the manifest, which has to be that of this Memcached.
func (f *planFlags) readSpec(of *cachev1alpha1.Memcached) (*cachev1alpha1.MemcachedSpec, error) {
	const most = 4 << 20
	in := f.io.In
	if f.file != "-" {
		file, err := os.Open(f.file)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		in = file
	}
	text, err := io.ReadAll(io.LimitReader(in, most))
	if err != nil {
		return nil, err
	}
	m := &cachev1alpha1.Memcached{}
	if err := yaml.UnmarshalStrict(text, m); err != nil {
		return nil, fmt.Errorf("%s: %w", f.file, err)
	}
	if group := cachev1alpha1.GroupVersion.String(); m.APIVersion != group || m.Kind != "Memcached" || m.Name != of.Name {
		return nil, fmt.Errorf("%s has %s %s of %s, not Memcached %s of %s", f.file, m.Kind, m.Name, m.APIVersion, of.Name, group)
	}
	if m.Namespace != "" && m.Namespace != of.Namespace {
		return nil, fmt.Errorf("%s is for namespace %s, and this plan for namespace %s: say --namespace", f.file, m.Namespace, of.Namespace)
	}
	return &m.Spec, nil
}

// readKeys reads a person's keys; nil for none.
func (f *planFlags) readKeys() (keys [][]byte, err error) {
	if f.keys == "" {
		return nil, nil
	}
	file, err := os.Open(f.keys)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if key := bytes.TrimSpace(lines.Bytes()); len(key) > 0 {
			keys = append(keys, bytes.Clone(key))
		}
	}
	return keys, lines.Err()
}

// holds asks the members for their contents.
func (f *planFlags) holds(ctx context.Context, s *kube.Session, m *cachev1alpha1.Memcached, pods []corev1.Pod) map[string]controllers.Holds {
	numbers, unasked := ask(ctx, s, m, pods, true)
	if unasked != "" {
		fmt.Fprintln(f.io.ErrOut, "warning: numbers are missing:", unasked)
	}
	holds := map[string]controllers.Holds{}
	for pod, n := range numbers {
		holds[pod] = controllers.Holds{Items: n.Items, Bytes: n.Bytes, Limit: n.Limit, Classes: n.Classes}
	}
	return holds
}

// warnOfVersion warns if the operator's image has the tag of another version than this program: then another plan
// decides.
func (f *planFlags) warnOfVersion(pods []corev1.Pod) {
	for i := range pods {
		for _, c := range pods[i].Spec.InitContainers {
			image, _, _ := strings.Cut(c.Image, "@")
			tag := image[strings.LastIndexAny(image, ":/")+1:]
			if c.Name == "install" && strings.HasPrefix(tag, "v") && version.Version != "" && tag != version.Version {
				fmt.Fprintf(f.io.ErrOut, "warning: the operator is of version %s, and this program of %s: what happens may differ\n", tag, version.Version)
				return
			}
		}
	}
}

// ends is the exit code of a plan.
func ends(f *controllers.Forecast) error {
	switch {
	case f.Loses():
		return &exit{code: exitLoses}
	case f.Blocked != nil:
		return &exit{code: exitBlocked}
	}
	return nil
}

func question(f *controllers.Forecast) string {
	switch {
	case len(f.Uncounted) > 0:
		return fmt.Sprintf("This gives up, for good, what %s hold, and how much that is is not known. Go on?", strings.Join(f.Uncounted, ", "))
	case f.Lost.Items > 0:
		return fmt.Sprintf("This gives up %s items for good. Go on?", screen.Count(f.Lost.Items))
	case f.Evicted.Items > 0:
		return fmt.Sprintf("This evicts about %s items. Go on?", screen.Count(f.Evicted.Items))
	}
	return "Go on?"
}
