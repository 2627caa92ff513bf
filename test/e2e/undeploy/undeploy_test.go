// Package undeploy tests that the operator can be removed from a cluster, in the middle of its work, and
// leaves no finalizer, and that releases can be installed and upgraded from their files (versions_test.go,
// after the others). These tests run after the other end-to-end tests, since they remove the operator.
package undeploy

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// phases are those of a drain, each with the spec.drain that keeps the drain in it. Each has a cluster of its
// own, named after the phase, that has lost a member. Members leave at once, because items that they gave away
// while they were leaving would not be drained.
var phases = map[string]string{
	held:     `{}`,
	starting: `{resources: {requests: {cpu: "1000"}}}`, // no node has so much
	adding:   `{rateLimit: {bytesPerSecond: 1Ki}}`,     // this takes an hour for the items
	failed:   `{}`,
}

// longEnough is a time-out of kubectl that no wait should reach: waits end by the tests' own deadline.
const longEnough = "--timeout=24h"

const held, starting, adding, failed = "held", "starting", "adding", "failed"

const cluster = `
apiVersion: cache.example.com/v1alpha1
kind: Memcached
metadata: {name: %s, namespace: %s}
spec: {size: 2, memory: 64Mi, storage: {size: 128Mi}, routing: {client: gomemcache, patience: 0s}, drain: %s}
`

// undeployWait is how long the running operator has for its finalizers. If none runs, undeploy waits for that
// long.
const undeployWait = "UNDEPLOY_WAIT=20s"

// memcachedImage is that of members, as an argument of make.
const memcachedImage = "MEMCACHED_IMG=example.com/memcached:debian"

func TestMain(m *testing.M) {
	if os.Getenv("KUBECONFIG") == "" && !tier.Required() {
		fmt.Println("undeploy: skipped without KUBECONFIG; make test-e2e brings a cluster up, and runs it")
		return
	}
	os.Exit(m.Run())
}

// TestUndeployInTheMiddleOfADrain removes the deployed operator while one drain is held and another one goes
// on.
func TestUndeployInTheMiddleOfADrain(t *testing.T) {
	in := []string{held, adding}
	start(t, in...)
	t.Log(run(t, "../../..", "make", "undeploy", "KUBECTL=kubectl", "UNDEPLOY_WAIT=24h"))
	expectNothingHeld(t, in)
}

func TestUndeployLeavesNoFinalizer(t *testing.T) {
	tier.Second(t, "TestUndeployInTheMiddleOfADrain")
	for _, c := range []struct {
		name, before string
		in           []string
		deploy       func(*testing.T)
	}{
		{"while drains are in each phase", "", []string{held, starting, adding, failed}, func(t *testing.T) {
			run(t, "../../..", "make", "deploy", "KUBECTL=kubectl", memcachedImage)
		}},
		{"when the operator is gone already", "delete -n memcached-operator-system deployment --all --wait", []string{held}, func(t *testing.T) {
			run(t, "../../..", "make", "build-installer", memcachedImage)
			kubectl(t, "apply", "--server-side", "-f", "../../../dist/install.yaml")
			kubectl(t, "rollout", "status", "-n", "memcached-operator-system", "deployment/memcached-operator-manager", longEnough)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.deploy(t)
			start(t, c.in...)
			if c.before != "" {
				kubectl(t, strings.Fields(c.before)...)
			}
			t.Log(run(t, "../../..", "make", "undeploy", "KUBECTL=kubectl", undeployWait))
			expectNothingHeld(t, c.in)
		})
	}
}

// start makes a drain in each of these phases.
func start(t *testing.T, in ...string) {
	t.Helper()
	kubectl(t, "create", "namespace", "undeploy")
	for _, phase := range in {
		apply(t, fmt.Sprintf(cluster, phase, "undeploy", phases[phase]))
	}
	for _, phase := range in {
		kubectl(t, "wait", "-n", "undeploy", "mc", phase, "--for=condition=Available", longEnough)
		items := 1000
		if phase == adding {
			items = 50_000
		}
		fill(t, phase, items)
		if phase == held || phase == failed {
			kubectl(t, "annotate", "-n", "undeploy", "pvc", claim(phase), "cache.example.com/drain=hold")
		}
		kubectl(t, "scale", "-n", "undeploy", "mc", phase, "--replicas=1")
	}
	if slices.Contains(in, failed) {
		fail(t)
	}
	for _, phase := range in {
		await(t, phase, strings.ToUpper(phase[:1])+phase[1:])
	}
}

