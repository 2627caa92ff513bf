package e2e

import (
	"crypto/x509"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"example.com/memcached-operator/test/certtest"
	"example.com/memcached-operator/test/tier"
)

// guide is a page of docs/guides, or getting-started. A paragraph that ends in a file's name tells where the next block
// is saved. Blocks of sh have the commands that people run.
type guide struct {
	name  string
	files map[string]string
	run   []string
	// others are the manifests that are saved in no file, of kinds that the test's cluster may not have.
	others []string
}

// manifest is the file of each guide that has its Memcached.
const manifest = "cache.yaml"

var (
	block = regexp.MustCompile("(?ms)^([^\n]*)\n+```([a-z]*)\n(.*?)^```$")
	saved = regexp.MustCompile("`([^`]+\\.[a-z]+)`:$")
	inPod = regexp.MustCompile(`kubectl run [^\n]* -- `)
)

func guides(t *testing.T) (all []guide) {
	t.Helper()
	pages, err := filepath.Glob("../../docs/guides/*.md")
	if err != nil || len(pages) < 7 {
		t.Fatalf("guides: %v, %v", pages, err)
	}
	for _, page := range append(pages, "../../docs/getting-started.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		g := guide{name: strings.TrimSuffix(filepath.Base(page), ".md"), files: map[string]string{}}
		for _, b := range block.FindAllStringSubmatch(string(text), -1) {
			before, language, content := b[1], b[2], b[3]
			if file := saved.FindStringSubmatch(before); file != nil {
				g.files[file[1]] = content
			} else if language == "sh" {
				g.run = append(g.run, content)
			} else if language == "yaml" {
				g.others = append(g.others, content)
			}
		}
		if g.files[manifest] == "" || len(g.run) == 0 {
			t.Fatalf("%s has no %s, or no commands: %+v", page, manifest, g)
		}
		all = append(all, g)
	}
	return all
}

// write saves the guide's files in a folder.
func (g guide) write(f *fixture, dir string) {
	f.Helper()
	for name, content := range g.files {
		path := filepath.Join(dir, name)
		f.must(os.MkdirAll(filepath.Dir(path), 0o755))
		f.must(os.WriteFile(path, []byte(content), 0o644))
	}
}

// The commands of each guide run as for a person whose namespace is the test's, with names that resolve as in
// a pod, and with Debian's libraries.
func TestTheCommandsOfEachGuideWork(t *testing.T) {
	tier.Second(t, "TestTheAPIServerTakesEachSample")
	t.Parallel()
	for _, g := range guides(t) {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			f := inNamespace(t)
			dir := t.TempDir()
			g.write(f, dir)
			for _, other := range g.others {
				f.certify(other)
			}
			environment := append(os.Environ(), "KUBECONFIG="+f.ownKubeconfig(dir), "PATH="+debianPath(t))
			for _, commands := range g.run {
				// There is no registry: a command in a pod runs as in a pod.
				commands := inPod.ReplaceAllString(commands, "")
				cmd := f.asInAPod("bash", "-euo", "pipefail", "-c", commands)
				cmd.Dir, cmd.Env = dir, environment
				out, err := cmd.CombinedOutput()
				t.Logf("%s%s", commands, out)
				f.must(err)
			}
			f.name = "cache"
			f.settled(f.memcached().Status.Size)
		})
	}
}

// ownKubeconfig returns a kubeconfig whose namespace is the test's.
func (f *fixture) ownKubeconfig(dir string) string {
	f.Helper()
	text, err := os.ReadFile(os.Getenv("KUBECONFIG"))
	f.must(err)
	path := filepath.Join(dir, "kubeconfig")
	f.must(os.WriteFile(path, text, 0o600))
	f.kubectl("config", "set-context", "--current", "--namespace="+f.namespace, "--kubeconfig="+path)
	return path
}

// debianPath has the kubectl of this test, and Debian's interpreters, whose libraries are packages.
func debianPath(t *testing.T) string {
	t.Helper()
	kubectl, err := exec.LookPath("kubectl")
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Dir(kubectl) + ":/usr/sbin:/usr/bin:/sbin:/bin"
}

// certify makes the Secret that cert-manager would make of a members' Certificate, in the guide's namespace shop.
func (f *fixture) certify(document string) {
	f.Helper()
	var certificate struct {
		Kind string `json:"kind"`
		Spec struct {
			SecretName string   `json:"secretName"`
			DNSNames   []string `json:"dnsNames"`
			Usages     []string `json:"usages"`
		} `json:"spec"`
	}
	f.must(yaml.Unmarshal([]byte(strings.Split(document, "\n---\n")[0]), &certificate))
	if certificate.Kind != "Certificate" || len(certificate.Spec.DNSNames) == 0 {
		return
	}
	var names []string
	for _, name := range certificate.Spec.DNSNames {
		names = append(names, strings.ReplaceAll(name, ".shop.", "."+f.namespace+"."))
	}
	var usages []x509.ExtKeyUsage
	for _, usage := range certificate.Spec.Usages {
		usages = append(usages, map[string]x509.ExtKeyUsage{"server auth": x509.ExtKeyUsageServerAuth, "client auth": x509.ExtKeyUsageClientAuth}[usage])
	}
	s := &secrets{f: f}
	s.put(certificate.Spec.SecretName, corev1.SecretTypeTLS, certtest.NewAuthority(f).Files(f, names, usages...))
}
