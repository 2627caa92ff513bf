// Package controlplane starts a real control plane for tests: etcd, the API server and the controller
// manager. The control plane has no kubelet: package player plays one.
package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"example.com/memcached-operator/test/tied"
	"example.com/memcached-operator/test/wait"
)

// ControlPlane is a control plane that runs.
type ControlPlane struct {
	// Config is its administrator's.
	Config *rest.Config

	env     *envtest.Environment
	assets  string
	manager *process
	// watchdog ends all processes if this one ends without Stop.
	watchdog *tied.Watchdog
}

// Start brings the control plane up, with this repository's CRDs. The caller
// calls Stop, also after an error.
func Start() (*ControlPlane, error) {
	root, err := repository()
	if err != nil {
		return nil, err
	}
	assets, err := assets(root)
	if err != nil {
		return nil, err
	}
	c := &ControlPlane{assets: assets}
	if c.watchdog, err = tied.Watch("controlplane"); err != nil {
		return nil, err
	}
	c.env = &envtest.Environment{
		BinaryAssetsDirectory:    assets,
		CRDDirectoryPaths:        []string{filepath.Join(root, "config", "crd", "bases")},
		ErrorIfCRDPathMissing:    true,
		ControlPlaneStartTimeout: time.Until(wait.Deadline()),
		ControlPlaneStopTimeout:  wait.Long,
		CRDInstallOptions:        envtest.CRDInstallOptions{MaxTime: time.Until(wait.Deadline())}, // 10 s by default
	}
	c.env.CRDInstallOptions.MaxTime = time.Until(wait.Deadline())
	c.env.ControlPlane.GetAPIServer().Configure().
		// All tests share few connections. A busy API server counts streams that the client has ended; with the default,
		// 1,000, it answers the next request by PROTOCOL_ERROR.
		Set("http2-max-streams-per-connection", "100000").
		Set("service-cluster-ip-range", "10.96.0.0/16"). // the default has 254 addresses for all tests
		Set("max-requests-inflight", "2000").
		Set("max-mutating-requests-inflight", "1000")
	if c.Config, err = c.env.Start(); err != nil {
		return c, fmt.Errorf("start etcd and the API server of %s: %w", assets, err)
	}
	c.Config.QPS = -1
	// The controllers start after the CRDs are there, so that the garbage collector watches these from its
	// start.
	c.manager, err = startControllerManager(assets, c.env.KubeConfig)
	return c, err
}

// Missing returns an error if a program is missing that Start needs.
func Missing() error {
	root, err := repository()
	if err == nil {
		_, err = assets(root)
	}
	return err
}

// Kubectl is a kubectl command as the administrator. Its kubeconfig is in dir.
func (c *ControlPlane) Kubectl(ctx context.Context, dir string, args ...string) (*exec.Cmd, error) {
	kubeconfig, err := c.kubeconfig(dir)
	args = append([]string{"--kubeconfig=" + kubeconfig, "--cache-dir=" + filepath.Join(dir, "cache")}, args...)
	return exec.CommandContext(ctx, filepath.Join(c.assets, "kubectl"), args...), err
}

func (c *ControlPlane) kubeconfig(dir string) (string, error) {
	path := filepath.Join(dir, "kubeconfig")
	return path, os.WriteFile(path, c.env.KubeConfig, 0o600)
}

// DNS is a command that runs CoreDNS for the domain cluster.local, at this address. Its files are in dir.
func (c *ControlPlane) DNS(ctx context.Context, dir, address string) (*exec.Cmd, error) {
	kubeconfig, err := c.kubeconfig(dir)
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	corefile := filepath.Join(dir, "Corefile")
	config := fmt.Appendf(nil, ".:%s {\n bind %s\n errors\n kubernetes cluster.local {\n kubeconfig %s\n ttl 5\n }\n}\n", port, host, kubeconfig)
	if err := os.WriteFile(corefile, config, 0o600); err != nil {
		return nil, err
	}
	return exec.CommandContext(ctx, filepath.Join(c.assets, "coredns"), "-conf="+corefile), nil
}

// Stop ends every process that Start began.
func (c *ControlPlane) Stop() error {
	if c == nil {
		return nil
	}
	if c.manager != nil {
		c.manager.stop()
	}
	return errors.Join(c.env.Stop(), c.watchdog.Stop())
}

// assets is the directory of the control plane's programs.
func assets(root string) (string, error) {
	dir := os.Getenv("KUBEBUILDER_ASSETS")
	if dir == "" {
		dir = filepath.Join(root, "bin", "k8s")
	}
	for _, program := range []string{"etcd", "kube-apiserver", "kubectl", controllerManager} {
		if _, err := os.Stat(filepath.Join(dir, program)); err != nil {
			return "", fmt.Errorf("no %s in %s: build the control plane with `make kubernetes`, "+
				"or point KUBEBUILDER_ASSETS at a directory that has one: %w", program, dir, err)
		}
	}
	return dir, nil
}

// repository returns the root of the source tree that a test or a command runs in.
func repository() (string, error) {
	dir, err := os.Getwd()
	for err == nil {
		if mod, _ := os.ReadFile(filepath.Join(dir, "go.mod")); bytes.HasPrefix(mod, []byte("module example.com/memcached-operator\n")) {
			return dir, nil
		}
		if filepath.Dir(dir) == dir {
			return "", errors.New("this directory is in no clone of the repository")
		}
		dir = filepath.Dir(dir)
	}
	return "", err
}
