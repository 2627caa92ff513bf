package model

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/memcached-operator/controllers/internal/stsdrain"
	"example.com/memcached-operator/controllers/internal/trim"
)

// event is something that may happen in a state.
type event struct {
	what string
	do   func(*state)
}

// mounted, on a pod that has started, has the names of the volumes that it uses.
const mounted = "model/mounted"

func volumesOf(pod *corev1.Pod) []string {
	if m := pod.Annotations[mounted]; m != "" {
		return strings.Split(m, ",")
	}
	return nil
}

// claimsOf are the names of the claims that a pod mounts.
func claimsOf(pod *corev1.Pod) (all []string) {
	for i := range pod.Spec.Volumes {
		if c := pod.Spec.Volumes[i].PersistentVolumeClaim; c != nil {
			all = append(all, c.ClaimName)
		}
	}
	return all
}

func (s *state) member(i int32) *corev1.Pod {
	return find[*corev1.Pod](s, "pod", stsdrain.PodName(name, i))
}

func isMember(pod *corev1.Pod) (ordinal int32, is bool) { return stsdrain.PodOrdinal(name, pod.Name) }

func running(pod *corev1.Pod) bool { return pod != nil && pod.Status.Phase == corev1.PodRunning }

// kubernetes has the events of controllers and kubelets. All of them happen sooner or later, unless there is a fault.
func (m *model) kubernetes(s *state) (all []event) {
	all = m.setEvents(s)
	for _, pod := range s.pods() {
		all = append(all, m.podEvents(s, pod)...)
	}
	for _, c := range s.claims() {
		all = append(all, m.claimEvents(s, c)...)
	}
	for _, v := range of[*corev1.PersistentVolume](s, "volume") {
		if ref := v.Spec.ClaimRef; ref.UID != "" && s.claimWith(ref.UID) == nil {
			all = append(all, event{"volume " + v.Name + " is deleted: its claim is gone", func(n *state) { n.drop(v) }})
		}
	}
	for _, job := range s.jobs() {
		all = append(all, m.jobEvents(s, job)...)
	}
	if s.ending() {
		rest := slices.DeleteFunc(slices.Sorted(maps.Keys(s.objects)), func(key string) bool {
			return s.objects[key].GetDeletionTimestamp() != nil || s.objects[key].GetNamespace() == ""
		})
		if len(rest) > 0 { // the first or the last one: not all orders
			for _, key := range slices.Compact([]string{rest[0], rest[len(rest)-1]}) {
				all = append(all, event{key + " goes with the namespace", func(n *state) { n.remove(s.objects[key]) }})
			}
		}
	}
	if len(s.obstructed) > 0 {
		all = append(all, event{"refused steps are due again", func(n *state) { n.obstructed = nil }})
	}
	return all
}

// setEvents are those of the StatefulSet's controller. The controller watches no claims, so it only acts when
// its StatefulSet or one of its pods has changed.
func (m *model) setEvents(s *state) (all []event) {
	set := s.set()
	if set == nil || !s.awake || s.ending() {
		return nil
	}
	for i := range *set.Spec.Replicas {
		pod := s.member(i)
		if pod == nil && !m.waits(s, i) {
			all = append(all, event{fmt.Sprintf("the StatefulSet's controller makes member %d", i), func(n *state) { m.makeMember(n, i) }})
		}
		if pod != nil && pod.Status.Phase == corev1.PodPending && m.lacks(s, i) && !m.waits(s, i) {
			all = append(all, event{fmt.Sprintf("the StatefulSet's controller makes the claims of member %d", i), func(n *state) { m.makeClaims(n, i) }})
		}
		if m.ordered && !running(pod) {
			return all
		}
	}
	for i := mostMembers - 1; i >= *set.Spec.Replicas; i-- {
		if pod := s.member(i); pod != nil && pod.DeletionTimestamp == nil {
			return append(all, event{fmt.Sprintf("the StatefulSet's controller ends member %d", i), func(n *state) {
				for _, t := range m.templates {
					if c := n.claim(stsdrain.ClaimNameOf(name, t, i)); c != nil && m.whenScaled {
						change(n, c, func(c *corev1.PersistentVolumeClaim) {
							c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}}
						})
					}
				}
				n.remove(pod)
			}})
		}
	}
	return all
}

// waits tells whether the member can't be made, because a claim of it is being deleted or is about to be.
func (m *model) waits(s *state, i int32) bool {
	return slices.ContainsFunc(m.templates, func(t string) bool {
		c := s.claim(stsdrain.ClaimNameOf(name, t, i))
		return c != nil && (c.DeletionTimestamp != nil || m.stale(s, c))
	})
}

// lacks tells whether a claim of the member doesn't exist.
func (m *model) lacks(s *state, i int32) bool {
	return slices.ContainsFunc(m.templates, func(t string) bool { return s.claim(stsdrain.ClaimNameOf(name, t, i)) == nil })
}

