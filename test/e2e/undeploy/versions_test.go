package undeploy

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/bradfitz/gomemcache/memcache"

	"example.com/memcached-operator/test/internal/deployed"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

const (
	repository = "../../.."
	operator   = "memcached-operator-system" // the namespace of install.yaml, and of the chart's release
)

// releaseScript makes the release VERSION of a commit in a clone, under a umask: umask, clone, commit, VERSION, make's
// further arguments.
const releaseScript = `umask "$1"
git clone --quiet --shared . "$2"
cd "$2"
git checkout --quiet --detach "$3"
shift 3
exec make release VERSION="$@"`

// release makes a release of a commit, and returns the folder of its files.
func release(t *testing.T, commit, version, umask string) string {
	t.Helper()
	clone := filepath.Join(t.TempDir(), "clone")
	args := append([]string{"-euc", releaseScript, "bash", umask, clone, commit, version}, strings.Fields(os.Getenv("RELEASE_TOOLS"))...)
	run(t, repository, "bash", args...)
	return filepath.Join(clone, "bin/release", version)
}

func commit(t *testing.T, name string) string {
	t.Helper()
	return strings.TrimSpace(run(t, repository, "git", "rev-parse", name))
}

// pinned finds the operator's image in install.yaml, which names it by its digest.
var pinned = regexp.MustCompile(`example\.com/memcached-operator@sha256:[0-9a-f]{64}`)

// deploy loads a release's image into the nodes, as a registry would serve it, applies its install.yaml and waits
// until only this operator runs. deploy returns the image.
func deploy(t *testing.T, files string) (image string) {
	t.Helper()
	manifests := filepath.Join(files, "install.yaml")
	image = pinned.FindString(read(t, manifests))
	layout := filepath.Join(files, "memcached-operator-"+filepath.Base(files)+".oci.tar")
	for node := range strings.FieldsSeq(kubectl(t, "get", "nodes", "-o", "jsonpath={.items[*].metadata.name}")) {
		ctr := func(args ...string) {
			run(t, ".", "ctr", append([]string{"--address=" + deployed.Containerd(node), "--namespace=k8s.io", "images"}, args...)...)
		}
		ctr("import", layout)
		ctr("tag", "--force", "example.com/memcached-operator:"+filepath.Base(files), image)
	}
	kubectl(t, "apply", "--server-side", "-f", manifests)
	rolledOut(t)
	return image
}

