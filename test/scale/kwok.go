package main

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"

	"example.com/memcached-operator/test/internal/harness"
)

//go:embed kwok.yaml
var stages string

// progress is the log of every drainer at work: the drainer's progress line in a CRI log line.
const progress = `2026-01-01T00:00:00.000000000Z stdout F {"phase":"Adding","itemsDone":500,"itemsTotal":1000,"bytesDone":50000,"bytesTotal":100000}
`

const logs = `---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterLogs
metadata:
  name: progress
spec:
  logs: [{logsFile: %q}]
---
apiVersion: config.kwok.x-k8s.io/v1alpha1
kind: KwokConfiguration
options:
  enableDebuggingHandlers: true
  podPlayStageParallelism: 16
  nodePlayStageParallelism: 4
  nodeLeaseParallelism: 4
  podsOnNodeSyncParallelism: 4
`

// startKwok plays all nodes, and serves the logs of their pods as a kubelet would.
func startKwok(c *controlPlane, program string) (*child, error) {
	kubeconfig, err := c.kubeconfig(adminToken)
	if err != nil {
		return nil, err
	}
	port, err := harness.FreePort()
	if err != nil {
		return nil, err
	}
	log, config := filepath.Join(c.dir, "drainer.log"), filepath.Join(c.dir, "kwok.yaml")
	if err := os.WriteFile(log, []byte(progress), 0o600); err != nil {
		return nil, err
	}
	if err := os.WriteFile(config, []byte(stages+fmt.Sprintf(logs, log)), 0o600); err != nil {
		return nil, err
	}
	return start(c.dir, "kwok", nil, program,
		"--kubeconfig="+kubeconfig, "--config="+config, "--manage-all-nodes",
		"--node-lease-duration-seconds=0", "--cidr=127.1.0.1/16",
		"--node-ip=127.0.0.1", fmt.Sprintf("--node-port=%d", port),
		fmt.Sprintf("--server-address=127.0.0.1:%d", port),
		"--tls-cert-file="+c.cert(), "--tls-private-key-file="+c.key())
}
