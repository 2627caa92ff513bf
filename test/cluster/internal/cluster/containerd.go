package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"example.com/memcached-operator/test/cluster/internal/process"
)

// cniPlugins is the directory of Debian's package containernetworking-plugins.
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
	return containerd, until(ctx, "containerd", []*process.Process{containerd}, func(ctx context.Context) error {
		return servesKubelets(ctx, n.socket())
	})
}

// servesKubelets makes a kubelet's first request. containerd accepts connections before it can answer, and a
// kubelet that starts too early ends. This is gRPC without its library, which would take longer to compile than
// the rest of this program.
func servesKubelets(ctx context.Context, socket string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	plainHTTP2 := &http.Protocols{}
	plainHTTP2.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: plainHTTP2, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	defer transport.CloseIdleConnections()
	const emptyMessage = "\x00\x00\x00\x00\x00" // not compressed, 0 bytes
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://containerd/runtime.v1.RuntimeService/Version", strings.NewReader(emptyMessage))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/grpc")
	request.Header.Set("TE", "trailers")
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(answer.Body, 1<<20)); err != nil {
		return err
	}
	for _, end := range []http.Header{answer.Trailer, answer.Header} {
		if status := end.Get("Grpc-Status"); status != "" && status != "0" {
			return fmt.Errorf("containerd answers %s: %s", status, end.Get("Grpc-Message"))
		} else if status == "0" {
			return nil
		}
	}
	return errors.New("containerd's answer has no status")
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

// cniConfig connects each pod by a pair of devices and a route, without a bridge between pods. So all packets
// between pods pass iptables, and services work even if the kernel doesn't filter bridged packets. Pods get no
// ports of their node.
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
    }
  ]
}
`, name, filepath.Join(n.run(), "addresses"), n.pods())
}
