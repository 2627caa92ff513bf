// Package host changes the machine that the cluster runs on, and undoes it:
// network devices, iptables rules, sysctls, control groups, mounts. Linux only.
package host

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// Run runs a command and returns its standard output. The error has its standard error.
func Run(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err,
			strings.TrimSpace(stderr.String()+stdout.String()))
	}
	return stdout.String(), nil
}