// fail lets the drain of that name fail: the save that it would read is cut.
func fail(t *testing.T) {
	t.Helper()
	await(t, failed, "Held")
	kubectl(t, "wait", "-n", "undeploy", "--for=delete", "pod/failed-1", longEnough) // the member has saved
	spoil(t, claim(failed))
	kubectl(t, "annotate", "-n", "undeploy", "pvc", claim(failed), "cache.example.com/drain-")
}

// The Helm chart renders an operator for one namespace. That operator has no right outside of the namespace.
// The administrator installs the CRD.
func TestTheChartsNamespacedOperatorDrainsInItsNamespace(t *testing.T) {
	tier.Second(t, "TestUndeployInTheMiddleOfADrain")
	manifest := run(t, "../../..", "bin/chart", "--set=namespaced=true", "--set=memcachedImage=example.com/memcached:debian", "charts/memcached-operator")
	for _, kind := range []string{"ClusterRole", "ClusterRoleBinding"} {
		if strings.Contains(manifest, "\nkind: "+kind+"\n") {
			t.Fatalf("there is a %s", kind)
		}
	}
	const namespace = "memcached-operator-system" // the namespace of the release
	kubectl(t, "create", "namespace", namespace)
	apply(t, manifest)
	kubectl(t, "wait", "--for=condition=Established", "crd/memcacheds.cache.example.com", longEnough)
	apply(t, fmt.Sprintf(cluster, "cache", namespace, "{}"))
	kubectl(t, "wait", "-n", namespace, "mc", "cache", "--for=condition=Available", longEnough)
	const items = 1000
	fillIn(t, namespace, "cache", items)
	kubectl(t, "scale", "-n", namespace, "mc", "cache", "--replicas=1")
	kubectl(t, "wait", "-n", namespace, "mc", "cache", "--for=jsonpath={.status.lastDrains[0].added}="+strconv.Itoa(items), longEnough)

	kubectl(t, "delete", "-n", namespace, "mc", "cache", longEnough)
	kubectl(t, "delete", "crd", "memcacheds.cache.example.com", longEnough)
	kubectl(t, "delete", "namespace", namespace, longEnough)
}

// This acts as helm install and helm uninstall, with names that are used nowhere else.
func TestHelmUninstallLeavesNoFinalizer(t *testing.T) {
	tier.Second(t, "TestUndeployInTheMiddleOfADrain")
	const release, namespace = "our-memcached-operator", "caching"
	chart := func(args ...string) string {
		args = append([]string{"--release=" + release, "--namespace=" + namespace, "--set=memcachedImage=example.com/memcached:debian",
			"--set=uninstall.timeoutSeconds=5"}, append(args, "charts/memcached-operator")...)
		return run(t, "../../..", "bin/chart", args...)
	}
	manifest, hook := chart(), chart("--hook=pre-delete")
	kubectl(t, "create", "namespace", namespace)
	apply(t, manifest)
	kubectl(t, "wait", "--for=condition=Established", "crd/memcacheds.cache.example.com", longEnough)
	kubectl(t, "rollout", "status", "-n", namespace, "deployment/"+release+"-manager", longEnough)
	in := []string{held, starting}
	start(t, in...)

	apply(t, hook)
	kubectl(t, "wait", "-n", namespace, "job/"+release+"-uninstall", "--for=condition=Complete", longEnough)
	t.Log(kubectl(t, "logs", "-n", namespace, "job/"+release+"-uninstall"))
	remove(t, hook)
	remove(t, chart("--set=crd.install=false")) // Helm keeps the CRD
	expectNoFinalizer(t, in)
	for _, phase := range in {
		kubectl(t, "get", "mc", "-n", "undeploy", phase) // the cluster goes on serving
	}
	kubectl(t, "delete", "namespace", "undeploy", namespace, longEnough)
	kubectl(t, "delete", "crd", "memcacheds.cache.example.com", longEnough)
}

