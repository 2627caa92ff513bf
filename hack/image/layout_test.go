package main

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"errors"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

const imageName = "registry.example.com/team/memcached-operator:v1.2.3"

func TestALayoutHasTheOperatorForEachPlatform(t *testing.T) {
	binaries := binaries(t)
	output := filepath.Join(t.TempDir(), "image.tar")
	digest, err := operatorLayout(imageName, binaries, output)
	if err != nil {
		t.Fatal(err)
	}
	index := unpackedLayout(t, output)
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if n := len(manifest.Manifests); n != 1 || manifest.Manifests[0].Digest.String() != digest {
		t.Fatalf("the layout has %d entries, %v; %s was printed", n, manifest.Manifests, digest)
	}
	if tag := manifest.Manifests[0].Annotations[refName]; tag != "v1.2.3" {
		t.Errorf("its tag is %q", tag)
	}
	image, err := index.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(image); err != nil {
		t.Error(err)
	}
	pulled := pushAndPull(t, image)
	for _, architecture := range []string{"amd64", "arm64"} {
		got, err := remote.Image(pulled, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: architecture}))
		if err != nil {
			t.Fatalf("%s: %v", architecture, err)
		}
		config, err := got.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if config.Architecture != architecture || config.Config.User != "65532:65532" {
			t.Errorf("%s: architecture %s, user %s", architecture, config.Architecture, config.Config.User)
		}
	}
	again := filepath.Join(t.TempDir(), "again.tar")
	if _, err := operatorLayout(imageName, binaries, again); err != nil {
		t.Fatal(err)
	}
	same(t, output, again)
}

func TestAChartsPackageHasTheVersionAndTheImage(t *testing.T) {
	const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	dir := t.TempDir()
	output, again := filepath.Join(dir, "chart.tgz"), filepath.Join(dir, "again.tgz")
	for _, file := range []string{output, again} {
		if err := chartPackage("../../charts/memcached-operator", "v1.2.3", imageName, digest, "docker.io/library/memcached@"+digest, file); err != nil {
			t.Fatal(err)
		}
	}
	same(t, output, again)
	for file, lines := range map[string][]string{
		"Chart.yaml":  {"version: 1.2.3\n", "appVersion: v1.2.3\n"},
		"values.yaml": {"  repository: registry.example.com/team/memcached-operator\n", "  digest: " + digest + "\n", "memcachedImage: docker.io/library/memcached@" + digest + "\n"},
	} {
		text, err := exec.Command("tar", "-xzOf", output, "memcached-operator/"+file).Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range lines {
			if !strings.Contains(string(text), line) {
				t.Errorf("%s lacks %q:\n%s", file, line, text)
			}
		}
	}
	packed := filepath.Join(dir, "chart.tar")
	if _, err := chartLayout(output, packed); err != nil {
		t.Fatal(err)
	}
	index := unpackedLayout(t, packed)
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	chart, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	described, err := chart.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	if described.Config.MediaType != chartConfig || len(described.Layers) != 1 || described.Layers[0].MediaType != chartContent {
		t.Errorf("Helm reads no chart of this: %+v", described)
	}
	config, err := chart.RawConfigFile()
	if err != nil || !bytes.Contains(config, []byte(`"version":"1.2.3"`)) {
		t.Errorf("its config is %s, %v", config, err)
	}
}

// binaries makes a folder of two platforms' programs. Each program is only the header of a static one.
func binaries(t *testing.T) string {
	t.Helper()
	program := make([]byte, 64)
	copy(program, elf.ELFMAG+string([]byte{byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)}))
	program[16], program[20] = byte(elf.ET_EXEC), byte(elf.EV_CURRENT)
	folder := t.TempDir()
	for _, path := range []string{"linux-amd64/manager", "linux-amd64/drainer", "linux-arm64/manager", "linux-arm64/drainer"} {
		path = filepath.Join(folder, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, program, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// pushAndPull pushes an index to a registry, and returns its name there.
func pushAndPull(t *testing.T, index v1.ImageIndex) name.Reference {
	t.Helper()
	server := httptest.NewServer(registry.New())
	t.Cleanup(server.Close)
	ref, err := name.ParseReference(strings.TrimPrefix(server.URL, "http://") + "/team/operator:v1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(ref, index); err != nil {
		t.Fatal(err)
	}
	return ref
}

func unpackedLayout(t *testing.T, file string) v1.ImageIndex {
	t.Helper()
	folder := t.TempDir()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for reader := tar.NewReader(f); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(folder, header.Name)
		if header.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, 0o755)
		} else {
			var content []byte
			if content, err = io.ReadAll(reader); err == nil {
				err = os.WriteFile(path, content, 0o644)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	index, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		t.Fatal(err)
	}
	return index
}

func same(t *testing.T, a, b string) {
	t.Helper()
	x, err := os.ReadFile(a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := os.ReadFile(b)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(x, y) {
		t.Errorf("%s and %s differ", a, b)
	}
}
