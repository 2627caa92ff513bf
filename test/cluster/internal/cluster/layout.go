// Package cluster brings up, shows and removes the one Kubernetes cluster of
// this machine that the tests and the demo run on. Linux only.
package cluster

import (
	"net/netip"
	"path/filepath"

	"example.com/memcached-operator/test/cluster/internal/host"
	"example.com/memcached-operator/test/cluster/internal/process"
)

// A machine has one such cluster, for all clones of the repository. So everything that the cluster uses has a
// fixed name.
const (
	name     = "memcached-operator-cluster"
	stateDir = "/var/lib/" + name
	// runDir is short, because a socket's path may have 107 bytes at most.
	runDir = "/run/" + name

	pkiDir     = stateDir + "/pki"
	binDir     = stateDir + "/bin"
	configDir  = stateDir + "/config"
	volumesDir = stateDir + "/volumes"

	// Kubeconfig is the administrator's.
	Kubeconfig = stateDir + "/kubeconfig"
)

// These are ports on the machine's own addresses, and neither Kubernetes' usual ones, which another cluster
// may use, nor node ports, nor in the range that the kernel gives to clients.
const (
	portAPIServer         = 20443
	portEtcd              = 20379
	portEtcdPeer          = 20380
	portControllerManager = 20257
	portScheduler         = 20259
	portDNS               = 20053
	portDNSReady          = 20181
)

// The cluster's addresses: the machine and its nodes share a small network on
// a bridge; each node has a network for its pods.
var (
	network      = netip.MustParsePrefix("10.88.0.0/16")
	podNetwork   = netip.MustParsePrefix("10.88.0.0/17") // nodes and pods
	services     = netip.MustParsePrefix("10.88.128.0/17")
	bridge       = host.Bridge{Name: "mco0", Address: netip.MustParsePrefix("10.88.0.1/24"), Alias: name}
	serviceOfAPI = netip.MustParseAddr("10.88.128.1")
	serviceOfDNS = netip.MustParseAddr("10.88.128.10")

	firewall = host.Firewall{Comment: name, Device: bridge.Name, Network: network.String()}
	cgroup   = host.Cgroup(name)
	programs = process.Dir{Pids: stateDir + "/pids", Logs: stateDir + "/logs"}
)

const (
	clusterDomain   = "cluster.local"
	pauseImage      = "example.com/pause:dev"
	storageClass    = "local"
	provisionerName = "cache.example.com/local"
)

func program(name string) string   { return filepath.Join(binDir, name) }
func cert(name string) string      { return filepath.Join(pkiDir, name+".crt") }
func key(name string) string       { return filepath.Join(pkiDir, name+".key") }
func userConfig(who string) string { return filepath.Join(configDir, who+".kubeconfig") }
