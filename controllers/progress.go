package controllers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/controllers/internal/sampler"
	"example.com/memcached-operator/drainer/contract"
)

const (
	// progressInterval is how often the progress of a running drain is read: it is
	// the one thing that no watch can tell. Each time costs a read, and a write of
	// the status. Who watches sees it move every two seconds: some of that goes to
	// the read and the write.
	progressInterval = 1500 * time.Millisecond
	// progressTimeout bounds one read: the node of a drainer may be dead.
	progressTimeout = 2 * time.Second
	// progressTargets bounds how many drainers are asked: of any more, status shows
	// no progress.
	progressTargets = 4096
)

// logTarget is whose log is read.
type logTarget struct {
	namespace, name string
	uid             types.UID
}

type progressSampler = sampler.Sampler[logTarget, contract.Progress]

// newProgressSampler reads the logs of drainers beside the reconciles.
func newProgressSampler(read ProgressReader, changed func(client.ObjectKey)) *progressSampler {
	return sampler.New(sampler.Options[logTarget, contract.Progress]{
		Ask: func(ctx context.Context, pod logTarget) (contract.Progress, error) {
			progress, err := read(ctx, pod.namespace, pod.name)
			return ptr.Deref(progress, contract.Progress{}), err
		},
		Changed: changed,
		Timeout: progressTimeout, Interval: progressInterval,
		Workers: 16, PerCluster: 4, Targets: progressTargets,
		Clock: clock.RealClock{},
	})
}

// observeProgress has what is known of the drainers' progress, which is nice to have:
// where it can't be read, the drain goes on and shows none.
func (r *MemcachedReconciler) observeProgress(key client.ObjectKey, o *observed) {
	claims := map[logTarget]types.UID{}
	var pods []logTarget
	for _, job := range o.activeJobs() {
		for i := range o.drainerPods {
			if pod := &o.drainerPods[i]; metav1.IsControlledBy(pod, job) && drainerRuns(pod) {
				target := logTarget{pod.Namespace, pod.Name, pod.UID}
				pods = append(pods, target)
				claims[target] = claimUID(job)
			}
		}
	}
	for pod, sample := range r.progress.Want(key, pods...) {
		if sample.Value != (contract.Progress{}) {
			o.progress[claims[pod]] = sample.Value
		}
	}
}

// Bounds of what is read of a log: anybody may have written it.
const (
	maxProgressLines = 5
	maxProgressLog   = 8 << 10
	maxProgressLine  = 4 << 10
	// maxProgressCount is more than a volume holds of items or bytes, and so little
	// that the sum for all volumes of a cluster, in percent, is a number still.
	maxProgressCount   = 1 << 46
	maxProgressSeconds = 1e9
	maxProgressMessage = 1 << 10
	maxProgressPhase   = 64
)

// ProgressFromLogs reads a drainer's progress from the end of its log, through
// the API server, so that the drainer needs no credentials and no port.
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

// lastProgress returns the last line that is a progress line, or nil: messages
// for people may follow it.
func lastProgress(log []byte) *contract.Progress {
	lines := bytes.Split(log, []byte("\n"))
	for i := len(lines) - 1; i >= 0; i-- {
		if p := progressOf(lines[i]); p != nil {
			return p
		}
	}
	return nil
}

// progressOf is what the line says, or nil where it is no progress line.
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
	p.Message = printable(p.Message, maxProgressMessage)
	return &p
}

// printable is the beginning of the text, of at most that many bytes, on one line.
func printable(text string, limit int) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "")
	}
	return text
}

// activeJobs are the drains and placements that have not ended.
func (o *observed) activeJobs() []*batchv1.Job {
	var active []*batchv1.Job
	for _, jobs := range [][]batchv1.Job{o.jobs, o.placements} {
		for i := range jobs {
			if jobState(&jobs[i]) == plan.JobActive {
				active = append(active, &jobs[i])
			}
		}
	}
	return active
}
