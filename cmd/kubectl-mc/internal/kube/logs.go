package kube

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
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
	// Event: the line is an event.
	Event bool
	// Program is the operator's own container that wrote the line: memcached, drainer, router, install, manager;
	// empty for other containers. For an event it is manager, or empty if the event is not the operator's.
	Program string
	// Cut: the line stands for older lines of a long log.
	Cut bool
}

// manager is the operator's own container, and programs are those that it makes.
const manager = "manager"

var programs = map[string]bool{"memcached": true, "drainer": true, "router": true, "install": true}

// program is the operator's program that runs in the container; empty for a container of others, whatever its name.
func program(pod *corev1.Pod, container string) string {
	if pod.Labels[cachev1alpha1.LabelManagedBy] == cachev1alpha1.ManagedBy && programs[container] || container == manager && isManager(pod) {
		return container
	}
	return ""
}

// isManager tells whether the pod is one of the operator's own. A chart may give it another name.
func isManager(pod *corev1.Pod) bool {
	return pod.Labels[cachev1alpha1.LabelManagedBy] != cachev1alpha1.ManagedBy && slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool {
		return c.Name == manager && slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "OPERATOR_IMAGE" })
	})
}

const (
	// mostLog bounds the kept part of a container's log, in bytes.
	mostLog = 4 << 20
	// longest is how much is shown of a line, in bytes.
	longest = 64 << 10
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
	err := s.List(ctx, &list, client.InNamespace(namespace))
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return !isManager(&p) }), err
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

// log reads the container's whole log since then, because the node can give the oldest bytes, but not the
// newest.
func (s *Session) log(ctx context.Context, pod *corev1.Pod, container string, since time.Time) ([]Line, error) {
	n := newest{most: mostLog}
	err := s.read(ctx, pod, container, since, &corev1.PodLogOptions{}, n.add)
	return n.all(), err
}

// newest keeps the newest lines of a log, of that many bytes at most.
type newest struct {
	most, size, leftOut int
	lines               []Line
}

func (n *newest) add(l Line) {
	n.lines, n.size = append(n.lines, l), n.size+len(l.Text)
	for ; n.size > n.most && len(n.lines) > 1; n.leftOut++ {
		n.size -= len(n.lines[0].Text)
		n.lines = n.lines[1:]
	}
}

// all are the lines. The first one says if there were older ones.
func (n *newest) all() []Line {
	if n.leftOut == 0 {
		return n.lines
	}
	cut := n.lines[0]
	cut.Text, cut.Cut = fmt.Sprintf("--- %d older lines of this log are left out ---", n.leftOut), true
	return append([]Line{cut}, n.lines...)
}

// Follow gives each line of the log since then to show, until the container or ctx ends.
func (s *Session) Follow(ctx context.Context, pod *corev1.Pod, container string, since time.Time, show func(Line)) error {
	return s.read(ctx, pod, container, since, &corev1.PodLogOptions{Follow: true}, show)
}

// From returns the place that lines of the log are from.
func From(pod *corev1.Pod, container string) string { return pod.Name + "/" + container }

func (s *Session) read(ctx context.Context, pod *corev1.Pod, container string, since time.Time, options *corev1.PodLogOptions, each func(Line)) error {
	options.Container, options.Timestamps, options.SinceTime = container, true, &metav1.Time{Time: since}
	stream, err := s.Clients.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, options).Stream(ctx)
	if err != nil {
		return err
	}
	defer stream.Close()
	in := bufio.NewReaderSize(stream, longest)
	for within := false; ; {
		text, more, err := in.ReadLine() // a line's part that is too long is left out
		if stamp, rest, found := strings.Cut(string(text), " "); found && !within {
			if at, err := time.Parse(time.RFC3339Nano, stamp); err == nil {
				each(Line{At: at, From: From(pod, container), Text: rest, Program: program(pod, container)})
			}
		}
		if within = more; err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
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
					line.Program = manager
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
