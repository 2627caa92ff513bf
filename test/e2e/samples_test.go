package e2e

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/test/tier"
)

const samples = "../../config/samples/"

func sampleFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(samples + "cache_*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("samples: %v, %v", files, err)
	}
	return files
}

// applySample applies a sample, whose cluster becomes the fixture's.
func (f *fixture) applySample(file string) {
	f.Helper()
	f.name = f.sample(samples + file).Name
	f.kubectl("apply", "-f", samples+file)
}

// TestTheAPIServerTakesEachSample in a dry run, each example and each guide's manifest. The journeys make clusters of
// most samples.
func TestTheAPIServerTakesEachSample(t *testing.T) {
	t.Parallel()
	f := inNamespace(t)
	files := sampleFiles(t)
	examples, err := filepath.Glob("../../docs/examples/*.yaml")
	f.must(err)
	for _, g := range guides(t) {
		dir := t.TempDir()
		g.write(f, dir)
		files = append(files, filepath.Join(dir, manifest))
	}
	f.kubectl("apply", "--dry-run=server", "-f", strings.Join(append(files, examples...), ","))
}

func TestEachSampleBecomesACluster(t *testing.T) {
	tier.Second(t, "TestTheAPIServerTakesEachSample")
	t.Parallel()
	for _, file := range sampleFiles(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			f := inNamespace(t)
			sample := f.sample(file)
			f.name = sample.Name
			if sample.Spec.TLS != nil {
				newSecrets(f, &sample.Spec).write("drainer:" + password + "\n")
			}
			f.kubectl("apply", "-f", file)
			var clusters cachev1alpha1.MemcachedList
			f.must(kube.List(f.ctx, &clusters, client.InNamespace(f.namespace)))
			if len(clusters.Items) != 1 {
				t.Fatalf("%d clusters, want one", len(clusters.Items))
			}
			f.available()
			f.settled(*clusters.Items[0].Spec.Size)
			if conditions := f.memcached().Status.Conditions; !meta.IsStatusConditionFalse(conditions, cachev1alpha1.ConditionDegraded) {
				t.Errorf("it is degraded: %+v", conditions)
			}
		})
	}
}

// kubectl explain shows a person a sentence for each field.
func TestKubectlExplainsTheSpec(t *testing.T) {
	t.Parallel()
	f := onCluster(t)
	var text string
	f.eventually("kubectl knows the short name", func() bool { // its cache of the API server's kinds may be older than the CRD
		out, err := exec.CommandContext(f.ctx, "kubectl", "explain", "mc.spec").CombinedOutput()
		text = strings.Join(strings.Fields(string(out)), " ")
		return err == nil
	})
	for _, want := range []string{
		"GROUP: cache.example.com", "size is the number of members. 0 hibernates",
		"memory is each member's room for items (memcached's -m), in whole MiB.",
		"storage gives each member a volume",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "<no description>") {
		t.Errorf("a field has no description:\n%s", text)
	}
}
