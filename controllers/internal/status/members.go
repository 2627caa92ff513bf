package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/drainer/contract"
)

const (
	// slowAfter is how long a member may take to become ready if no cause is reported.
	slowAfter = 10 * time.Minute
	// resetAfter is how long a container has to run before the kubelet resets its back-off.
	resetAfter = 10 * time.Minute
	// restartsOfALoop is how many restarts make a crash loop: one crash is no loop.
	restartsOfALoop = 2
	// maxWords bounds a quotation of a container's output, in bytes.
	maxWords = 512
)

// trouble is a reason and a message for the condition Degraded, often in the words of the
// container, the kubelet or the scheduler.
type trouble struct{ reason, message string }

// troubled returns the trouble of the first member that has one, and how many members have one.
func troubled(in *Input, w *waits) (first *trouble, n int) {
	for _, pod := range byOrdinal(in) {
		t := podTrouble(in.Cluster, pod, w)
		if t == nil {
			continue
		}
		if n++; first == nil {
			first = t
		}
	}
	return first, n
}

func podTrouble(cluster *cachev1alpha1.Memcached, pod *corev1.Pod, w *waits) *trouble {
	switch {
	case pod.DeletionTimestamp != nil:
		return lingers(pod, pod.DeletionTimestamp.Time, cachev1alpha1.ReasonMemberDoesNotEnd, w)
	case pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded:
		return nil // another pod takes its place
	}
	for _, c := range pod.Status.Conditions {
		if c.Type != corev1.PodScheduled || c.Status != corev1.ConditionFalse {
			continue
		}
		if since := later(c.LastTransitionTime.Time, pod.CreationTimestamp.Time); w.past(since.Add(claims.StuckAfter)) {
			return &trouble{cachev1alpha1.ReasonUnschedulable, fmt.Sprintf("pod %s has no node since %s: %s", pod.Name, clock(since), c.Message)}
		}
		return nil
	}
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if t := containerTrouble(cluster, &c, w); t != nil {
			t.message = fmt.Sprintf("pod %s, container %s: %s", pod.Name, c.Name, t.message)
			return t
		}
	}
	return nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func clock(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// lingers returns the trouble if the kubelet does not end the pod, usually because its node is
// down.
func lingers(pod *corev1.Pod, ends time.Time, reason string, w *waits) *trouble {
	if !w.past(ends.Add(claims.StuckAfter)) {
		return nil
	}
	return &trouble{reason, claims.DoesNotEnd(pod, ends)}
}

// DrainerGrace is the grace period of a drainer's pod by the spec, in seconds; 0 if it has none.
func DrainerGrace(c *cachev1alpha1.Memcached) int64 {
	return ptr.Deref(c.Spec.Drain.PodTemplate.TerminationGracePeriodSeconds, 0)
}

// containerTrouble tells why a container doesn't start, or doesn't keep running.
func containerTrouble(cluster *cachev1alpha1.Memcached, c *corev1.ContainerStatus, w *waits) *trouble {
	if waiting := c.State.Waiting; waiting != nil {
		reason := waitingReason(waiting.Reason)
		switch {
		case reason == "" && c.RestartCount < restartsOfALoop:
			return nil
		case reason == cachev1alpha1.ReasonCrashLoop || reason == "":
			return looping(cluster, c, c.LastTerminationState.Terminated, reason != "")
		}
		return &trouble{reason, fmt.Sprintf("%s: %s%s", waiting.Reason, waiting.Message, userFor(waiting.Message))}
	}
	if ended := c.State.Terminated; ended != nil {
		return looping(cluster, c, ended, false)
	}
	last := c.LastTerminationState.Terminated
	if running := c.State.Running; running != nil && last != nil {
		// The container has recovered when it has run a minute longer than last time.
		if back := running.StartedAt.Add(min(ran(last)+claims.StuckAfter, resetAfter)); loops(c, last) && !w.past(back) {
			return looping(cluster, c, last, false)
		}
	}
	return nil
}

// userFor says how a pod gets a numeric user, if the kubelet's message asks for one.
func userFor(message string) string {
	if strings.Contains(message, "non-numeric user") {
		return "; set spec.podTemplate.securityContext.runAsUser, or let the operator set it: --assigned-users=false"
	}
	return ""
}

// waitingReason maps the kubelet's word to a reason; empty for a container that is being
// created.
func waitingReason(word string) string {
	switch word {
	case "", "ContainerCreating", "PodInitializing":
		return ""
	case "CrashLoopBackOff":
		return cachev1alpha1.ReasonCrashLoop
	case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError",
		"RegistryUnavailable", "SignatureValidationFailed":
		return cachev1alpha1.ReasonImageUnavailable
	}
	return cachev1alpha1.ReasonContainerNotCreated
}

// looping is the trouble of a container whose last run ended with this state. certain: the kubelet
// says that it is in a crash loop.
func looping(cluster *cachev1alpha1.Memcached, c *corev1.ContainerStatus, ended *corev1.ContainerStateTerminated, certain bool) *trouble {
	if !certain && !loops(c, ended) {
		return nil
	}
	return &trouble{cachev1alpha1.ReasonCrashLoop, "it ends again and again: " + exitAndOutput(ended) + settingFor(cluster, c.Name, ended)}
}

// nodesLimits has memcached's words if a node can't give the resources of the spec, and the setting to
// change.
var nodesLimits = []struct{ words, setting string }{
	{"failed to set rlimit for open files", "lower spec.maxConnections, or raise the node's limit of open files"},
	{"Can't create thread", "lower spec.threads, or raise the node's limit of processes"},
}

// settingFor says which setting to change; empty if it is not known, and for a container that is
// not ours.
func settingFor(cluster *cachev1alpha1.Memcached, container string, ended *corev1.ContainerStateTerminated) string {
	if ended == nil {
		return ""
	}
	if ended.Reason == claims.OOMKilled {
		switch spec := &cluster.Spec; {
		case container == build.ContainerMemcached:
			return claims.MoreMemory(spec.Resources.Limits, "spec.resources") + ", or lower spec.memory"
		case container == build.ContainerInstall:
			return claims.MoreMemory(spec.Resources.Limits, "spec.resources")
		case container == build.ContainerRouter && spec.Router != nil:
			return claims.MoreMemory(spec.Router.Resources.Limits, "spec.router.resources")
		}
	}
	if container != build.ContainerMemcached {
		return ""
	}
	for _, limit := range nodesLimits {
		if strings.Contains(ended.Message, limit.words) {
			return "; " + limit.setting
		}
	}
	return ""
}

// loops tells whether the container was restarted often, and ended soon after its start.
func loops(c *corev1.ContainerStatus, ended *corev1.ContainerStateTerminated) bool {
	return ended != nil && c.RestartCount >= restartsOfALoop && ended.ExitCode != 0 && ran(ended) < resetAfter
}

func ran(t *corev1.ContainerStateTerminated) time.Duration { return t.FinishedAt.Sub(t.StartedAt.Time) }

// exitAndOutput returns the exit code of a container that ended, and the end of its output.
func exitAndOutput(ended *corev1.ContainerStateTerminated) string {
	if ended == nil {
		return "the kubelet does not say why"
	}
	words := fmt.Sprintf("exit code %d", ended.ExitCode)
	if ended.Reason != "" && ended.Reason != "Error" && ended.Reason != "Completed" {
		words = fmt.Sprintf("%s, %s", ended.Reason, words)
	}
	if said := lastOutput(ended.Message); said != "" {
		return words + ": " + said
	}
	return words + "; see kubectl logs --previous"
}

// lastOutput is the end of the container's last output, on one line.
func lastOutput(message string) string {
	if why := contract.ParseRefusal(message); why != nil {
		return claims.Bound(why.Message, maxWords)
	}
	if strings.HasPrefix(message, "{") {
		return "" // a cold start, which status.advice tells
	}
	lines := strings.FieldsFunc(message, func(r rune) bool { return r == '\n' || r == '\r' })
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return claims.Tail(strings.Join(lines[max(0, len(lines)-3):], "; "), maxWords)
}

// slow returns the trouble of a member that has not been ready for long, without a reported cause.
func slow(in *Input, w *waits) *trouble {
	for _, pod := range byOrdinal(in) {
		ordinal, _ := build.PodOrdinal(in.Cluster.Name, pod.Name)
		if !lives(pod) || claims.PodReady(pod) || in.Plan.Aside && in.Plan.Member == ordinal {
			continue
		}
		since := pod.CreationTimestamp.Time
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodReady {
				since = later(since, c.LastTransitionTime.Time)
			}
		}
		if w.past(since.Add(slowAfter)) {
			return &trouble{cachev1alpha1.ReasonMembersNotReady, fmt.Sprintf(
				"pod %s has not been ready since %s, on node %q: see kubectl describe pod", pod.Name, clock(since), pod.Spec.NodeName)}
		}
	}
	return nil
}

