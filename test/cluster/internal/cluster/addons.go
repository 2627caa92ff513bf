package cluster

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/template"

	"example.com/memcached-operator/test/cluster/internal/process"
)

//go:embed addons.yaml
var addons string

// applyAddons creates the rights of CoreDNS and the provisioner, the DNS service, and the storage class.
func applyAddons(ctx context.Context) error {
	var manifest bytes.Buffer
	err := template.Must(template.New("addons").Option("missingkey=error").Parse(addons)).Execute(&manifest, map[string]any{
		"DNSService":   serviceOfDNS,
		"DNSAddress":   bridge.Address.Addr(),
		"DNSPort":      portDNS,
		"StorageClass": storageClass,
		"Provisioner":  provisionerName,
	})
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program("kubectl"), "--kubeconfig="+Kubeconfig,
		"--cache-dir="+filepath.Join(stateDir, "kubectl-cache"), "apply", "--server-side", "--filename=-")
	cmd.Stdin = &manifest
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl apply: %w: %s", err, strings.TrimSpace(string(output)))
	}
	return nil
}

// startDNS runs CoreDNS on the bridge, behind the service kube-dns.
func startDNS() (*process.Process, error) {
	corefile := filepath.Join(configDir, "Corefile")
	if err := os.WriteFile(corefile, corednsConfig("/etc/resolv.conf"), 0o644); err != nil {
		return nil, err
	}
	return start("coredns", "-conf="+corefile)
}

// corednsConfig lets CoreDNS answer for the cluster from memory, and ask the machine's name servers, if there
// are any, for other names.
func corednsConfig(resolvConf string) []byte {
	forward := ""
	if text, err := os.ReadFile(resolvConf); err == nil && strings.Contains("\n"+string(text), "\nnameserver ") {
		forward = "    forward . " + resolvConf + "\n"
	}
	return fmt.Appendf(nil, `.:%[1]d {
    bind %[2]s
    ready %[2]s:%[3]d
    errors
    loadbalance
    cache 30 {
        disable success %[4]s
        disable denial %[4]s
    }
    kubernetes %[4]s in-addr.arpa {
        kubeconfig %[5]s
        pods insecure
        ttl 5
        fallthrough in-addr.arpa
    }
%[6]s}
`, portDNS, bridge.Address.Addr(), portDNSReady, clusterDomain, userConfig("coredns"), forward)
}

func startProvisioner() (*process.Process, error) {
	if err := os.MkdirAll(volumesDir, 0o755); err != nil {
		return nil, err
	}
	return start("provisioner",
		"--kubeconfig="+userConfig("provisioner"),
		"--name="+provisionerName,
		"--root="+volumesDir,
	)
}
