package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"

	"example.com/memcached-operator/test/cluster/internal/host"
	"example.com/memcached-operator/test/cluster/internal/process"
)

// Deadlines of steps that take seconds on a machine that is not busy.
const (
	startDeadline = 3 * time.Minute
	buildDeadline = 60 * time.Minute
	lockDeadline  = 10 * time.Minute
)

// up is one run of cluster-up.
type up struct {
	source Source
	report *Report
	nodes  []*node
	api    *api
}

// Up brings the cluster up with so many nodes at least. A cluster that is up gets the missing nodes.
func Up(ctx context.Context, source Source, count int, report *Report) error {
	if count < 1 || count > maxNodes {
		return fmt.Errorf("a cluster has 1 to %d nodes, not %d", maxNodes, count)
	}
	lockCtx, cancel := context.WithTimeout(ctx, lockDeadline)
	defer cancel()
	release, err := lock(lockCtx, report)
	if err != nil {
		return err
	}
	defer release()
	u := &up{source: source, report: report, nodes: nodesUpTo(count)}
	if running := runningNodes(); len(running) > 0 && healthy(ctx, running) == nil {
		return u.grow(ctx, running)
	}
	if err := u.run(ctx); err != nil {
		if os.Remove(stateDir) == nil { // the directory is empty: nothing was started
			return err
		}
		return fmt.Errorf("%w\nwhat was started is still there, with logs in %s; `make cluster-down` removes it", err, programs.Logs)
	}
	printUsage(report)
	return nil
}

// grow adds the nodes that don't run.
func (u *up) grow(ctx context.Context, running []*node) error {
	ctx, cancel := context.WithTimeout(ctx, startDeadline)
	defer cancel()
	u.report.say("the cluster is up already: %s", names(running))
	if err := loadAll(ctx, running, u.source.Images(), u.report); err != nil {
		return err
	}
	for _, n := range u.nodes {
		if slices.ContainsFunc(running, func(r *node) bool { return r.number == n.number }) {
			continue
		}
		if err := u.join(ctx, n); err != nil {
			return fmt.Errorf("%w\n`bin/cluster node remove %s` removes what was started of it", err, n.name())
		}
	}
	printUsage(u.report)
	return nil
}

// join brings a node into the cluster that is up.
func (u *up) join(ctx context.Context, n *node) error {
	u.report.say("starting %s", n.name())
	var err error
	if u.api, err = newAPI(); err != nil {
		return err
	}
	if err := n.create(ctx); err != nil {
		return err
	}
	ready := make(chan struct{})
	close(ready)
	if err := u.startNode(ctx, n, ready); err != nil {
		return err
	}
	if err := u.awaitNode(ctx, n); err != nil {
		return fmt.Errorf("%w\n%s", err, endedPrograms())
	}
	u.report.say("%s is ready", n.name())
	return nil
}

func (u *up) awaitNode(ctx context.Context, n *node) error {
	return until(ctx, n.name(), nil, func(ctx context.Context) error { return u.api.nodeReady(ctx, n.name()) })
}

func (u *up) run(ctx context.Context) error {
	buildCtx, cancel := context.WithTimeout(ctx, buildDeadline)
	defer cancel()
	err := inParallel(buildCtx,
		func(ctx context.Context) error { return installPackages(ctx, u.report) },
		func(ctx context.Context) error { return u.source.build(ctx, u.report) },
	)
	if err != nil {
		return err
	}
	startCtx, cancel := context.WithTimeout(ctx, startDeadline)
	defer cancel()
	if leftovers() {
		u.report.say("removing what is left of an earlier cluster that isn't healthy")
		if err := teardown(startCtx, u.report); err != nil {
			return err
		}
	}
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"checking ports and networks", u.check},
		{"writing certificates and programs to " + stateDir, u.prepare},
		{"connecting the nodes' networks", u.connect},
		{"starting the control plane and the nodes", u.start},
		{"waiting for the nodes, DNS and the defaults", u.wait},
	} {
		u.report.say("%s", step.what)
		if err := step.do(startCtx); err != nil {
			return err
		}
	}
	u.report.say("the cluster is up")
	return nil
}

// check finds obstacles before anything is changed.
func (u *up) check(context.Context) error {
	if err := host.CheckSubnet(network, bridge.Name); err != nil {
		return err
	}
	for port, purpose := range map[int]string{
		portAPIServer: "the API server", portEtcd: "etcd", portEtcdPeer: "etcd",
		portControllerManager: "the controller manager", portScheduler: "the scheduler",
		portDNS: "DNS", portDNSReady: "DNS",
	} {
		if err := host.CheckPort(fmt.Sprintf(":%d", port), purpose); err != nil {
			return err
		}
	}
	return nil
}

