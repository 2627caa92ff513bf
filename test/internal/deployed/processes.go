package deployed

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"k8s.io/apimachinery/pkg/types"
)

// ClusterState is where test/cluster has the nodes' files, and clusterRun where it has their sockets.
const (
	ClusterState = "/var/lib/memcached-operator-cluster"
	clusterRun   = "/run/memcached-operator-cluster"
)

// Containerd is the address of a node's containerd.
func Containerd(name string) string { return filepath.Join(clusterRun, name, "containerd.sock") }

// ConfigMap is the directory of a pod's volume that is a ConfigMap.
func ConfigMap(name string, pod types.UID, volume string) string {
	return filepath.Join(ClusterState, name, "kubelet", "pods", string(pod), "volumes", "kubernetes.io~configmap", volume)
}

// ProcessesOf returns the pids of a pod's processes by the program's name, without zombies.
func ProcessesOf(pod types.UID, program string) ([]int, error) {
	files, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, file := range files {
		cgroups, _ := os.ReadFile(file) // the process may be gone
		comm, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "comm"))
		if !strings.Contains(string(cgroups), string(pod)) || strings.TrimSpace(string(comm)) != program {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return nil, err
		}
		if Alive(pid) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// Alive tells whether the process runs; a zombie doesn't.
func Alive(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return err == nil && !strings.Contains(string(status), "State:\tZ")
}

// Signal sends a signal to a process. A process that has ended is no error.
func Signal(pid int, sig syscall.Signal) error {
	if err := syscall.Kill(pid, sig); !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

// Kubelet returns the pid of a node's kubelet.
func Kubelet(name string) (int, error) {
	content, err := os.ReadFile(filepath.Join(ClusterState, "pids", name+"-kubelet.pid"))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(content))
	if len(fields) == 0 {
		return 0, fmt.Errorf("the pid file of %s's kubelet is empty", name)
	}
	return strconv.Atoi(fields[0])
}
