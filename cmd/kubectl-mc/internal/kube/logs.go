package kube

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// Line is a line of a log, or an event.
type Line struct {
	At time.Time
	// From is the pod and the container, or the object of an event.
	From, Text string
	// Event: it is an event.
	Event bool
	// Program is the operator's own container that wrote the line: memcached, drainer, router, install, manager;
	// empty for other containers. For an event it is manager, or empty if the event is not the operator's.
	Program string
	// Cut: it stands for older lines of a long log.
	Cut bool
}

// programs are the containers that the operator makes, and its own.
var programs = map[string]bool{"memcached": true, "drainer": true, "router": true, "install": true, "manager": true}

const (
	// mostLog bounds what is kept of a container's log, in bytes.
	mostLog = 4 << 20
	// longestLine bounds a line, in bytes. The kubelet cuts lines at 16 KiB.
	longestLine = 64 << 10
	// page is how many objects are read at once.
	page = 500
)

// OwnPods returns the pods that belong to an owner: members, routers, drains and moves, or the drains of a
// StatefulSetDrain.
func (s *Session) OwnPods(ctx context.Context, owner client.Object) ([]corev1.Pod, error) {
	labels := client.MatchingLabels{cachev1alpha1.LabelName: cachev1alpha1.AppName, cachev1alpha1.LabelInstance: owner.GetName()}
	if _, is := owner.(*cachev1alpha1.StatefulSetDrain); is {
		labels = client.MatchingLabels{cachev1alpha1.LabelStatefulSetDrain: owner.GetName()}
	}
	var list corev1.PodList
	err := s.List(ctx, &list, client.InNamespace(owner.GetNamespace()), labels)
	return list.Items, err
}

// ManagerPods returns the pods of the operator that manages the object, if it says which.
func (s *Session) ManagerPods(ctx context.Context, owner client.Object) ([]corev1.Pod, error) {
	namespace, _, found := strings.Cut(owner.GetAnnotations()[cachev1alpha1.AnnotationOperator], "/")
	if !found {
		return nil, nil
	}
	var list corev1.PodList
	err := s.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{cachev1alpha1.LabelName: cachev1alpha1.ManagedBy})
	return list.Items, err
}

// Logs returns the lines of all containers of the pod since then. A log that can't be read is reported to trouble.
func (s *Session) Logs(ctx context.Context, pod *corev1.Pod, since time.Time, trouble func(error)) (lines []Line) {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, c := range list {
			more, err := s.log(ctx, pod, c.Name, since)
			if err != nil {
				trouble(fmt.Errorf("the log of %s/%s: %w", pod.Name, c.Name, err))
			}
			lines = append(lines, more...)
		}
	}
	return lines
}

// log reads all that the node has since then: it can give the oldest bytes, but not the newest.
func (s *Session) log(ctx context.Context, pod *corev1.Pod, container string, since time.Time) ([]Line, error) {
	options := &corev1.PodLogOptions{Container: container, Timestamps: true, SinceTime: &metav1.Time{Time: since}}
	stream, err := s.Clients.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, options).Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	return newest(stream, pod.Name+"/"+container, container, mostLog)
}

// newest returns the lines of a log, of that many bytes at most. If there are more, the oldest are left out, and a line says so.
func newest(log io.Reader, from, container string, most int) (lines []Line, err error) {
	size, leftOut := 0, 0
	for in := bufio.NewReaderSize(log, longestLine); err == nil; {
		var text []byte
		if text, err = in.ReadSlice('\n'); errors.Is(err, bufio.ErrBufferFull) {
			err = nil // the rest of the line has no time, and is left out
		}
		line, is := lineOf(string(text), from, container)
		if !is {
			continue
		}
		lines, size = append(lines, line), size+len(line.Text)
		for ; size > most && len(lines) > 1; leftOut++ {
			lines, size = lines[1:], size-len(lines[0].Text)
		}
	}
	if leftOut > 0 {
		cut := lines[0]
		cut.Text, cut.Cut = fmt.Sprintf("--- %d older lines of this log are left out ---", leftOut), true
		lines = append([]Line{cut}, lines...)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return lines, err
}

// lineOf parses a line that begins with its time.
func lineOf(text, from, container string) (line Line, is bool) {
	stamp, rest, found := strings.Cut(strings.TrimRight(text, "\r\n"), " ")
	at, err := time.Parse(time.RFC3339Nano, stamp)
	if !found || err != nil {
		return line, false
	}
	line = Line{At: at, From: from, Text: rest}
	if programs[container] {
		line.Program = container
	}
	return line, true
}

// Events returns the events about the objects with these names, since then.
func (s *Session) Events(ctx context.Context, namespace string, about func(name string) bool, since time.Time) (lines []Line, err error) {
	more := ""
	for {
		var list eventsv1.EventList
		if err := s.List(ctx, &list, client.InNamespace(namespace), client.Limit(page), client.Continue(more)); err != nil {
			return lines, err
		}
		for i := range list.Items {
			e := &list.Items[i]
			at := e.EventTime.Time
			for _, later := range []time.Time{e.DeprecatedLastTimestamp.Time, e.CreationTimestamp.Time} {
				if at.IsZero() {
					at = later
				}
			}
			if e.Series != nil {
				at = e.Series.LastObservedTime.Time
			}
			if about(e.Regarding.Name) && !at.Before(since) {
				line := Line{At: at, From: e.Regarding.Kind + "/" + e.Regarding.Name, Text: strings.TrimSpace(e.Reason + " " + e.Note), Event: true}
				if e.ReportingController == cachev1alpha1.ManagedBy {
					line.Program = "manager"
				}
				lines = append(lines, line)
			}
		}
		if more = list.Continue; more == "" {
			return lines, nil
		}
	}
}

// About tells whether an object of this name belongs to the owner, by its name: its own, those of its members,
// claims, Jobs and routers.
func About(owner client.Object) func(name string) bool {
	own := owner.GetName()
	target := own
	if d, is := owner.(*cachev1alpha1.StatefulSetDrain); is {
		target = d.Spec.StatefulSetName
	}
	return func(name string) bool {
		return name == own || name == target || strings.HasPrefix(name, target+"-") || strings.Contains(name, "-"+target+"-")
	}
}
