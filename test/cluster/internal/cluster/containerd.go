package cluster

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"example.com/memcached-operator/test/cluster/internal/process"
)

// cniPlugins is where Debian's package containernetworking-plugins puts them.
const cniPlugins = "/usr/lib/cni"

// startContainerd runs a containerd with root, state, socket and network
// configuration of its own, and waits until it answers.
func (n *node) startContainerd(ctx context.Context) (*process.Process, error) {
	cni := filepath.Join(n.dir(), "cni")
	if err := os.MkdirAll(cni, 0o755); err != nil {
		return nil, err
	}
	config := filepath.Join(n.dir(), "containerd.toml")
	files := map[string][]byte{
		filepath.Join(cni, "10-pods.conflist"): n.cniConfig(),
		config:                                 n.containerdConfig(cni),
	}
	for path, text := range files {
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return nil, err
		}
	}
	containerd, err := n.start("containerd", "containerd", "--config="+config)
	if err != nil {
		return nil, err
	}
	return containerd, until(ctx, "containerd", []*process.Process{containerd}, func(context.Context) error {
		connection, err := net.Dial("unix", n.socket())
		if err != nil {
			return err
		}
		return connection.Close()
	})
}

// containerdConfig. restrict_oom_score_adj: without CAP_SYS_RESOURCE, as in
// many sandboxes, runc fails to lower a container's score. disable_apparmor:
// a profile would stay loaded when the cluster is gone.
func (n *node) containerdConfig(cni string) []byte {
	return fmt.Appendf(nil, `version = 2
root = %[1]q
state = "/run/containerd"
# Only what Kubernetes uses.
disabled_plugins = [
  "io.containerd.internal.v1.opt",
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
]

[grpc]
  address = %[2]q

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %[3]q
  restrict_oom_score_adj = true
  disable_apparmor = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %[4]q
    conf_dir = %[5]q
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
`, filepath.Join(n.dir(), "containerd"), n.socket(), pauseImage, cniPlugins, cni)
}

// cniConfig connects each pod by a pair of devices and a route, without a
// bridge between pods: so all that pods send each other passes iptables, and
// services work whether or not the kernel filters bridged packets.
func (n *node) cniConfig() []byte {
	return fmt.Appendf(nil, `{
  "cniVersion": "0.4.0",
  "name": %q,
  "plugins": [
    {
      "type": "ptp",
      "ipMasq": false,
      "ipam": {
        "type": "host-local",
        "dataDir": %q,
        "ranges": [[{"subnet": %q}]],
        "routes": [{"dst": "0.0.0.0/0"}]
      }
    },
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
`, name, filepath.Join(n.run(), "addresses"), n.pods())
}
