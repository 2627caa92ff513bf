package ask

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/status"
	"example.com/memcached-operator/drainer/contract"
)

const (
	// ProgressInterval is how often the progress of a running drain is read. Each time costs a read
	// and a write of the status, which together make status change about every two seconds.
	ProgressInterval = 1500 * time.Millisecond
	// prepareInterval is how often the progress is read until a mover is prepared, for preparesFor
	// at most, because clients are told of a scaling only then.
	prepareInterval = 300 * time.Millisecond
	preparesFor     = 10 * time.Second
	// progressTimeout bounds one read, because the node of a drainer may be dead.
	progressTimeout = 2 * time.Second
	// progressTargets bounds how many drainers are asked. Status shows no progress of others.
	progressTargets = 4096
)

// ProgressReader returns the last progress line of a drainer's pod, or nil.
type ProgressReader func(ctx context.Context, namespace, pod string) (*contract.Progress, error)

// Drainers asks drainers how far they are. A nil Drainers asks none.
type Drainers struct {
	sampler *sampler[logTarget, contract.Progress]
}

// logTarget is the pod whose log is read.
type logTarget struct {
	namespace, name string
	uid             types.UID
}

// NewDrainers returns Drainers that read the logs of drainers once they are started. They call
// changed for each cluster whose drainers have made progress; changed must not block.
func NewDrainers(read ProgressReader, changed func(cluster types.NamespacedName)) *Drainers {
	return &Drainers{newSampler(samplerOptions[logTarget, contract.Progress]{
		Ask: func(ctx context.Context, pod logTarget) (contract.Progress, error) {
			progress, err := read(ctx, pod.namespace, pod.name)
			return ptr.Deref(progress, contract.Progress{}), err
		},
		Changed: changed,
		Timeout: progressTimeout, Interval: ProgressInterval,
		Soon:         func(p contract.Progress) bool { return p.Phase == "" || p.Phase == contract.PhaseConnecting },
		SoonInterval: prepareInterval, SoonFor: preparesFor,
		Workers: 16, PerCluster: 4, Targets: progressTargets,
		Clock: clock.RealClock{},
	})}
}

// Start asks until the context ends.
func (d *Drainers) Start(ctx context.Context) error { return d.sampler.Start(ctx) }

// Want replaces the pods of a cluster that are asked from now on. It returns the progress
// that is known, by the pod's UID.
func (d *Drainers) Want(cluster types.NamespacedName, pods ...*corev1.Pod) map[types.UID]contract.Progress {
	if d == nil {
		return nil
	}
	targets := make([]logTarget, 0, len(pods))
	for _, pod := range pods {
		targets = append(targets, logTarget{pod.Namespace, pod.Name, pod.UID})
	}
	known := map[types.UID]contract.Progress{}
	for target, s := range d.sampler.Want(cluster, targets...) {
		if s.Value != (contract.Progress{}) {
			known[target.uid] = s.Value
		}
	}
	return known
}

// Forget asks no drainer of the cluster any more.
func (d *Drainers) Forget(cluster types.NamespacedName) { d.Want(cluster) }

// Bounds of a log, because its content can't be trusted.
const (
	maxProgressLines = 5
	maxProgressLog   = 8 << 10
	maxProgressLine  = 4 << 10
	// maxProgressCount is more items or bytes than a volume has. The sum over all volumes of a
	// cluster, in percent, still fits into an int64.
	maxProgressCount   = 1 << 46
	maxProgressSeconds = 1e9
	maxProgressMessage = 1 << 10
	maxProgressPhase   = 64
)

// ProgressFromLogs reads a drainer's progress from the end of its log, through the API
// server, so the drainer needs no credentials and no port.
func ProgressFromLogs(clients kubernetes.Interface) ProgressReader {
	return func(ctx context.Context, namespace, pod string) (*contract.Progress, error) {
		stream, err := clients.CoreV1().Pods(namespace).GetLogs(pod, &corev1.PodLogOptions{
			Container:  build.ContainerDrainer,
			TailLines:  ptr.To[int64](maxProgressLines),
			LimitBytes: ptr.To[int64](maxProgressLog),
		}).Stream(ctx)
		if err != nil {
			return nil, fmt.Errorf("read the log of pod %s: %w", pod, err)
		}
		defer func() { _ = stream.Close() }()
		log, err := io.ReadAll(io.LimitReader(stream, maxProgressLog))
		if err != nil {
			return nil, fmt.Errorf("read the log of pod %s: %w", pod, err)
		}
		return lastProgress(log), nil
	}
}

// lastProgress returns the last progress line, or nil. Log messages may follow it.
func lastProgress(log []byte) *contract.Progress {
	lines := bytes.Split(log, []byte("\n"))
	for i := len(lines) - 1; i >= 0; i-- {
		if p := progressOf(lines[i]); p != nil {
			return p
		}
	}
	return nil
}

// progressOf parses a progress line; nil for any other line.
func progressOf(line []byte) *contract.Progress {
	var p contract.Progress
	if len(line) > maxProgressLine || json.Unmarshal(line, &p) != nil || p.Phase == "" || len(p.Phase) > maxProgressPhase {
		return nil
	}
	for _, n := range []int64{p.ItemsDone, p.ItemsTotal, p.BytesDone, p.BytesTotal} {
		if n < 0 || n > maxProgressCount {
			return nil
		}
	}
	for _, seconds := range []float64{p.Seconds, p.WaitingSeconds} {
		if seconds < 0 || seconds > maxProgressSeconds {
			return nil
		}
	}
	if p.Phase == contract.PhaseSettling {
		p.Seconds = 0 // the seconds are not used, and would make each answer differ
	}
	p.Message = status.Printable(p.Message, maxProgressMessage)
	return &p
}
