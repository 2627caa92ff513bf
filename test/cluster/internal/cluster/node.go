package cluster

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"

	"example.com/memcached-operator/test/cluster/internal/host"
	"example.com/memcached-operator/test/cluster/internal/process"
)

// node is a machine of the cluster: a network and a mount namespace with a
// containerd, a kubelet and a kube-proxy of its own.
type node struct {
	number int
	holder *process.Process
}

func (n *node) name() string   { return fmt.Sprintf("node-%d", n.number) }
func (n *node) device() string { return fmt.Sprintf("mco-node-%d", n.number) }
func (n *node) dir() string    { return filepath.Join(stateDir, n.name()) }
func (n *node) run() string    { return filepath.Join(runDir, n.name()) }
func (n *node) socket() string { return filepath.Join(n.run(), "containerd.sock") }
func (n *node) user() string   { return "system:node:" + n.name() }

// daemon is the name of one of the node's programs in pid files and logs.
func (n *node) daemon(program string) string { return n.name() + "-" + program }

func (n *node) address() netip.Addr {
	return netip.AddrFrom4([4]byte{10, 88, 0, byte(1 + n.number)})
}

func (n *node) pods() netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 88, byte(16 * n.number), 0}), 20)
}

// binds are the paths that are built into the kubelet, containerd, the CNI library and mount. A kubelet of the
// machine itself has the same paths.
func (n *node) binds() []host.Bind {
	return []host.Bind{
		{Source: filepath.Join(n.dir(), "kubelet"), Target: "/var/lib/kubelet"},
		{Source: filepath.Join(n.dir(), "cni-cache"), Target: "/var/lib/cni"},
		{Source: filepath.Join(n.dir(), "pod-logs"), Target: "/var/log/pods"},
		{Source: filepath.Join(n.dir(), "container-logs"), Target: "/var/log/containers"},
		{Source: filepath.Join(n.run(), "containerd"), Target: "/run/containerd"},
		{Source: filepath.Join(n.run(), "mount"), Target: "/run/mount"},
	}
}

// create makes the node's namespaces, and connects them to the bridge.
func (n *node) create(ctx context.Context) error {
	ready := filepath.Join(n.run(), "ready")
	args := []string{program("cluster"), "hold", "--ready=" + ready}
	for _, bind := range n.binds() {
		if err := os.MkdirAll(bind.Source, 0o755); err != nil {
			return err
		}
		args = append(args, "--bind="+bind.Source+":"+bind.Target)
	}
	if err := cgroup.Create(n.name()); err != nil {
		return err
	}
	holder, err := programs.Start(process.Spec{
		Name: n.daemon("namespaces"), Args: args, Env: environment(), Cloneflags: host.NamespaceFlags,
	})
	if err != nil {
		return err
	}
	n.holder = holder
	if err := until(ctx, "the node's namespaces", []*process.Process{holder}, func(context.Context) error {
		_, err := os.Stat(ready)
		return err
	}); err != nil {
		return err
	}
	routes := []netip.Prefix{n.pods()}
	if n.number == 1 {
		routes = append(routes, services) // this node's kube-proxy serves the machine, too
	}
	uplink := host.Uplink{Device: n.device(), PID: holder.PID, Address: netip.PrefixFrom(n.address(), bridge.Address.Bits())}
	if err := bridge.Connect(ctx, uplink, routes...); err != nil {
		return err
	}
	for _, other := range nodesUpTo(maxNodes) {
		if other.number == n.number {
			continue
		}
		if err := uplink.Route(ctx, other.pods(), other.address()); err != nil {
			return err
		}
	}
	return host.CheckIptables(ctx, holder.PID)
}

// start runs a program inside the node's namespaces.
func (n *node) start(name string, args ...string) (*process.Process, error) {
	inside := []string{"nsenter", "--target", strconv.Itoa(n.holder.PID), "--net", "--mount", "--wd=/", "--"}
	return programs.Start(process.Spec{Name: n.daemon(name), Args: append(inside, args...), Env: environment()})
}

func (n *node) startKubelet() (*process.Process, error) {
	config := filepath.Join(n.dir(), "kubelet.yaml")
	if err := os.WriteFile(config, n.kubeletConfig(), 0o644); err != nil {
		return nil, err
	}
	return n.start("kubelet", program("kubelet"),
		"--config="+config,
		"--kubeconfig="+userConfig(n.name()),
		"--hostname-override="+n.name(),
		"--node-ip="+n.address().String(),
		// Only a few tests, and the eviction of pods, need the memory and CPU that containers use.
		"--housekeeping-interval=1m",
	)
}

func (n *node) kubeletConfig() []byte {
	return fmt.Appendf(nil, `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: %[1]s
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: %[2]s}
authorization: {mode: Webhook}
tlsCertFile: %[3]s
tlsPrivateKeyFile: %[4]s
readOnlyPort: 0
containerRuntimeEndpoint: unix://%[5]s
cgroupDriver: cgroupfs
cgroupRoot: /%[6]s
enforceNodeAllocatable: []
failCgroupV1: false
failSwapOn: false
clusterDomain: %[7]s
clusterDNS: [%[8]s]
volumePluginDir: /var/lib/kubelet/volume-plugins
# The disk is the developer's: how full it is is not the cluster's business.
evictionHard:
  memory.available: "0%%"
  nodefs.available: "0%%"
  nodefs.inodesFree: "0%%"
  imagefs.available: "0%%"
  imagefs.inodesFree: "0%%"
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
serializeImagePulls: false
maxPods: 110
# Tests kill the same container more than once.
crashLoopBackOff: {maxContainerRestartPeriod: 2s}
# Tests wait for what the kubelet reports.
nodeStatusUpdateFrequency: 5s
nodeStatusReportFrequency: 1m
syncFrequency: 10s
# No test reads how full volumes are.
volumeStatsAggPeriod: -1s
kubeAPIQPS: 200
kubeAPIBurst: 400
eventRecordQPS: 0
`, n.address(), cert("ca"), cert("kubelet-"+n.name()), key("kubelet-"+n.name()), n.socket(),
		filepath.Join(string(cgroup), n.name()), clusterDomain, serviceOfDNS)
}

func (n *node) startProxy() (*process.Process, error) {
	config := filepath.Join(n.dir(), "kube-proxy.yaml")
	if err := os.WriteFile(config, n.proxyConfig(), 0o644); err != nil {
		return nil, err
	}
	return n.start("kube-proxy", program("kube-proxy"), "--config="+config)
}

// proxyConfig leaves the kernel's conntrack settings alone: they belong to the whole machine. Packets that
// don't come from a pod of this node, such as the machine's own requests, are masqueraded: otherwise an answer
// from another node's pod would not pass this node.
func (n *node) proxyConfig() []byte {
	return fmt.Appendf(nil, `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
hostnameOverride: %s
clientConnection: {kubeconfig: %s}
clusterCIDR: %s
bindAddress: %s
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
iptables: {localhostNodePorts: false, minSyncPeriod: 100ms}
`, n.name(), userConfig("kube-proxy"), n.pods(), n.address())
}

// environment is that of every program, without the caller's environment.
func environment() []string {
	return []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/root",
		// Garbage collection would take a tenth of their CPU time.
		"GOGC=400",
		// Otherwise the lock of iptables' legacy variant would be shared with the machine.
		"XTABLES_LOCKFILE=" + runDir + "/xtables.lock",
	}
}
