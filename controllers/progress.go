package controllers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"example.com/memcached-operator/drainer/contract"
)

// ProgressFromLogs reads a drainer's progress from the end of its log, through
// the API server, so that the drainer needs no credentials and no port.
func ProgressFromLogs(clients kubernetes.Interface) ProgressReader {
	const (
		timeout  = 2 * time.Second
		maxLines = 5
		maxBytes = 8 << 10
	)
	return func(ctx context.Context, namespace, pod string) (*contract.Progress, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		stream, err := clients.CoreV1().Pods(namespace).GetLogs(pod, &corev1.PodLogOptions{
			TailLines: ptr.To[int64](maxLines),
		}).Stream(ctx)
		if err != nil {
			return nil, fmt.Errorf("read the log of pod %s: %w", pod, err)
		}
		defer func() { _ = stream.Close() }()
		log, err := io.ReadAll(io.LimitReader(stream, maxBytes))
		if err != nil {
			return nil, fmt.Errorf("read the log of pod %s: %w", pod, err)
		}
		return lastProgress(log), nil
	}
}

// lastProgress returns the last line that is a progress line, or nil: messages
// for people may follow it.
func lastProgress(log []byte) *contract.Progress {
	lines := bytes.Split(log, []byte("\n"))
	for i := len(lines) - 1; i >= 0; i-- {
		var p contract.Progress
		if json.Unmarshal(lines[i], &p) == nil && p.Phase != "" {
			return &p
		}
	}
	return nil
}
