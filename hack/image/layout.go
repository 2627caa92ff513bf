package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	blob "github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"sigs.k8s.io/yaml"
)

// refName is the annotation by which tools find an image of a layout by its tag.
const refName = "org.opencontainers.image.ref.name"

// operatorLayout writes the operator's image, for each platform that has a folder in binaries (linux-amd64,
// linux-arm64, with manager and drainer), as one file: an OCI image layout, as skopeo copy oci-archive:FILE
// and ctr images import read it. operatorLayout returns the digest of its index, by which a cluster pulls
// it.
func operatorLayout(imageName, binaries, output string) (string, error) {
	folders, err := filepath.Glob(filepath.Join(binaries, "linux-*"))
	if err != nil || len(folders) == 0 {
		return "", errors.Join(err, fmt.Errorf("%s has no folder such as linux-amd64", binaries))
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, folder := range folders {
		architecture := strings.TrimPrefix(filepath.Base(folder), "linux-")
		files, config, err := operatorImage(filepath.Join(folder, "manager"), filepath.Join(folder, "drainer"))
		if err != nil {
			return "", err
		}
		image, err := ofFiles(architecture, files, config)
		if err != nil {
			return "", err
		}
		image = mutate.ConfigMediaType(mutate.MediaType(image, types.OCIManifestSchema1), types.OCIConfigJSON)
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: "linux", Architecture: architecture},
		}})
	}
	tag := imageName[strings.LastIndex(imageName, ":")+1:]
	return writeLayout(output, mutate.IndexAddendum{Add: index, Descriptor: v1.Descriptor{
		Annotations: map[string]string{refName: tag, "io.containerd.image.name": imageName},
	}})
}

// Media types of a Helm chart in a registry: https://helm.sh/docs/topics/registries/
const (
	chartConfig  types.MediaType = "application/vnd.cncf.helm.config.v1+json"
	chartContent types.MediaType = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// chartLayout writes a chart's package as an OCI image layout, as helm push would have it in a registry.
func chartLayout(chart, output string) (string, error) {
	content, err := os.ReadFile(chart)
	if err != nil {
		return "", err
	}
	text, version, err := chartMetadata(content)
	if err != nil {
		return "", fmt.Errorf("%s: %w", chart, err)
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), chartConfig)
	image, err = mutate.AppendLayers(image, blob.NewLayer(content, chartContent))
	if err != nil {
		return "", err
	}
	return writeLayout(output, mutate.IndexAddendum{Add: withConfig{image, text}, Descriptor: v1.Descriptor{
		Annotations: map[string]string{refName: version},
	}})
}

// chartMetadata returns a package's Chart.yaml as JSON, and the version in it.
func chartMetadata(content []byte) ([]byte, string, error) {
	unpacked, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return nil, "", err
	}
	text, err := readFromTar(unpacked, "Chart.yaml")
	if err != nil {
		return nil, "", err
	}
	var chart struct{ Version string }
	if err := yaml.Unmarshal(text, &chart); err != nil {
		return nil, "", err
	}
	text, err = yaml.YAMLToJSON(text)
	return text, chart.Version, err
}

// withConfig is an image whose config is not one of a container: go-containerregistry computes a manifest from
// the config that it knows.
type withConfig struct {
	v1.Image
	config []byte
}

func (i withConfig) RawConfigFile() ([]byte, error) { return i.config, nil }

func (i withConfig) ConfigName() (v1.Hash, error) {
	hash, _, err := v1.SHA256(bytes.NewReader(i.config))
	return hash, err
}

func (i withConfig) Manifest() (*v1.Manifest, error) {
	manifest, err := i.Image.Manifest()
	if err != nil {
		return nil, err
	}
	manifest = manifest.DeepCopy()
	manifest.Config.Size = int64(len(i.config))
	manifest.Config.Digest, err = i.ConfigName()
	return manifest, err
}

func (i withConfig) RawManifest() ([]byte, error) {
	manifest, err := i.Manifest()
	if err != nil {
		return nil, err
	}
	return json.Marshal(manifest)
}

func (i withConfig) Digest() (v1.Hash, error) {
	manifest, err := i.RawManifest()
	if err != nil {
		return v1.Hash{}, err
	}
	hash, _, err := v1.SHA256(bytes.NewReader(manifest))
	return hash, err
}

func (i withConfig) Size() (int64, error) {
	manifest, err := i.RawManifest()
	return int64(len(manifest)), err
}

// writeLayout writes a layout of one entry as a tar file, and returns the entry's digest. The same content
// gives the same bytes.
func writeLayout(output string, entry mutate.IndexAddendum) (string, error) {
	folder, err := os.MkdirTemp("", "layout-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(folder)
	if _, err := layout.Write(folder, mutate.AppendManifests(empty.Index, entry)); err != nil {
		return "", err
	}
	var files []file
	err = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		files = append(files, file{path: strings.TrimPrefix(path, folder), mode: 0o644, content: content})
		return err
	})
	if err != nil {
		return "", err
	}
	content, err := archive(files)
	if err != nil {
		return "", err
	}
	digest, err := entry.Add.(interface{ Digest() (v1.Hash, error) }).Digest()
	if err != nil {
		return "", err
	}
	return digest.String(), os.WriteFile(output, content, 0o644)
}

// chartPackage writes a chart as helm package does, with a release's version and the digest of its image, and with the
// members' image if it is not empty. The same content gives the same bytes; helm would write today's time into them.
func chartPackage(chart, version, imageName, digest, memcached, output string) error {
	var files []file
	root, err := os.OpenRoot(chart)
	if err != nil {
		return err
	}
	defer root.Close()
	err = fs.WalkDir(root.FS(), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(root.FS(), path)
		files = append(files, file{path: "/" + filepath.Base(chart) + "/" + path, mode: 0o644, content: content})
		return err
	})
	if err != nil {
		return err
	}
	repository := imageName[:strings.LastIndex(imageName, ":")]
	for i := range files {
		switch filepath.Base(files[i].path) {
		case "Chart.yaml":
			err = errors.Join(err, setLine(&files[i], "version: ", strings.TrimPrefix(version, "v")), setLine(&files[i], "appVersion: ", version))
		case "values.yaml":
			err = errors.Join(err, setLine(&files[i], "  repository: ", repository), setLine(&files[i], "  digest: ", digest))
			if memcached != "" {
				err = errors.Join(err, setLine(&files[i], "memcachedImage: ", memcached))
			}
		}
	}
	if err != nil {
		return err
	}
	content, err := archive(files)
	if err != nil {
		return err
	}
	var packed bytes.Buffer
	writer := gzip.NewWriter(&packed)
	if _, err := writer.Write(content); err != nil {
		return err
	}
	if err := writer.Close(); err != nil {
		return err
	}
	return os.WriteFile(output, packed.Bytes(), 0o644)
}

// setLine sets the value of the file's first line that begins with a name. Comments stay, as a YAML library
// would not keep them.
func setLine(f *file, name, value string) error {
	lines := strings.Split(string(f.content), "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, name) {
			lines[i] = name + value
			f.content = []byte(strings.Join(lines, "\n"))
			return nil
		}
	}
	return fmt.Errorf("%s has no line %q", f.path, name)
}

// readFromTar returns the first file of this name, in whichever folder.
func readFromTar(r io.Reader, name string) ([]byte, error) {
	reader := tar.NewReader(r)
	for {
		header, err := reader.Next()
		if err != nil {
			return nil, fmt.Errorf("no %s in it: %w", name, err)
		}
		if filepath.Base(header.Name) == name {
			return io.ReadAll(reader)
		}
	}
}
