package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"example.com/memcached-operator/test/cluster/internal/host"
	"example.com/memcached-operator/test/cluster/internal/process"
)

// maxNodes is how many nodes a cluster may have.
const maxNodes = 4

// nodesUpTo returns the nodes 1 … count.
func nodesUpTo(count int) []*node {
	var nodes []*node
	for number := 1; number <= count; number++ {
		nodes = append(nodes, &node{number: number})
	}
	return nodes
}

// presentNodes are those that were brought up, even if they are stopped.
func presentNodes() []*node {
	return slices.DeleteFunc(nodesUpTo(maxNodes), func(n *node) bool {
		_, err := os.Stat(n.dir())
		return err != nil
	})
}

// runningNodes are the present nodes that were not stopped.
func runningNodes() []*node { return slices.DeleteFunc(presentNodes(), (*node).stopped) }

func names(nodes []*node) string {
	var list []string
	for _, n := range nodes {
		list = append(list, n.name())
	}
	return strings.Join(list, ", ")
}

// stoppedMarker is a file that exists while the node is stopped.
func (n *node) stoppedMarker() string { return filepath.Join(n.dir(), "stopped") }

func (n *node) stopped() bool {
	_, err := os.Stat(n.stoppedMarker())
	return err == nil
}

// StopNode ends a node as a power failure does: all of its processes at once, also those of its pods. Disks
// keep their data, memory doesn't. But the kernel is the machine's, so the page cache and the boot id stay.
func StopNode(ctx context.Context, name string, report *Report) error {
	return withNode(ctx, name, report, func(ctx context.Context, n *node) error { return n.stop(ctx, report) })
}

// StartNode starts a stopped node again.
func StartNode(ctx context.Context, source Source, name string, report *Report) error {
	return withNode(ctx, name, report, func(ctx context.Context, n *node) error {
		if !n.stopped() {
			report.say("%s runs", name)
			return nil
		}
		if err := os.Remove(n.stoppedMarker()); err != nil {
			return err
		}
		return (&up{source: source, report: report}).join(ctx, n)
	})
}

// RemoveNode removes a node with its disks from the cluster.
func RemoveNode(ctx context.Context, name string, report *Report) error {
	return withNode(ctx, name, report, func(ctx context.Context, n *node) error {
		if n.number == 1 {
			return errors.New("node-1 serves the machine, too; `make cluster-down` removes the cluster")
		}
		if err := n.stop(ctx, report); err != nil {
			return err
		}
		_, err := host.Run(ctx, program("kubectl"), "--kubeconfig="+Kubeconfig,
			"--cache-dir="+filepath.Join(stateDir, "kubectl-cache"), "delete", "node", name, "--ignore-not-found", "--timeout=30s")
		if err != nil {
			return err
		}
		report.say("%s is removed", name)
		return errors.Join(os.RemoveAll(n.dir()), os.RemoveAll(filepath.Join(volumesDir, name)))
	})
}

// withNode calls do with a present node, under the cluster's lock.
func withNode(ctx context.Context, name string, report *Report, do func(context.Context, *node) error) error {
	ctx, cancel := context.WithTimeout(ctx, startDeadline)
	defer cancel()
	present := presentNodes()
	i := slices.IndexFunc(present, func(n *node) bool { return n.name() == name })
	if i < 0 {
		return fmt.Errorf("there is no node %s in the cluster, only: %s", name, names(present))
	}
	release, err := lock(ctx, report)
	if err != nil {
		return err
	}
	defer release()
	return do(ctx, present[i])
}

// stop kills the node's processes until none is left, and removes the files that a machine keeps in memory.
func (n *node) stop(ctx context.Context, report *Report) error {
	if err := os.WriteFile(n.stoppedMarker(), nil, 0o644); err != nil {
		return err
	}
	report.say("stopping %s", n.name())
	var ended []process.ID
	for range 20 {
		found := n.processes()
		if len(found) == 0 {
			break
		}
		ended = append(ended, found...)
		if err := process.End(ctx, 0, found...); err != nil {
			return err
		}
	}
	process.AwaitReaped(ctx, 5*time.Second, ended)
	if left := n.processes(); len(left) > 0 {
		return fmt.Errorf("%d processes of %s don't end", len(left), n.name())
	}
	for _, program := range []string{"namespaces", "containerd", "kubelet", "kube-proxy"} {
		if err := os.RemoveAll(programs.PidFile(n.daemon(program))); err != nil {
			return err
		}
	}
	return os.RemoveAll(n.run())
}

// processes are the node's own programs, its containers and their shims.
func (n *node) processes() []process.ID {
	inGroup := host.Cgroup(filepath.Join(string(cgroup), n.name())).Processes()
	recorded := programs.Recorded()
	return slices.DeleteFunc(ours(), func(id process.ID) bool {
		if slices.Contains(inGroup, id.PID) {
			return false
		}
		for name, own := range recorded {
			if own == id && strings.HasPrefix(name, n.name()+"-") {
				return false
			}
		}
		cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", id.PID))
		return !strings.Contains(string(cmdline), n.run()+"/") && !strings.Contains(string(cmdline), n.dir()+"/")
	})
}
