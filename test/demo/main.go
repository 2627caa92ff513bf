// Command demo shows a scale-down that keeps the cache, on the cluster of KUBECONFIG, where the operator is
// deployed. Command demo applies the sample, fills the members with real objects by a client's ring, scales
// from three to two, and reads every object back from the two that stay. The exit code is not zero if an
// object is missing or differs.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/test/internal/app"
	"example.com/memcached-operator/test/internal/deployed"
	"example.com/memcached-operator/test/internal/harness"
)

func main() { harness.Main("demo", run) }

func run(ctx context.Context) error {
	d := &demo{out: os.Stdout, cluster: cluster}
	flag.StringVar(&d.kubectl, "kubectl", "kubectl", "kubectl to use.")
	flag.StringVar(&d.namespace, "namespace", "demo", "Namespace to use; made if it doesn't exist.")
	flag.StringVar(&d.sample, "sample", persistentSample, "Memcached to apply.")
	routed := flag.Bool("router", false, "Show a cluster with routers instead: an application goes on while it shrinks and grows.")
	flag.StringVar(&d.source, "source", "", "Folder whose files are the objects; by default the src of the Go distribution.")
	timeout := flag.Duration("timeout", 10*time.Minute, "Bound on the whole demo.")
	flag.Parse()
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	if *routed {
		return d.runRouted(ctx)
	}
	return d.run(ctx)
}

// These describe the sample.
const (
	persistentSample = "config/samples/cache_v1alpha1_memcached_persistent.yaml"

	cluster = "cache"
	client  = "libmemcached-ketama-weighted"
	before  = 3
	after   = 2
	port    = 11211
	maxItem = 1 << 20
)

type demo struct {
	out                                io.Writer
	kubectl, namespace, sample, source string
	// cluster is the name of the sample's Memcached.
	cluster string
	config  *rest.Config
}

func (d *demo) run(ctx context.Context) error {
	var err error
	if d.config, err = kubeconfig(); err != nil {
		return err
	}
	objects, left, err := d.objects(ctx)
	if err != nil {
		return err
	}
	if err := d.start(ctx); err != nil {
		return err
	}
	d.say("Filling %d objects through the ring of %s (%d over the item limit are left out)", len(objects), client, left)
	began := time.Now()
	full, err := d.app(ctx, before)
	if err != nil {
		return err
	}
	if err := full.Fill(ctx, objects); err != nil {
		return err
	}
	d.say("Filled in %.1f s", time.Since(began).Seconds())
	seconds, err := d.scaleDown(ctx)
	if err != nil {
		return err
	}
	d.say("Reading every object back from the %d members that stay", after)
	rest, err := d.app(ctx, after)
	if err != nil {
		return err
	}
	report, err := rest.Check(ctx, objects)
	if err != nil {
		return err
	}
	return d.finish(ctx, report, left, seconds)
}

// kubeconfig returns that of KUBECONFIG.
func kubeconfig() (*rest.Config, error) {
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("find the cluster (set KUBECONFIG): %w", err)
	}
	return config, nil
}

func (d *demo) objects(ctx context.Context) ([]app.Object, int, error) {
	if d.source == "" {
		var err error
		if d.source, err = app.GoSource(ctx); err != nil {
			return nil, 0, fmt.Errorf("%w (or give --source)", err)
		}
	}
	return app.Load(d.source, maxItem)
}

// start removes the objects of an earlier demo, because its items would count as already present, and applies
// the sample.
func (d *demo) start(ctx context.Context) error {
	quiet := []string{"create", "namespace", d.namespace}
	if out, err := d.command(ctx, quiet...).CombinedOutput(); err != nil && !strings.Contains(string(out), "AlreadyExists") {
		return fmt.Errorf("create namespace %s: %s", d.namespace, out)
	}
	for _, args := range [][]string{
		{"delete", "mc", d.cluster, "--ignore-not-found", "--timeout=120s"},
		{"delete", "pod,pvc", "-l", "app.kubernetes.io/instance=" + d.cluster, "--timeout=120s"},
		{"apply", "-f", d.sample},
		{"wait", "mc", d.cluster, "--for=condition=Available", "--timeout=180s"},
		{"get", "mc", d.cluster, "-o", "wide"},
	} {
		if err := d.show(ctx, args...); err != nil {
			_ = d.show(ctx, "get", "mc,pods", "-o", "wide") // what the cluster waits for
			return err
		}
	}
	return nil
}

// app connects an application to the first n members.
func (d *demo) app(ctx context.Context, n int) (*app.App, error) {
	servers, dial := make([]string, n), map[string]string{}
	for i := range n {
		pod := fmt.Sprintf("%s-%d", cluster, i)
		servers[i] = fmt.Sprintf("%s.%s.%s.svc:%d", pod, cluster, d.namespace, port)
		address, err := deployed.ForwardPod(ctx, d.config, d.namespace, pod, port)
		if err != nil {
			return nil, err
		}
		dial[servers[i]] = address
	}
	return app.New(client, servers, func(server string) string { return dial[server] })
}

