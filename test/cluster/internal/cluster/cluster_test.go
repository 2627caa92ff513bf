package cluster

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestOnlyOurProcessesAreEnded(t *testing.T) {
	for name, test := range map[string]struct {
		exe  string
		args []string
		want bool
	}{
		"our kubelet":              {binDir + "/k8s", []string{binDir + "/kubelet"}, true},
		"our containerd":           {"/usr/bin/containerd", []string{"containerd", "--config=" + stateDir + "/node-1/containerd.toml"}, true},
		"our shim":                 {"/usr/bin/containerd-shim-runc-v2", []string{"/usr/bin/containerd-shim-runc-v2", "-address", runDir + "/node-1/containerd.sock"}, true},
		"a program being started":  {"/usr/bin/nsenter", []string{"nsenter", "--target", "7", "--", binDir + "/kubelet"}, true},
		"the machine's containerd": {"/usr/bin/containerd", []string{"/usr/bin/containerd"}, false},
		"the machine's shim":       {"/usr/bin/containerd-shim-runc-v2", []string{"shim", "-address", "/run/containerd/containerd.sock"}, false},
		"the machine's kubelet":    {"/usr/bin/kubelet", []string{"kubelet", "--kubeconfig=" + Kubeconfig}, false},
		"a person reads a log":     {"/usr/bin/tail", []string{"tail", "-f", stateDir + "/logs/etcd.log"}, false},
		"a similar name":           {"/usr/bin/containerd", []string{"containerd", "--config=" + stateDir + "-2/c.toml"}, false},
		"a clone's kubectl":        {"/home/me/clone/bin/k8s/k8s", []string{"kubectl", "--kubeconfig", Kubeconfig}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := isOurs(test.exe, test.args); got != test.want {
				t.Errorf("want %v, got %v", test.want, got)
			}
		})
	}
}

func TestOnlyTheAdministratorIsAMaster(t *testing.T) {
	nodes := nodesUpTo(maxNodes)
	names := map[string]bool{}
	for _, who := range identities(nodes) {
		if names[who.request.CommonName] {
			t.Errorf("%s is the identity of two components", who.request.CommonName)
		}
		names[who.request.CommonName] = true
		if master := slices.Contains(who.request.Organizations, "system:masters"); master != (who.file == Kubeconfig) {
			t.Errorf("%s in system:masters: %v", who.request.CommonName, master)
		}
	}
	for _, certificate := range certificates(nodes) {
		if len(certificate.request.Organizations) > 0 {
			t.Errorf("%s has groups: %v", certificate.name, certificate.request.Organizations)
		}
	}
}

func TestNodesShareNothing(t *testing.T) {
	nodes := nodesUpTo(maxNodes)
	for i, two := range nodes {
		for _, one := range nodes[:i] {
			if one.address() == two.address() || one.pods().Overlaps(two.pods()) || one.dir() == two.dir() ||
				one.run() == two.run() || one.device() == two.device() || one.socket() == two.socket() {
				t.Errorf("%s and %s have something in common", one.name(), two.name())
			}
		}
	}
	for _, node := range nodes {
		if !podNetwork.Contains(node.pods().Addr()) || services.Overlaps(node.pods()) || !bridge.Address.Masked().Contains(node.address()) {
			t.Errorf("%s is outside its network: %s, pods %s", node.name(), node.address(), node.pods())
		}
		// A device's name has 15 bytes at most, a socket's path 107.
		if len(node.device()) > 15 || len(node.socket()) > 80 {
			t.Errorf("too long: %s, %s", node.device(), node.socket())
		}
	}
}

func TestDNSForwardsOnlyWhereThereIsANameServer(t *testing.T) {
	for name, test := range map[string]struct {
		resolvConf string
		want       bool
	}{
		"a name server": {"search example.com\nnameserver 192.0.2.1\n", true},
		"none":          {"search example.com\n# nameserver 192.0.2.1\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "resolv.conf")
			if err := os.WriteFile(path, []byte(test.resolvConf), 0o644); err != nil {
				t.Fatal(err)
			}
			if got := strings.Contains(string(corednsConfig(path)), "forward . "+path); got != test.want {
				t.Errorf("want forward %v, got %v", test.want, got)
			}
		})
	}
}

func TestMissingDirectoriesInnermostFirst(t *testing.T) {
	root := t.TempDir()
	want := []string{root + "/a/b", root + "/a"}
	if got := missing(root + "/a/b"); !slices.Equal(got, want) {
		t.Errorf("want %v, got %v", want, got)
	}
	if got := missing(root); len(got) != 0 {
		t.Errorf("an existing directory: want none, got %v", got)
	}
}