// notReady names the wanted members whose pods exist and are not ready. An ending pod of a
// Deployment doesn't count, because a pod with another name replaces it.
func notReady(in *Input) string {
	var names []string
	for _, pod := range byOrdinal(in) {
		wanted := lives(pod)
		if in.Cluster.Spec.Storage != nil {
			ordinal, _ := build.PodOrdinal(in.Cluster.Name, pod.Name)
			wanted = ordinal < *in.Cluster.Spec.Size
		}
		if wanted && (!lives(pod) || !claims.PodReady(pod)) {
			names = append(names, pod.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "; not ready: " + someOf(names)
}

// lives tells whether the pod counts as a member.
func lives(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded
}

// byOrdinal returns the members' pods in their order.
func byOrdinal(in *Input) []*corev1.Pod {
	pods := make([]*corev1.Pod, len(in.Pods))
	for i := range in.Pods {
		pods[i] = &in.Pods[i]
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		i, _ := build.PodOrdinal(in.Cluster.Name, a.Name)
		j, _ := build.PodOrdinal(in.Cluster.Name, b.Name)
		return cmp.Or(cmp.Compare(i, j), cmp.Compare(a.Name, b.Name))
	})
	return pods
}

// refusals has the supervisor's reasons that status reports, with their meaning and what to do.
var refusals = map[string]struct{ what, advice string }{
	contract.ReasonSecretInvalid:  {"does not start", "see the Secrets of spec.tls and spec.auth"},
	contract.ReasonVersionTooOld:  {"does not start", "let spec.image have memcached " + contract.OldestMemcached + " or later"},
	contract.ReasonVolumeFull:     {"has ended, its volume is full", "raise storage.size, or see what else is on the volume"},
	contract.ReasonVolumeReadOnly: {"has ended, its volume is read-only", "see why, on its node"},
	contract.ReasonVolumeFailed:   {"has ended, its volume fails", "see the disk"},
}

// refused returns a member whose supervisor does not start memcached or could not save, and why.
func refused(in *Input) (pod string, why *contract.Refusal) {
	for i := range in.Pods {
		for _, c := range in.Pods[i].Status.ContainerStatuses {
			ended := c.State.Terminated
			if ended == nil && c.State.Waiting != nil {
				ended = c.LastTerminationState.Terminated
			}
			if ended == nil || c.Name != build.ContainerMemcached {
				continue
			}
			if why := contract.ParseRefusal(ended.Message); why != nil && refusals[why.Reason].what != "" {
				return in.Pods[i].Name, why
			}
		}
	}
	return "", nil
}
