package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"example.com/memcached-operator/cmd/kubectl-mc/internal/kube"
)

const (
	// looksEvery is how often logs -f looks for new pods and events.
	looksEvery = 2 * time.Second
	// mergesFor is how long lines wait for earlier ones of other logs.
	mergesFor = 500 * time.Millisecond
)

// follower shows the lines of an owner, from all of its logs.
type follower struct {
	*command
	*kube.Session
	owner client.Object

	mu    sync.Mutex
	lines []kube.Line
	// last is the time of the last line of a log.
	last map[string]time.Time
	// follows has the containers whose logs are followed, and ended the restarts that have ended: their logs
	// go no further.
	follows map[string]bool
	ended   map[string]bool
	warned  map[string]bool
	events  map[kube.Line]bool
	began   time.Time
}

// follow shows the lines that come after shown, until a person interrupts it.
func (c *command) follow(ctx context.Context, s *kube.Session, owner client.Object, shown []kube.Line, began time.Time) error {
	f := &follower{
		command: c, Session: s, owner: owner, began: began,
		last: map[string]time.Time{}, follows: map[string]bool{}, ended: map[string]bool{}, warned: map[string]bool{}, events: map[kube.Line]bool{},
	}
	for _, l := range shown {
		f.last[l.From] = l.At
		if l.Event {
			f.events[l] = true
		}
	}
	look, flush := time.NewTicker(looksEvery), time.NewTicker(mergesFor)
	defer look.Stop()
	defer flush.Stop()
	f.look(ctx)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
			f.look(ctx)
		case <-flush.C:
			if err := f.flush(); err != nil {
				return err
			}
		}
	}
}

// flush shows the lines that have come, by time.
func (f *follower) flush() error {
	f.mu.Lock()
	lines := f.lines
	f.lines = nil
	f.mu.Unlock()
	slices.SortStableFunc(lines, byTime)
	return f.printLogs(lines)
}

// add adds a line, unless it was shown.
func (f *follower) add(l kube.Line) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if l.At.After(f.last[l.From]) {
		f.last[l.From] = l.At
		f.lines = append(f.lines, l)
	}
}

// warn prints each trouble once.
func (f *follower) warn(err error) {
	if err == nil || apierrors.IsBadRequest(err) { // a container that has not started has no log yet
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.warned[err.Error()] {
		f.warned[err.Error()] = true
		fmt.Fprintln(f.io.ErrOut, "warning:", err)
	}
}

// look finds new events, and containers whose logs are not followed.
func (f *follower) look(ctx context.Context) {
	events, err := f.Events(ctx, f.owner.GetNamespace(), kube.About(f.owner), f.began)
	f.warnUnlessEnding(ctx, err)
	f.mu.Lock()
	for _, e := range events {
		if !f.events[e] {
			f.events[e] = true
			f.lines = append(f.lines, e)
		}
	}
	f.mu.Unlock()
	pods, err := f.OwnPods(ctx, f.owner)
	f.warnUnlessEnding(ctx, err)
	for i := range pods {
		f.pod(ctx, &pods[i], func(kube.Line) bool { return true })
	}
	managers, err := f.ManagerPods(ctx, f.owner)
	if !apierrors.IsForbidden(err) {
		f.warnUnlessEnding(ctx, err)
	}
	for i := range managers {
		f.pod(ctx, &managers[i], aboutOwner(f.owner))
	}
}

func (f *follower) warnUnlessEnding(ctx context.Context, err error) {
	if ctx.Err() == nil {
		f.warn(err)
	}
}

// pod follows the logs of the pod's containers.
func (f *follower) pod(ctx context.Context, pod *corev1.Pod, wanted func(kube.Line) bool) {
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range list {
			status := &list[i]
			key := fmt.Sprintf("%s/%s/%d", pod.UID, status.Name, status.RestartCount)
			f.mu.Lock()
			skip := f.follows[key] || f.ended[key] || status.State.Waiting != nil && status.LastTerminationState.Terminated == nil
			f.follows[key] = !skip || f.follows[key]
			since, known := f.last[kube.From(pod, status.Name)]
			f.mu.Unlock()
			if skip {
				continue
			}
			if !known {
				since = f.began
			}
			go func() {
				err := f.Follow(ctx, pod, status.Name, since, func(l kube.Line) {
					if wanted(l) {
						f.add(l)
					}
				})
				f.mu.Lock()
				f.follows[key] = false
				f.ended[key] = err == nil && status.State.Terminated != nil || apierrors.IsForbidden(err)
				f.mu.Unlock()
				if !apierrors.IsForbidden(err) || pod.Namespace == f.owner.GetNamespace() {
					f.warnUnlessEnding(ctx, err)
				}
			}()
		}
	}
}

// aboutOwner tells whether a line of the operator is about the owner.
func aboutOwner(owner client.Object) func(kube.Line) bool {
	return func(l kube.Line) bool {
		return strings.Contains(l.Text, `"`+owner.GetName()+`"`) && strings.Contains(l.Text, `"`+owner.GetNamespace()+`"`)
	}
}

func byTime(a, b kube.Line) int { return a.At.Compare(b.At) }