// stale tells whether the claim belongs to a pod that is gone.
func (m *model) stale(s *state, c *corev1.PersistentVolumeClaim) bool {
	return slices.ContainsFunc(c.OwnerReferences, func(ref metav1.OwnerReference) bool {
		return ref.Kind == "Pod" && !slices.ContainsFunc(s.pods(), func(p *corev1.Pod) bool { return p.UID == ref.UID })
	})
}

func (m *model) makeMember(n *state, i int32) {
	set := n.set()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: stsdrain.PodName(name, i), UID: nextUID("p", n), CreationTimestamp: longAgo, Labels: map[string]string{"app": name},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))},
	}}
	pod.Status.Phase = corev1.PodPending
	for _, t := range m.templates {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: t, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: stsdrain.ClaimNameOf(name, t, i)},
		}})
	}
	n.put(pod)
	m.makeClaims(n, i)
}

// makeClaims makes the claims that the member lacks.
func (m *model) makeClaims(n *state, i int32) {
	set := n.set()
	for _, t := range m.templates {
		claim := stsdrain.ClaimNameOf(name, t, i)
		if c := n.claim(claim); c != nil {
			if len(c.OwnerReferences) > 0 && !m.whenDeleted {
				change(n, c, func(c *corev1.PersistentVolumeClaim) { c.OwnerReferences = nil })
			}
			continue
		}
		c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: claim, UID: nextUID("c", n), CreationTimestamp: justNow, Finalizers: []string{trim.PVCProtection},
		}}
		if m.whenDeleted {
			c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: name, UID: set.UID}}
		}
		c.Status.Phase = corev1.ClaimPending
		n.put(c)
	}
}

// mountable tells whether a kubelet can mount the claim. unbound claims get a volume then.
func (s *state) mountable(claim string, unbound bool) bool {
	c := s.claim(claim)
	if c == nil || c.DeletionTimestamp != nil {
		return false
	}
	if c.Spec.VolumeName == "" {
		return unbound
	}
	v := s.volume(c.Spec.VolumeName)
	return v != nil && v.Spec.ClaimRef.UID == c.UID && c.Status.Phase == corev1.ClaimBound
}

// start starts a pod on its volumes.
func (s *state) start(pod *corev1.Pod) {
	var volumes []string
	for _, claim := range claimsOf(pod) {
		c := s.claim(claim)
		if c.Spec.VolumeName == "" {
			v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + string(c.UID), UID: "pv-" + c.UID}}
			v.Spec.ClaimRef = &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: namespace, Name: c.Name, UID: c.UID}
			s.put(v)
			change(s, c, func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName, c.Status.Phase = v.Name, corev1.ClaimBound })
			c = s.claim(claim)
		}
		volumes = append(volumes, c.Spec.VolumeName)
		is := s.volumes[c.Spec.VolumeName]
		if _, member := isMember(pod); member {
			is.full, is.member, is.restored = true, pod.UID, false
		} else {
			is.begun = true
		}
		s.volumes[c.Spec.VolumeName] = is
	}
	change(s, pod, func(p *corev1.Pod) {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, mounted, strings.Join(volumes, ","))
		p.Status.Phase = corev1.PodRunning
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: container, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: longAgo}}}}
	})
}

// podEvents are those of the kubelet and of the garbage collector.
func (m *model) podEvents(s *state, pod *corev1.Pod) (all []event) {
	_, member := isMember(pod)
	owner := metav1.GetControllerOfNoCopy(pod)
	owned := member && s.set() != nil && s.set().UID == owner.UID || slices.ContainsFunc(s.jobs(), func(j *batchv1.Job) bool { return j.UID == owner.UID })
	can := func() bool {
		return !slices.ContainsFunc(claimsOf(pod), func(c string) bool { return !s.mountable(c, member) })
	}
	switch {
	case pod.DeletionTimestamp != nil:
		return []event{{"pod " + pod.Name + " has ended", func(n *state) {
			n.drop(pod)
			n.awake = n.awake || member
		}}}
	case !owned:
		return []event{{"pod " + pod.Name + " is collected", func(n *state) { n.remove(pod) }}}
	case pod.Status.Phase == corev1.PodPending && can() && (member || m.starts(pod)):
		return []event{{"pod " + pod.Name + " starts", func(n *state) {
			n.start(pod)
			n.awake = n.awake || member && m.ordered
		}}}
	case pod.Status.Phase == corev1.PodRunning && !member:
		return []event{{"the drainer succeeds", func(n *state) { n.ends(pod, 0, good) }}}
	}
	return nil
}

// starts tells whether the drainer's image exists.
func (m *model) starts(pod *corev1.Pod) bool { return pod.Spec.Containers[0].Image != noImage }

// Termination messages: a receipt that holds, and one that does not.
const (
	good  = `{"found": 3, "moved": 3}`
	short = `{"found": 3, "moved": 2}`
)