func rolledOut(t *testing.T) {
	t.Helper()
	kubectl(t, "wait", "--for=condition=Established", "crd/memcacheds.cache.example.com", longEnough)
	kubectl(t, "rollout", "status", "-n", operator, "deployment/memcached-operator-manager", longEnough)
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// withoutOperator removes an operator that is deployed. The returned function removes one at the end, with
// the test's Memcached.
func withoutOperator(t *testing.T) (end func()) {
	t.Helper()
	undeployed := func() {
		if kubectl(t, "get", "namespace", operator, "--ignore-not-found", "-o", "name") != "" {
			run(t, repository, "make", "undeploy", "KUBECTL=kubectl", "UNDEPLOY_WAIT=24h")
		}
	}
	undeployed()
	return func() {
		kubectl(t, "delete", "namespace", ours, "--ignore-not-found", longEnough)
		undeployed()
	}
}

// ours is the namespace of the tests' Memcached.
const ours = "released"

// three makes a Memcached of three members, and fills it by a client's ring.
func three(t *testing.T, drain string, items int) {
	t.Helper()
	kubectl(t, "create", "namespace", ours)
	apply(t, fmt.Sprintf(`
apiVersion: cache.example.com/v1alpha1
kind: Memcached
metadata: {name: cache, namespace: %s}
spec:
  size: 3
  memory: 64Mi
  image: example.com/memcached:debian
  storage: {size: 256Mi}
  routing: {client: gomemcache, patience: 0s}
  drain: %s
`, ours, drain))
	ready(t)
	client := ring(t, 3)
	for i := range items {
		if err := client.Set(&memcache.Item{Key: fmt.Sprintf("key-%d", i), Value: fmt.Appendf(nil, "value-%d", i)}); err != nil {
			t.Fatal(err)
		}
	}
}

func ready(t *testing.T) {
	t.Helper()
	kubectl(t, "wait", "-n", ours, "mc", "cache", "--for=condition=Ready", longEnough)
}

// ring is an application's client of so many members.
func ring(t *testing.T, members int) *memcache.Client {
	t.Helper()
	var servers []string
	for i := range members {
		servers = append(servers, kubectl(t, "get", "pod", "-n", ours, fmt.Sprintf("cache-%d", i), "-o", "jsonpath={.status.podIP}")+":11211")
	}
	client := memcache.New(servers...)
	client.Timeout = wait.Long
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func scale(t *testing.T, size int) {
	t.Helper()
	kubectl(t, "scale", "-n", ours, "mc", "cache", fmt.Sprintf("--replicas=%d", size))
}

// expectAll reads each item where an application of so many members looks for it.
func expectAll(t *testing.T, members, items int) {
	t.Helper()
	client := ring(t, members)
	for i := range items {
		item, err := client.Get(fmt.Sprintf("key-%d", i))
		if err != nil || string(item.Value) != fmt.Sprintf("value-%d", i) {
			t.Fatalf("item %d of %d with %d members: %v, %v", i, items, members, item, err)
		}
	}
}

// Two runs of make release make the same bytes. On a cluster that has nothing else, first install.yaml and then the
// chart's package run an operator by which a Memcached is made and scaled.
func TestAReleaseWorksFromItsFilesAlone(t *testing.T) {
	tier.Second(t, "TestUndeployInTheMiddleOfADrain")
	const version, items = "v0.0.1", 3000
	files, again := release(t, commit(t, "HEAD"), version, "022"), release(t, commit(t, "HEAD"), version, "077")
	if a, b := read(t, files+"/checksums.txt"), read(t, again+"/checksums.txt"); a != b {
		t.Fatalf("two runs of make release differ:\n%s\n%s", a, b)
	}
	defer withoutOperator(t)()
	image := deploy(t, files)
	three(t, "{}", items)
	scale(t, 2)
	ready(t)
	expectAll(t, 2, items)

	kubectl(t, "delete", "-n", operator, "deployment", "memcached-operator-manager", "--cascade=foreground", longEnough)
	chart := func(args ...string) string {
		return run(t, repository, "bin/chart", append(args, filepath.Join(files, "memcached-operator-0.0.1.tgz"))...)
	}
	manifest := chart()
	if !strings.Contains(manifest, image) {
		t.Errorf("the chart does not name the image %s", image)
	}
	apply(t, manifest)
	rolledOut(t)
	check := chart("--hook=test")
	apply(t, check)
	kubectl(t, "wait", "-n", operator, "pod/memcached-operator-check", "--for=jsonpath={.status.phase}=Succeeded", longEnough)
	t.Log(kubectl(t, "logs", "-n", operator, "pod/memcached-operator-check"))
	remove(t, check)
	scale(t, 3)
	ready(t)
	expectAll(t, 3, items)
}

// Until there are two releases, the earlier one is the commit before.
func TestAnUpgradeFromTheCommitBeforeUnderAScalingLosesNothing(t *testing.T) {
	tier.Second(t, "TestUndeployInTheMiddleOfADrain")
	const items = 3000
	earlier, later := release(t, commit(t, "HEAD^"), "v0.0.1", "022"), release(t, commit(t, "HEAD"), "v0.0.2", "022")
	defer withoutOperator(t)()
	deploy(t, earlier)
	three(t, "{rateLimit: {itemsPerSecond: 20}}", items) // this takes three quarters of a minute or more
	scale(t, 2)
	kubectl(t, "wait", "-n", ours, "mc", "cache", "--for=jsonpath={.status.drains[0].phase}=Adding", longEnough)
	image := deploy(t, later)
	t.Logf("after the upgrade the drain is %q", kubectl(t, "get", "-n", ours, "mc", "cache", "-o", "jsonpath={.status.drains[*].phase}"))
	wait.For(t, "the members come from the later release", func() error {
		got := kubectl(t, "get", "pods", "-n", ours, "-l", "app.kubernetes.io/component=member", "-o", "jsonpath={.items[*].spec.initContainers[0].image}")
		if got != image+" "+image {
			return fmt.Errorf("they come from %s", got)
		}
		return nil
	})
	ready(t)
	expectAll(t, 2, items)
}
