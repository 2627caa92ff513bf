package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"example.com/memcached-operator/test/cluster/internal/host"
)

// tools are the programs that the cluster needs from the machine, and
// Debian's package for each.
var tools = []struct{ program, pkg string }{
	{"containerd", "containerd"},
	{"ctr", "containerd"},
	{"containerd-shim-runc-v2", "containerd"},
	{"runc", "runc"},
	{filepath.Join(cniPlugins, "ptp"), "containernetworking-plugins"},
	{"iptables", "iptables"},
	{"nft", "nftables"},
	{"conntrack", "conntrack"},
	{"ip", "iproute2"},
	{"nsenter", "util-linux"},
	{"mount", "mount"},
}

// elsewhere is the advice on a machine that can't run the cluster.
const elsewhere = "use any cluster in KUBECONFIG instead: make demo CLUSTER=existing"

func missingPackages() []string {
	var packages []string
	for _, tool := range tools {
		if _, err := exec.LookPath(tool.program); err != nil && !slices.Contains(packages, tool.pkg) {
			packages = append(packages, tool.pkg)
		}
	}
	return packages
}

// installPackages installs missing packages. installPackages fails if apt would remove a package, such as
// one that the machine's Docker needs.
func installPackages(ctx context.Context, report *Report) error {
	packages := missingPackages()
	if len(packages) == 0 {
		return nil
	}
	list := strings.Join(packages, " ")
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("programs of the packages %s are missing, and there is no apt-get to install them; %s", list, elsewhere)
	}
	report.say("installing Debian's packages %s", list)
	install := append([]string{"DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "--yes", "--quiet",
		"--no-install-recommends", "--no-remove"}, packages...)
	if _, err := host.Run(ctx, "env", install...); err != nil {
		// The package lists may be old or missing.
		if _, err := host.Run(ctx, "apt-get", "update", "--quiet"); err != nil {
			return fmt.Errorf("the packages %s are missing, and apt-get can't reach its sources; %s (%s)", list, elsewhere, lastLine(err))
		}
		if _, err := host.Run(ctx, "env", install...); err != nil {
			return fmt.Errorf("the packages %s are missing, and apt-get can't install them; %s (%s)", list, elsewhere, lastLine(err))
		}
	}
	if left := missingPackages(); len(left) > 0 {
		return fmt.Errorf("programs of %s are missing even with the packages installed; %s", strings.Join(left, " "), elsewhere)
	}
	return stopService(ctx, packages, report)
}

// stopService stops the containerd that Debian starts when its package is installed. The cluster has a
// containerd of its own.
func stopService(ctx context.Context, installed []string, report *Report) error {
	if _, err := os.Stat("/run/systemd/system"); err != nil || !slices.Contains(installed, "containerd") {
		return nil
	}
	report.say("stopping and disabling the service containerd, which came with its package and isn't needed")
	_, err := host.Run(ctx, "systemctl", "disable", "--now", "containerd.service")
	return err
}

func lastLine(err error) error {
	lines := strings.Split(strings.TrimSpace(err.Error()), "\n")
	return errors.New(lines[len(lines)-1])
}