// ends ends a drainer, and its Job.
func (s *state) ends(pod *corev1.Pod, code int32, message string) {
	if code == 0 && message == good {
		for _, v := range volumesOf(pod) {
			is := s.volumes[v]
			is.full = false
			s.volumes[v] = is
		}
	}
	change(s, pod, func(p *corev1.Pod) {
		p.Status.Phase, p.Status.Conditions = corev1.PodSucceeded, nil
		if code != 0 {
			p.Status.Phase = corev1.PodFailed
		}
		p.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: message, FinishedAt: justNow}}
	})
	for _, job := range s.jobs() {
		if job.UID == metav1.GetControllerOfNoCopy(pod).UID {
			change(s, job, func(j *batchv1.Job) {
				is := batchv1.JobCondition{Type: batchv1.JobComplete, Status: corev1.ConditionTrue, LastTransitionTime: justNow}
				if code != 0 {
					is.Type = batchv1.JobFailed
				}
				j.Status.Conditions = []batchv1.JobCondition{is}
			})
		}
	}
}

// claimEvents are those of the controllers that protect and bind claims, and of the garbage collector.
func (m *model) claimEvents(s *state, c *corev1.PersistentVolumeClaim) (all []event) {
	used := slices.ContainsFunc(s.pods(), func(p *corev1.Pod) bool { return slices.Contains(claimsOf(p), c.Name) && p.Annotations[mounted] != "" })
	if c.DeletionTimestamp != nil && slices.Contains(c.Finalizers, trim.PVCProtection) && !used {
		all = append(all, event{"no pod uses claim " + c.Name, func(n *state) {
			change(n, c, func(c *corev1.PersistentVolumeClaim) {
				c.Finalizers = slices.DeleteFunc(c.Finalizers, func(f string) bool { return f == trim.PVCProtection })
			})
			// The operator may not have seen a claim that never had a volume. Then only the controller's own look at
			// all StatefulSets, each half minute, finds that it is gone.
			n.awake = n.awake || c.Spec.VolumeName == ""
		}})
	}
	switch v := s.volume(c.Spec.VolumeName); {
	case c.Spec.VolumeName == "":
	case v != nil && v.Spec.ClaimRef.Name == c.Name && v.Spec.ClaimRef.UID == "":
		all = append(all, event{"claim " + c.Name + " is bound", func(n *state) {
			change(n, v, func(v *corev1.PersistentVolume) { v.Spec.ClaimRef.UID = c.UID })
			change(n, c, func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimBound })
		}})
	case m.noVolumes && c.Status.Phase == corev1.ClaimBound && (v == nil || v.Spec.ClaimRef.UID != c.UID):
		all = append(all, event{"claim " + c.Name + " has lost its volume", func(n *state) {
			change(n, c, func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimLost })
		}})
	}
	gone := slices.ContainsFunc(c.OwnerReferences, func(ref metav1.OwnerReference) bool {
		return ref.Kind == "StatefulSet" && (s.set() == nil || s.set().UID != ref.UID)
	})
	if c.DeletionTimestamp == nil && (gone || m.stale(s, c)) {
		all = append(all, event{"claim " + c.Name + " is collected", func(n *state) { n.remove(c) }})
	}
	return all
}

// jobEvents are those of the Job controller and of the garbage collector.
func (m *model) jobEvents(s *state, job *batchv1.Job) (all []event) {
	owner := metav1.GetControllerOfNoCopy(job)
	if d := s.drain(); d == nil || d.UID != owner.UID {
		return []event{{"Job " + job.Name + " is collected", func(n *state) { n.drop(job) }}}
	}
	pods := slices.ContainsFunc(s.pods(), func(p *corev1.Pod) bool { return metav1.IsControlledBy(p, job) })
	switch conditions := job.Status.Conditions; {
	case len(conditions) == 0 && !pods && !s.ending():
		return []event{{"the Job controller makes the drainer's pod", func(n *state) {
			pod := &corev1.Pod{ObjectMeta: *job.Spec.Template.ObjectMeta.DeepCopy(), Spec: *job.Spec.Template.Spec.DeepCopy()}
			pod.Namespace, pod.Name, pod.UID, pod.CreationTimestamp = namespace, job.Name+"-pod", nextUID("p", n), longAgo
			pod.Labels[batchv1.JobNameLabel] = job.Name
			pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))}
			pod.Status.Phase = corev1.PodPending
			if _, there := n.objects[keyOf(pod)]; !there {
				n.put(pod)
			}
		}}}
	case m.failed(s, job) && conditions[0].LastTransitionTime.Equal(&justNow):
		return []event{{"time passes for Job " + job.Name, func(n *state) {
			change(n, job, func(j *batchv1.Job) { j.Status.Conditions[0].LastTransitionTime = metav1.NewTime(now.Add(-time.Hour)) })
		}}}
	}
	return nil
}

// failed tells whether the Job has ended, and drained nothing.
func (m *model) failed(s *state, job *batchv1.Job) bool {
	return len(job.Status.Conditions) > 0 && !slices.ContainsFunc(s.pods(), func(p *corev1.Pod) bool {
		return metav1.IsControlledBy(p, job) && p.Status.Phase == corev1.PodSucceeded && p.Status.ContainerStatuses[0].State.Terminated.Message == good
	})
}

// settle lets the StatefulSet's controller sleep when it has nothing to do, or waits for a claim.
func (m *model) settle(s *state) {
	if s.awake && len(m.setEvents(s)) == 0 {
		s.awake = false
	}
}