// prepare writes the journal, and the files that the programs need.
func (u *up) prepare(ctx context.Context) error {
	for _, directory := range []string{programs.Pids, programs.Logs, binDir, runDir} {
		if err := os.MkdirAll(directory, 0o755); err != nil {
			return err
		}
	}
	if err := u.source.install(binDir); err != nil {
		return err
	}
	if err := writeCertificates(); err != nil {
		return err
	}
	before := journal{
		Boot:         process.BootID(),
		Settings:     host.Record(kernelSettings),
		UnusedTables: firewall.UnusedTables(ctx),
		Controllers:  cgroup.Undelegated(),
	}
	var binds []host.Bind
	for _, node := range u.nodes {
		binds = append(binds, node.binds()...)
	}
	for _, bind := range binds {
		before.Directories = append(before.Directories, missing(bind.Target)...)
	}
	if err := before.write(); err != nil {
		return err
	}
	for _, bind := range binds {
		if err := os.MkdirAll(bind.Target, 0o755); err != nil {
			return err
		}
	}
	return nil
}

func (u *up) connect(ctx context.Context) error {
	if err := bridge.Create(ctx); err != nil {
		return err
	}
	if err := host.SetSysctl(forwarding, kernelSettings[forwarding]); err != nil {
		return err
	}
	if err := firewall.Install(ctx); err != nil {
		return err
	}
	for _, node := range u.nodes {
		if err := node.create(ctx); err != nil {
			return err
		}
	}
	return nil
}

// start starts the control plane and the nodes at the same time; the kubelets
// wait for the API server.
func (u *up) start(ctx context.Context) error {
	apiReady := make(chan struct{})
	tasks := []func(context.Context) error{
		func(ctx context.Context) error { return u.startControlPlane(ctx, apiReady) },
	}
	for _, node := range u.nodes {
		tasks = append(tasks, func(ctx context.Context) error { return u.startNode(ctx, node, apiReady) })
	}
	return inParallel(ctx, tasks...)
}

func (u *up) startControlPlane(ctx context.Context, apiReady chan<- struct{}) error {
	etcd, err := startEtcd()
	if err != nil {
		return err
	}
	server, err := startAPIServer()
	if err != nil {
		return err
	}
	if u.api, err = newAPI(); err != nil {
		return err
	}
	if err := until(ctx, "the API server", []*process.Process{etcd, server}, u.api.ready); err != nil {
		return err
	}
	u.report.say("the API server is ready")
	close(apiReady)
	for _, start := range []func() (*process.Process, error){
		startControllerManager, startScheduler, startDNS, startProvisioner,
	} {
		if _, err := start(); err != nil {
			return err
		}
	}
	return until(ctx, "the cluster's own objects", []*process.Process{etcd, server}, applyAddons)
}

func (u *up) startNode(ctx context.Context, n *node, apiReady <-chan struct{}) error {
	if _, err := n.startContainerd(ctx); err != nil {
		return err
	}
	if err := loadAll(ctx, []*node{n}, u.source.Images(), u.report); err != nil {
		return err
	}
	select {
	case <-apiReady:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if _, err := n.startKubelet(); err != nil {
		return err
	}
	_, err := n.startProxy()
	return err
}

// wait returns when a pod can be scheduled and started, can find names, and can get a volume.
func (u *up) wait(ctx context.Context) error {
	checks := []func(context.Context) error{
		func(ctx context.Context) error { return until(ctx, "DNS", nil, dnsAnswers) },
		func(ctx context.Context) error {
			return until(ctx, "the default service account and storage class", nil, u.api.defaultsExist)
		},
	}
	for _, node := range u.nodes {
		checks = append(checks, func(ctx context.Context) error { return u.awaitNode(ctx, node) })
	}
	if err := inParallel(ctx, checks...); err != nil {
		return fmt.Errorf("%w\n%s", err, endedPrograms())
	}
	return healthy(ctx, u.nodes)
}

func printUsage(report *Report) {
	report.plain("\n  export KUBECONFIG=%s", Kubeconfig)
	if _, err := exec.LookPath("kubectl"); err != nil {
		report.plain("  export PATH=$PATH:%s        # kubectl", binDir)
	}
	report.plain("\n  make images cluster-load   build the images and load them into the cluster")
	report.plain("  make cluster-status        what runs, and where its logs are")
	report.plain("  make cluster-down          remove all of it")
}
