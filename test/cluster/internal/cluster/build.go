package cluster

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

const kubernetesVersion = "v1.37.1"

// components are the names by which the program k8s is called.
var components = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl"}

// Source is a clone of the repository, from which the programs are built.
type Source struct {
	// Root is the clone's directory, and Bin the directory of its programs.
	Root, Bin string
}

// built is a program, the directory of its module, and its package there.
type built struct {
	what, module, pkg, output string
	ldflags                   string
}

func (s Source) module() string   { return filepath.Join(s.Root, "test", "cluster") }
func (s Source) imageDir() string { return filepath.Join(s.Bin, "images") }
func (s Source) k8s() string      { return filepath.Join(s.Bin, "k8s", "k8s") }

// Images returns the image files that have been built.
func (s Source) Images() []string {
	files, _ := filepath.Glob(filepath.Join(s.imageDir(), "*.tar"))
	return files
}

func (s Source) programs() []built {
	version := fmt.Sprintf("-X k8s.io/component-base/version.gitVersion=%s", kubernetesVersion)
	for i, part := range []string{"gitMajor", "gitMinor"} {
		value := strings.Split(strings.TrimPrefix(kubernetesVersion, "v"), ".")[i]
		version += fmt.Sprintf(" -X k8s.io/component-base/version.%s=%s", part, value)
	}
	own := s.module()
	return []built{
		{"Kubernetes " + kubernetesVersion + " (5 to 10 minutes the first time)", own, "./cmd/k8s", s.k8s(), version},
		{"CoreDNS", own, "./cmd/coredns", filepath.Join(s.Bin, "k8s", "coredns"), ""},
		{"the volume provisioner", own, "./cmd/provisioner", filepath.Join(s.Bin, "k8s", "provisioner"), ""},
		{"the pause program", own, "./cmd/pause", filepath.Join(s.Bin, "pause"), ""},
		{"the image builder", filepath.Join(s.Root, "hack", "image"), ".", filepath.Join(s.Bin, "image"), ""},
	}
}

// Build builds programs that are not built yet.
func (s Source) Build(ctx context.Context, report *Report) error {
	ctx, cancel := context.WithTimeout(ctx, buildDeadline)
	defer cancel()
	return s.build(ctx, report)
}

func (s Source) build(ctx context.Context, report *Report) error {
	for _, one := range s.programs() {
		if err := one.build(ctx, report); err != nil {
			return err
		}
	}
	for _, component := range components {
		if err := link("k8s", filepath.Join(s.Bin, "k8s", component)); err != nil {
			return err
		}
	}
	return s.buildPauseImage(ctx)
}

func (s Source) buildPauseImage(ctx context.Context) error {
	pause, image := filepath.Join(s.Bin, "pause"), filepath.Join(s.imageDir(), "pause.tar")
	if newer(image, pause) {
		return nil
	}
	cmd := exec.CommandContext(ctx, filepath.Join(s.Bin, "image"), "program",
		"--name="+pauseImage, "--program="+pause, "--output="+image)
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the pause image: %w: %s", err, output)
	}
	return nil
}

// newer tells whether the file exists and was made after the other.
func newer(file, other string) bool {
	one, err := os.Stat(file)
	if err != nil {
		return false
	}
	two, err := os.Stat(other)
	return err == nil && !one.ModTime().Before(two.ModTime())
}

// link makes the path a symbolic link, in place of another one.
func link(target, path string) error {
	if current, err := os.Readlink(path); err == nil && current == target {
		return nil
	}
	_ = os.Remove(path)
	return os.Symlink(target, path)
}

// build runs go build, unless the program was built from the same sources. go would take seconds to find that
// out.
func (b built) build(ctx context.Context, report *Report) error {
	stamp := b.output + ".sources"
	sum, err := b.sources()
	if err != nil {
		return err
	}
	_, missing := os.Stat(b.output)
	if before, err := os.ReadFile(stamp); err == nil && string(before) == sum && missing == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(b.output), 0o755); err != nil {
		return err
	}
	report.say("building %s", b.what)
	// The new program gets another name first, because the old one may be running.
	next := b.output + ".new"
	cmd := exec.CommandContext(ctx, "go", "build", "-v", "-trimpath", "-buildvcs=false",
		"-ldflags=-s -w "+b.ldflags, "-o", next, b.pkg)
	cmd.Dir = b.module
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if err := runWithProgress(cmd, b.what, report); err != nil {
		return err
	}
	if err := os.Rename(next, b.output); err != nil {
		return err
	}
	return os.WriteFile(stamp, []byte(sum), 0o644)
}

// sources returns a checksum of all files that determine the program.
func (b built) sources() (string, error) {
	files, err := filepath.Glob(filepath.Join(b.module, b.pkg, "*.go"))
	if err != nil {
		return "", err
	}
	files = slices.DeleteFunc(files, func(path string) bool { return strings.HasSuffix(path, "_test.go") })
	files = append(files, filepath.Join(b.module, "go.mod"), filepath.Join(b.module, "go.sum"))
	slices.Sort(files)
	sum := sha256.New()
	fmt.Fprintln(sum, runtime.Version(), runtime.GOARCH, b.ldflags)
	for _, path := range files {
		file, err := os.Open(path)
		if err != nil {
			return "", err
		}
		_, err = io.Copy(sum, file)
		file.Close()
		if err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// runWithProgress reports every 15 seconds how far the compiler is; go build
// -v prints the name of each package that it compiles.
func runWithProgress(cmd *exec.Cmd, what string, report *Report) error {
	output, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("build %s: %w; Go is needed, see https://go.dev/dl", what, err)
	}
	start := time.Now()
	var packages atomic.Int64
	done := make(chan struct{})
	go func() {
		ticker := time.NewTicker(15 * time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				report.say("  still building, for %.0f s now: %d packages compiled", time.Since(start).Seconds(), packages.Load())
			case <-done:
				return
			}
		}
	}()
	var messages []string
	scanner := bufio.NewScanner(output)
	for scanner.Scan() {
		if isPackage(scanner.Text()) {
			packages.Add(1)
		} else {
			messages = append(messages, scanner.Text())
		}
	}
	close(done)
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", what, err, strings.Join(messages[max(0, len(messages)-20):], "\n"))
	}
	return nil
}

// isPackage tells whether a line is an import path, and no message.
func isPackage(line string) bool {
	return line != "" && !strings.ContainsAny(line, " :#")
}

// install puts the programs into a directory from which they run, so that a clone can be rebuilt or removed
// while its cluster runs.
func (s Source) install(directory string) error {
	for _, path := range []string{
		s.k8s(), filepath.Join(s.Bin, "k8s", "coredns"), filepath.Join(s.Bin, "k8s", "provisioner"), filepath.Join(s.Bin, "cluster"),
	} {
		if err := linkOrCopy(path, filepath.Join(directory, filepath.Base(path))); err != nil {
			return err
		}
	}
	for _, component := range components {
		if err := link("k8s", filepath.Join(directory, component)); err != nil {
			return err
		}
	}
	return nil
}

// linkOrCopy gives the file a second name, or copies it to another disk.
func linkOrCopy(from, to string) error {
	_ = os.Remove(to)
	if os.Link(from, to) == nil {
		return nil
	}
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(target, source); err != nil {
		target.Close()
		return err
	}
	return target.Close()
}