// scaleDown acts as a person does, shows what they see, and returns the seconds until the departed member's
// claim is gone.
func (d *demo) scaleDown(ctx context.Context) (float64, error) {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	watch := d.command(watching, "get", "mc", cluster, "-w")
	watch.Stdout, watch.Stderr = d.out, io.Discard
	if err := d.show(ctx, "scale", "mc", cluster, fmt.Sprintf("--replicas=%d", after)); err != nil {
		return 0, err
	}
	began := time.Now()
	fmt.Fprintf(d.out, "$ kubectl get mc %s -w\n", cluster)
	if err := watch.Start(); err != nil {
		return 0, err
	}
	claim := fmt.Sprintf("data-%s-%d", cluster, after)
	gone := d.command(ctx, "wait", "pvc", claim, "--for=delete", "--timeout=300s")
	if out, err := gone.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("claim %s is still there: %s\n%s", claim, out, d.describe(ctx))
	}
	seconds := time.Since(began).Seconds()
	running := d.command(ctx, "wait", "mc", cluster, "--for=jsonpath={.status.phase}=Running", "--timeout=60s")
	_ = running.Run() // for the watch's last line; the objects are the check
	stop()
	_ = watch.Wait()
	return seconds, nil
}

func (d *demo) describe(ctx context.Context) []byte {
	out, _ := d.command(ctx, "get", "mc", cluster, "-o", "yaml").CombinedOutput()
	return out
}

// finish prints the table, and the next things to try.
func (d *demo) finish(ctx context.Context, r app.Report, left int, seconds float64) error {
	uid, err := d.command(ctx, "get", "mc", cluster, "-o", "jsonpath={.metadata.uid}").Output()
	if err != nil {
		return err
	}
	if err := d.show(ctx, "get", "events", "--field-selector=involvedObject.uid="+string(uid),
		"-o", "custom-columns=REASON:.reason,MESSAGE:.message"); err != nil {
		return err
	}
	receipt, err := d.command(ctx, "get", "mc", cluster, "-o", "jsonpath={.status.lastDrains[0]}").Output()
	if err != nil {
		return err
	}
	var last cachev1alpha1.DrainReceipt
	if err := json.Unmarshal(receipt, &last); err != nil {
		return fmt.Errorf("status has no receipt: %q", receipt)
	}
	if err := d.list([]line{
		{"objects", r.Objects},
		{"left out (over the item limit)", left},
		{"found", r.Found},
		{"missing", r.Missing},
		{"wrong (bytes, flags or TTL)", r.Wrong},
		{"items moved while the member was leaving", last.Moved},
		{"items that the drain still found", last.Found},
		{"seconds from scale to claim gone", fmt.Sprintf("%.1f", seconds)},
	}); err != nil {
		return err
	}
	if r.Missing+r.Wrong > 0 || r.Found != r.Objects || r.Objects == 0 {
		return errors.New("not every object is where the client looks:\n" + strings.Join(r.Examples, "\n"))
	}
	fmt.Fprintf(d.out, `
Nothing was lost. The cluster stays up; try
  kubectl -n %[1]s scale mc cache --replicas=1    # once more
  kubectl -n %[1]s scale mc cache --replicas=0    # hibernate: volumes stay, and
  kubectl -n %[1]s scale mc cache --replicas=2    # resume with the cache warm
  kubectl -n %[1]s describe mc cache
`, d.namespace)
	return nil
}

// line is one of those that the demo prints at the end.
type line struct {
	name  string
	value any
}

func (d *demo) list(lines []line) error {
	fmt.Fprintln(d.out)
	table := tabwriter.NewWriter(d.out, 0, 0, 2, ' ', 0)
	for _, l := range lines {
		fmt.Fprintf(table, "%s\t%v\n", l.name, l.value)
	}
	return table.Flush()
}

func (d *demo) say(format string, args ...any) {
	fmt.Fprintf(d.out, "# "+format+"\n", args...)
}

// show runs kubectl, and shows the command and its output.
func (d *demo) show(ctx context.Context, args ...string) error {
	fmt.Fprintf(d.out, "$ kubectl %s\n", strings.Join(args, " "))
	c := d.command(ctx, args...)
	c.Stdout, c.Stderr = d.out, os.Stderr
	if err := c.Run(); err != nil {
		return fmt.Errorf("kubectl %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

func (d *demo) command(ctx context.Context, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, d.kubectl, append([]string{"--namespace=" + d.namespace}, args...)...)
	c.WaitDelay = time.Second
	return c
}