func claim(cluster string) string { return "data-" + cluster + "-1" }

func await(t *testing.T, cluster, phase string) {
	t.Helper()
	kubectl(t, "wait", "-n", "undeploy", "mc", cluster, "--for=jsonpath={.status.drains[0].phase}="+phase, longEnough)
}

// fill stores items on the leaving member.
func fill(t *testing.T, cluster string, items int) {
	t.Helper()
	fillIn(t, "undeploy", cluster, items)
}

func fillIn(t *testing.T, namespace, cluster string, items int) {
	t.Helper()
	address := kubectl(t, "get", "pod", "-n", namespace, cluster+"-1", "-o", "jsonpath={.status.podIP}")
	client := memcache.New(address + ":11211")
	client.Timeout = wait.Long
	defer func() { _ = client.Close() }()
	for i := range items {
		if err := client.Set(&memcache.Item{Key: fmt.Sprintf("key-%d", i), Value: []byte("value")}); err != nil {
			t.Fatal(err)
		}
	}
}

// spoil truncates the save on a volume, which is a directory of this machine.
func spoil(t *testing.T, claim string) {
	t.Helper()
	volume := kubectl(t, "get", "pvc", "-n", "undeploy", claim, "-o", "jsonpath={.spec.volumeName}")
	path := kubectl(t, "get", "pv", volume, "-o", "jsonpath={.spec.local.path}")
	if err := os.Truncate(filepath.Join(path, contract.SaveFile), 1<<20); err != nil {
		t.Fatal(err)
	}
}

func expectNoFinalizer(t *testing.T, in []string) {
	t.Helper()
	claims := kubectl(t, "get", "pvc", "-n", "undeploy", "-o",
		`jsonpath={range .items[*]}{.metadata.name} {.metadata.deletionTimestamp}{.metadata.finalizers}{"\n"}{end}`)
	if strings.Contains(claims, "cache.example.com") {
		t.Errorf("claims are held by a finalizer of ours:\n%s", claims)
	}
	for _, phase := range in {
		if !strings.Contains(claims, claim(phase)) {
			t.Errorf("claim %s, and its items, are gone:\n%s", claim(phase), claims)
		}
	}
}

func expectNothingHeld(t *testing.T, in []string) {
	t.Helper()
	expectNoFinalizer(t, in)
	for _, kind := range []string{"crd", "namespace", "clusterrole", "clusterrolebinding", "validatingadmissionpolicy", "validatingadmissionpolicybinding"} {
		for name := range strings.FieldsSeq(kubectl(t, "get", kind, "-o", "name")) {
			if strings.Contains(name, "/memcached-operator-") && !strings.Contains(name, ":") || strings.Contains(name, "memcacheds.") {
				t.Errorf("undeploy left %s", name)
			}
		}
	}
	kubectl(t, "delete", "namespace", "undeploy", longEnough)
}

func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return run(t, ".", "kubectl", args...)
}

func apply(t *testing.T, manifest string) {
	t.Helper()
	feed(t, manifest, "apply", "--server-side", "-f", "-")
}

func remove(t *testing.T, manifest string) {
	t.Helper()
	feed(t, manifest, "delete", "--ignore-not-found", longEnough, "-f", "-")
}

func feed(t *testing.T, manifest string, args ...string) {
	t.Helper()
	c := command(t, ".", "kubectl", args...)
	c.Stdin = strings.NewReader(manifest)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	out, err := command(t, dir, name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func command(t *testing.T, dir, name string, args ...string) *exec.Cmd {
	ctx, cancel := context.WithDeadline(t.Context(), wait.Deadline())
	t.Cleanup(cancel)
	c := exec.CommandContext(ctx, name, args...)
	c.Dir, c.WaitDelay = dir, time.Second
	return c
}
