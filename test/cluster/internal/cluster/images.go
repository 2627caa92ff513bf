package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"example.com/memcached-operator/test/cluster/internal/host"
)

// Load loads those images of the directory into the nodes that they don't have yet.
func Load(ctx context.Context, source Source, report *Report) error {
	ctx, cancel := context.WithTimeout(ctx, startDeadline)
	defer cancel()
	nodes := runningNodes()
	if err := healthy(ctx, nodes); err != nil {
		return fmt.Errorf("no healthy cluster to load images into (%w); run `make cluster-up`", err)
	}
	if len(source.Images()) == 0 {
		return fmt.Errorf("there are no images in %s; run `make images`", source.imageDir())
	}
	return loadAll(ctx, nodes, source.Images(), report)
}

func loadAll(ctx context.Context, nodes []*node, images []string, report *Report) error {
	var failed []error
	for _, node := range nodes {
		for _, image := range images {
			failed = append(failed, node.load(ctx, image, report))
		}
	}
	return errors.Join(failed...)
}

// load imports an image into the node's containerd, unless the node has exactly this file.
func (n *node) load(ctx context.Context, image string, report *Report) error {
	sum, err := checksum(image)
	if err != nil {
		return err
	}
	marker := filepath.Join(n.dir(), "images", filepath.Base(image))
	if loaded, err := os.ReadFile(marker); err == nil && string(loaded) == sum {
		return nil
	}
	if _, err := host.Run(ctx, "ctr", "--address="+n.socket(), "--namespace=k8s.io", "images", "import", image); err != nil {
		return fmt.Errorf("load %s: %w", image, err)
	}
	report.say("loaded %s", filepath.Base(image))
	if err := os.MkdirAll(filepath.Dir(marker), 0o755); err != nil {
		return err
	}
	return os.WriteFile(marker, []byte(sum), 0o644)
}

func checksum(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
