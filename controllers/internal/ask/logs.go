package ask

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
)

const (
	// ProgressInterval is how often the progress of a running drain is read. Each time costs a read
	// and a write of the status, which together make status change about every two seconds.
	ProgressInterval = 1500 * time.Millisecond
	// progressTimeout bounds one read, because the node of a drainer may be dead.
	progressTimeout = 2 * time.Second
	// progressTargets bounds how many drainers are asked. Status shows no progress of others.
	progressTargets = 4096
)

// LogReader returns the report at the end of the log of a pod's container, or nil.
type LogReader[T any] func(ctx context.Context, namespace, pod, container string) (*T, error)

// Logs asks how far drainers are, by their logs. A nil Logs asks none.
type Logs[T comparable] struct {
	sampler   *sampler[logTarget, T]
	container func(*corev1.Pod) string
}

// logTarget is the container whose log is read.
type logTarget struct {
	namespace, name, container string
	uid                        types.UID
}

// LogOptions are those of Logs.
type LogOptions[T comparable] struct {
	Read LogReader[T]
	// Container is the name of the drainer's container.
	Container func(*corev1.Pod) string
	// Changed is called for each owner whose drainers have made progress; it must not block.
	Changed func(owner types.NamespacedName)
	// Soon, SoonInterval and SoonFor are as in samplerOptions.
	Soon                  func(T) bool
	SoonInterval, SoonFor time.Duration
}

// NewLogs returns Logs that are read once they are started.
func NewLogs[T comparable](o LogOptions[T]) *Logs[T] {
	return &Logs[T]{container: o.Container, sampler: newSampler(samplerOptions[logTarget, T]{
		Ask: func(ctx context.Context, at logTarget) (known T, err error) {
			says, err := o.Read(ctx, at.namespace, at.name, at.container)
			return ptr.Deref(says, known), err
		},
		Changed: o.Changed,
		Timeout: progressTimeout, Interval: ProgressInterval,
		Soon: o.Soon, SoonInterval: o.SoonInterval, SoonFor: o.SoonFor,
		Workers: 16, PerCluster: 4, Targets: progressTargets,
		Clock: clock.RealClock{},
	})}
}

// Start asks until the context ends.
func (l *Logs[T]) Start(ctx context.Context) error { return l.sampler.Start(ctx) }

// Want replaces the pods of an owner that are asked from now on, and returns the known reports, by the pod's
// UID.
func (l *Logs[T]) Want(owner types.NamespacedName, pods ...*corev1.Pod) map[types.UID]T {
	if l == nil {
		return nil
	}
	targets := make([]logTarget, 0, len(pods))
	for _, pod := range pods {
		targets = append(targets, logTarget{pod.Namespace, pod.Name, l.container(pod), pod.UID})
	}
	var nothing T
	known := map[types.UID]T{}
	for target, s := range l.sampler.Want(owner, targets...) {
		if s.Value != nothing {
			known[target.uid] = s.Value
		}
	}
	return known
}

// Forget asks no drainer of the owner any more.
func (l *Logs[T]) Forget(owner types.NamespacedName) { l.Want(owner) }

// Bounds of a log, because its content can't be trusted.
const (
	maxLogLines = 5
	maxLog      = 8 << 10
	maxLine     = 4 << 10
)

// ReadLogs reads the last line in the end of a log that parse accepts, through the API server, so a
// drainer needs no credentials and no port.
func ReadLogs[T any](clients kubernetes.Interface, parse func(line []byte) *T) LogReader[T] {
	return func(ctx context.Context, namespace, pod, container string) (*T, error) {
		stream, err := clients.CoreV1().Pods(namespace).GetLogs(pod, &corev1.PodLogOptions{
			Container:  container,
			TailLines:  ptr.To[int64](maxLogLines),
			LimitBytes: ptr.To[int64](maxLog),
		}).Stream(ctx)
		if err != nil {
			return nil, fmt.Errorf("read the log of pod %s: %w", pod, err)
		}
		defer func() { _ = stream.Close() }()
		log, err := io.ReadAll(io.LimitReader(stream, maxLog))
		if err != nil {
			return nil, fmt.Errorf("read the log of pod %s: %w", pod, err)
		}
		return lastLine(log, parse), nil
	}
}

// lastLine returns the value of the last line that parse accepts, or nil. Other lines may follow it.
func lastLine[T any](log []byte, parse func(line []byte) *T) *T {
	lines := bytes.Split(log, []byte("\n"))
	for i := len(lines) - 1; i >= 0; i-- {
		if len(lines[i]) > maxLine {
			continue
		}
		if says := parse(lines[i]); says != nil {
			return says
		}
	}
	return nil
}
