package controlplane

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const controllerManager = "kube-controller-manager"

// controllers are those that a cluster needs. None is for nodes or service accounts: the player has one node
// that is always ready, and the API server asks for no service account.
var controllers = []string{
	"deployment-controller",
	"disruption-controller",
	"endpointslice-controller",
	"garbage-collector-controller",
	"horizontal-pod-autoscaler-controller",
	"job-controller",
	"namespace-controller",
	"persistentvolume-binder-controller",
	"persistentvolume-protection-controller",
	"persistentvolumeclaim-protection-controller",
	"replicaset-controller",
	"statefulset-controller",
}

// process is a child that writes its output to a file.
type process struct {
	cmd  *exec.Cmd
	dir  string
	done chan error
}

func startControllerManager(assets string, kubeconfig []byte) (*process, error) {
	dir, err := os.MkdirTemp("", "controller-manager-")
	if err != nil {
		return nil, err
	}
	p := &process{dir: dir, done: make(chan error, 1)}
	file := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(file, kubeconfig, 0o600); err != nil {
		return nil, err
	}
	p.cmd = exec.Command(filepath.Join(assets, controllerManager),
		"--kubeconfig="+file,
		"--controllers="+strings.Join(controllers, ","),
		"--leader-elect=false",
		"--secure-port=0",
		"--use-service-account-credentials=false",
		"--kube-api-qps=1000", "--kube-api-burst=2000",
		"--concurrent-statefulset-syncs=10", "--concurrent-job-syncs=10", "--concurrent-namespace-syncs=20",
		"--horizontal-pod-autoscaler-sync-period=1s",
		"--endpointslice-updates-batch-period=500ms", "--pvclaimbinder-sync-period=1s", "--namespace-sync-period=1s",
	)
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", controllerManager, err)
	}
	go func() { p.done <- p.cmd.Wait() }()
	return p, p.survives(500 * time.Millisecond)
}

// survives returns an error if a process ends at once, because its arguments are wrong.
func (p *process) survives(d time.Duration) error {
	select {
	case err := <-p.done:
		p.done <- err
		return fmt.Errorf("%s ended at once: %w: %s", controllerManager, err, p.tail())
	case <-time.After(d):
		return nil
	}
}

func (p *process) tail() string {
	log, _ := os.ReadFile(filepath.Join(p.dir, "log"))
	return string(log[max(0, bytes.LastIndexByte(log[:max(0, len(log)-2000)], '\n')):])
}

// stop ends exactly this process.
func (p *process) stop() {
	defer func() { _ = os.RemoveAll(p.dir) }()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	<-p.done //nolint:errcheck // it ends by a signal, which Wait returns as an error
}
