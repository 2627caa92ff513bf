package ask

import (
	"context"
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/drainer/contract"
)

const (
	// prepareInterval is how often the progress is read until a mover is prepared, for preparesFor
	// at most, because clients are told of a scaling only then.
	prepareInterval = 300 * time.Millisecond
	preparesFor     = 10 * time.Second
)

// ProgressReader returns the last progress line of a drainer's pod, or nil.
type ProgressReader func(ctx context.Context, namespace, pod string) (*contract.Progress, error)

// Drainers asks drainers and movers how far they are.
type Drainers = Logs[contract.Progress]

// NewDrainers returns Drainers, which read the logs of drainers after Start and call changed for each cluster
// whose drainers have made progress; changed must not block.
func NewDrainers(read ProgressReader, changed func(cluster types.NamespacedName)) *Drainers {
	return NewLogs(LogOptions[contract.Progress]{
		Read: func(ctx context.Context, namespace, pod, _ string) (*contract.Progress, error) {
			return read(ctx, namespace, pod)
		},
		Container: func(*corev1.Pod) string { return build.ContainerDrainer },
		Changed:   changed,
		Soon:      func(p contract.Progress) bool { return p.Phase == "" || p.Phase == contract.PhaseConnecting },

		SoonInterval: prepareInterval, SoonFor: preparesFor,
	})
}

// Bounds of a progress line.
const (
	// maxProgressCount is more items or bytes than a volume has. The sum over all volumes of a
	// cluster, in percent, still fits into an int64.
	maxProgressCount   = 1 << 46
	maxProgressSeconds = 1e9
	maxProgressMessage = 1 << 10
	maxProgressPhase   = 64
)

// ProgressFromLogs reads a drainer's progress from the end of its log.
func ProgressFromLogs(clients kubernetes.Interface) ProgressReader {
	read := ReadLogs(clients, progressOf)
	return func(ctx context.Context, namespace, pod string) (*contract.Progress, error) {
		return read(ctx, namespace, pod, build.ContainerDrainer)
	}
}

// progressOf parses a progress line; nil for any other line.
func progressOf(line []byte) *contract.Progress {
	var p contract.Progress
	if json.Unmarshal(line, &p) != nil || p.Phase == "" || len(p.Phase) > maxProgressPhase {
		return nil
	}
	for _, n := range []int64{p.ItemsDone, p.ItemsTotal, p.BytesDone, p.BytesTotal} {
		if n < 0 || n > maxProgressCount {
			return nil
		}
	}
	if !(0 <= p.Late && p.Late <= 1) {
		return nil
	}
	for _, seconds := range []float64{p.Seconds, p.WaitingSeconds} {
		if seconds < 0 || seconds > maxProgressSeconds {
			return nil
		}
	}
	if p.Phase == contract.PhaseSettling {
		p.Seconds = 0 // the seconds are not used, and would make each answer differ
	}
	p.Message = claims.Printable(p.Message, maxProgressMessage)
	return &p
}
