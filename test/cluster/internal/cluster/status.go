package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"example.com/memcached-operator/test/cluster/internal/process"
)

// expected are the programs of a whole cluster.
func expected(nodes []*node) []string {
	list := []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "coredns", "provisioner"}
	for _, node := range nodes {
		for _, name := range []string{"namespaces", "containerd", "kubelet", "kube-proxy"} {
			list = append(list, node.daemon(name))
		}
	}
	return list
}

// healthy returns the cluster's problems. healthy waits a few seconds for the answers of a busy machine, but
// not if a program has ended.
func healthy(ctx context.Context, nodes []*node) error {
	if len(nodes) == 0 {
		return errors.New("no node runs")
	}
	recorded := programs.Recorded()
	for _, name := range expected(nodes) {
		id, ok := recorded[name]
		if !ok {
			return fmt.Errorf("%s was never started", name)
		}
		if !id.Alive() {
			return fmt.Errorf("%s has ended; its log is %s", name, programs.Log(name))
		}
	}
	api, err := newAPI()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return until(ctx, "the cluster", nil, func(ctx context.Context) error {
		failed := []error{api.ready(ctx), dnsAnswers(ctx), api.defaultsExist(ctx)}
		for _, node := range nodes {
			failed = append(failed, api.nodeReady(ctx, node.name()))
		}
		return errors.Join(failed...)
	})
}

// endedPrograms returns the names of recorded programs that don't run any more, with the ends of their logs.
func endedPrograms() string {
	var text strings.Builder
	for name, id := range programs.Recorded() {
		if !id.Alive() {
			fmt.Fprintf(&text, "%s has ended; the end of %s:\n%s\n", name, programs.Log(name), process.LastLines(programs.Log(name), 10))
		}
	}
	return text.String()
}

// Status prints which programs run, and returns the cluster's problems.
func Status(ctx context.Context, report *Report) error {
	nodes := presentNodes()
	recorded := programs.Recorded()
	if len(recorded) == 0 {
		return errors.New("no cluster is up on this machine; `make cluster-up` brings one up")
	}
	names := expected(nodes)
	for name := range recorded {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, name := range names {
		state := "not started"
		if id, ok := recorded[name]; ok {
			state = "ended"
			if id.Alive() {
				state = fmt.Sprintf("runs, pid %d", id.PID)
			}
		}
		report.plain("%-26s %-18s %s", name, state, programs.Log(name))
	}
	for _, n := range nodes {
		if n.stopped() {
			report.plain("\n%s is stopped; `bin/cluster node start %[1]s` starts it again", n.name())
		}
	}
	if err := healthy(ctx, runningNodes()); err != nil {
		return fmt.Errorf("the cluster is not healthy: %w", err)
	}
	report.plain("\nthe cluster is healthy")
	printUsage(report)
	return nil
}
