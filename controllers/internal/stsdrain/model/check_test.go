package model

import (
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/stsdrain"
)

// These checks are written independently of the operator: they know only the finalizer, the mark, the requests of
// people, and what happened to the volumes.

func kept(c *corev1.PersistentVolumeClaim) bool {
	return c != nil && slices.Contains(c.Finalizers, cachev1alpha1.ClaimFinalizer)
}

// check returns the errors of an event, and notes in the state after it how the event has changed volumes.
func (m *model) check(before, after *state) (wrong []string) {
	for _, c := range before.claims() {
		if !kept(c) || kept(after.claimWith(c.UID)) {
			continue
		}
		given, why := m.released(before, after, c)
		if why != "" {
			wrong = append(wrong, fmt.Sprintf("no release without a receipt: claim %s: %s", c.Name, why))
		}
		if is, there := after.volumes[c.Spec.VolumeName]; there && given {
			is.given = true
			after.volumes[c.Spec.VolumeName] = is
		}
	}
	for _, c := range after.claims() {
		if is := after.volumes[c.Spec.VolumeName]; kept(c) && c.Spec.VolumeName != "" {
			is.kept = true
			is.given = is.given && kept(before.claimWith(c.UID))
			after.volumes[c.Spec.VolumeName] = is
		}
	}
	for _, c := range before.claims() {
		now, set := after.claimWith(c.UID), before.set()
		is, _ := stsdrain.ParseClaimName(name, c.Name)
		if now != nil && set != nil && !is.Aside && is.Ordinal < *set.Spec.Replicas && c.Annotations[cachev1alpha1.AnnotationProtected] == "" &&
			now.Annotations[cachev1alpha1.AnnotationProtected] != "" && now.Annotations[cachev1alpha1.AnnotationDrain] == cachev1alpha1.DrainSkip {
			wrong = append(wrong, fmt.Sprintf("a request is about one departure: claim %s is protected as a member's, and is skipped", c.Name))
		}
		if now != nil && set != nil && !is.Aside && is.Ordinal < *set.Spec.Replicas && !members(c) && members(now) {
			v := after.volumes[c.Spec.VolumeName]
			v.restored = false // the member's now
			after.volumes[c.Spec.VolumeName] = v
		}
		_, was := c.Annotations[cachev1alpha1.AnnotationLeaving]
		if request := c.Annotations[cachev1alpha1.AnnotationDrain]; was && now != nil && now.Annotations[cachev1alpha1.AnnotationLeaving] == "" &&
			request != cachev1alpha1.DrainHold && now.Annotations[cachev1alpha1.AnnotationDrain] != "" && before.drain() != nil && before.drain().DeletionTimestamp == nil {
			wrong = append(wrong, fmt.Sprintf("a request is about one departure: claim %s is a member's again, and still has %q", c.Name, request))
		}
	}
	for v, is := range after.volumes {
		if after.volume(v) == nil {
			if is.full && is.kept && !is.given {
				wrong = append(wrong, fmt.Sprintf("nothing is lost: volume %s is gone, and nothing has drained it", v))
			}
			delete(after.volumes, v)
		}
	}
	return append(wrong, m.pods(before, after)...)
}

// members tells whether the operator has protected the claim as a member's.
func members(c *corev1.PersistentVolumeClaim) bool {
	return c.Annotations[cachev1alpha1.AnnotationClaimUID] == string(c.UID) && c.Annotations[cachev1alpha1.AnnotationProtected] != "" &&
		c.Annotations[cachev1alpha1.AnnotationLeaving] == ""
}

// released tells why the claim may lose our finalizer: its data are given up, or are safe.
func (m *model) released(before, after *state, c *corev1.PersistentVolumeClaim) (given bool, wrong string) {
	d, set := before.drain(), before.set()
	policy := c.Annotations[cachev1alpha1.AnnotationPolicy]
	_, marked := c.Annotations[cachev1alpha1.AnnotationLeaving]
	ofSet := slices.ContainsFunc(c.OwnerReferences, func(ref metav1.OwnerReference) bool { return ref.Kind == "StatefulSet" })
	is := before.volumes[c.Spec.VolumeName]
	switch v := after.volume(c.Spec.VolumeName); {
	case c.Spec.VolumeName == "" || !is.full:
		return false, ""
	case v != nil && v.Spec.ClaimRef.UID != c.UID && kept(after.claimOf(v)):
		return false, "" // another claim has it or is to have it, and our finalizer keeps that one, even if a person has just deleted it
	case c.Annotations[cachev1alpha1.AnnotationDrain] == cachev1alpha1.DrainSkip && (!is.restored || is.asked),
		d == nil || d.DeletionTimestamp != nil && !m.goesAside(before, c), before.ending(),
		marked && policy != "" && policy != string(cachev1alpha1.PolicyDrain),
		set == nil && ofSet && c.DeletionTimestamp != nil:
		return true, ""
	}
	return false, "its volume has data, and no person, policy or end has given them up"
}

// goesAside tells whether a departed member's claim is being deleted so that its volume is set aside. The end of the
// StatefulSetDrain gives no such data up.
func (m *model) goesAside(s *state, c *corev1.PersistentVolumeClaim) bool {
	_, marked := c.Annotations[cachev1alpha1.AnnotationLeaving]
	is, _ := stsdrain.ParseClaimName(name, c.Name)
	v := s.volume(c.Spec.VolumeName)
	return marked && c.DeletionTimestamp != nil && !m.noVolumes && v != nil && (v.Spec.ClaimRef.UID == c.UID || v.Spec.ClaimRef.UID == "") &&
		(is.Aside || s.member(is.Ordinal) == nil) && c.Annotations[cachev1alpha1.AnnotationReceipt] == ""
}

// wrote checks a write of the operator, made in the state before it.
func (m *model) wrote(before, after *state) (wrong []string) {
	set := before.set()
	if set == nil || before.ending() || before.drain() == nil || before.drain().DeletionTimestamp != nil {
		return nil
	}
	for _, c := range before.claims() {
		is, _ := stsdrain.ParseClaimName(name, c.Name)
		now := after.claimWith(c.UID)
		begins := c.DeletionTimestamp == nil && now != nil && now.DeletionTimestamp != nil
		toDrain := c.Annotations[cachev1alpha1.AnnotationPolicy] == string(cachev1alpha1.PolicyDrain) && c.Annotations[cachev1alpha1.AnnotationDrain] == ""
		if begins && toDrain && !is.Aside && !m.noVolumes && is.Ordinal < *set.Spec.Replicas && !m.deletedAlready(before, is.Ordinal) {
			wrong = append(wrong, fmt.Sprintf("the point of no return: claim %s is deleted, and its member is wanted", c.Name))
		}
	}
	for _, job := range after.jobs() {
		if find[*batchv1.Job](before, "job", job.Name) != nil {
			continue
		}
		if to := job.Annotations[cachev1alpha1.AnnotationSurvivors]; to != fmt.Sprint(*set.Spec.Replicas) {
			wrong = append(wrong, fmt.Sprintf("survivors: a drain to %s members begins, and %d are wanted", to, *set.Spec.Replicas))
		}
		for i := range *set.Spec.Replicas {
			if !running(before.member(i)) {
				wrong = append(wrong, fmt.Sprintf("survivors: a drain begins, and member %d does not run", i))
			}
		}
	}
	return wrong
}

// deletedAlready tells whether another claim of the member is being deleted: then the others follow it.
func (m *model) deletedAlready(s *state, ordinal int32) bool {
	return slices.ContainsFunc(m.templates, func(t string) bool {
		c := s.claim(stsdrain.ClaimNameOf(name, t, ordinal))
		return c != nil && c.DeletionTimestamp != nil
	})
}

// settled checks the state after a reconcile without faults.
func (m *model) settled(s *state, r *reconciled) (wrong []string) {
	d, set := s.drain(), s.set()
	if d == nil || d.DeletionTimestamp != nil || set == nil || *set.Spec.Replicas == 0 || s.ending() || r.err != nil || len(s.obstructed) > 0 {
		return nil
	}
	for _, job := range r.to.jobs() {
		if to := job.Annotations[cachev1alpha1.AnnotationSurvivors]; len(job.Status.Conditions) == 0 && to != fmt.Sprint(*set.Spec.Replicas) {
			wrong = append(wrong, fmt.Sprintf("survivors: a drain goes on to %s members, and %d are wanted", to, *set.Spec.Replicas))
		}
	}
	return wrong
}

// pods checks which pods use the volumes.
func (m *model) pods(before, after *state) (wrong []string) {
	all := after.pods()
	for i, p := range all {
		was := find[*corev1.Pod](before, "pod", p.Name)
		_, member := isMember(p)
		if !running(p) {
			continue
		}
		begins := was == nil || was.UID != p.UID || !running(was)
		for _, q := range all[:i] {
			for _, v := range volumesOf(p) {
				if running(q) && slices.Contains(volumesOf(q), v) && !m.noVolumes {
					wrong = append(wrong, fmt.Sprintf("one user: pods %s and %s are both on volume %s", q.Name, p.Name, v))
				}
			}
		}
		if !begins || m.noVolumes {
			continue
		}
		if member {
			for _, v := range volumesOf(p) {
				if before.volumes[v].begun {
					wrong = append(wrong, fmt.Sprintf("no member returns in mid-drain: pod %s is on volume %s, whose drain has begun", p.Name, v))
				}
			}
			continue
		}
		wrong = append(wrong, m.drainerBegins(before, p)...)
	}
	return wrong
}

func (m *model) drainerBegins(before *state, p *corev1.Pod) (wrong []string) {
	for _, c := range claimsOf(p) {
		if is, _ := stsdrain.ParseClaimName(name, c); !is.Aside {
			wrong = append(wrong, fmt.Sprintf("aside first: the drainer is on claim %s", c))
		}
	}
	mounts := volumesOf(p)
	for _, v := range mounts {
		if is := before.volumes[v]; is.restored && !slices.ContainsFunc(mounts, func(v string) bool { return before.volumes[v].asked }) {
			wrong = append(wrong, fmt.Sprintf("only a person's word: the drain of volume %s begins, whose claim came from a backup", v))
		}
	}
	for v, is := range before.volumes {
		if is.restored == before.volumes[mounts[0]].restored && is.full && is.kept && !is.given && !slices.Contains(mounts, v) && is.member == before.volumes[mounts[0]].member {
			wrong = append(wrong, fmt.Sprintf("all or none: the drainer has %v, and not volume %s of the same member", mounts, v))
		}
	}
	return wrong
}

// atRest returns the errors of a state in which nothing happens by itself any more.
func (m *model) atRest(s *state, r *reconciled) (wrong []string) {
	d, set := s.drain(), s.set()
	if r.err != nil {
		wrong = append(wrong, fmt.Sprintf("a step is refused forever: %v", r.err))
	}
	for _, c := range s.claims() {
		switch {
		case d == nil && kept(c):
			wrong = append(wrong, fmt.Sprintf("no end is stuck: the StatefulSetDrain is gone, and claim %s has our finalizer", c.Name))
		case c.DeletionTimestamp != nil && d == nil && !slices.ContainsFunc(s.pods(), func(p *corev1.Pod) bool { return slices.Contains(claimsOf(p), c.Name) }):
			wrong = append(wrong, fmt.Sprintf("no end is stuck: claim %s is being deleted", c.Name))
		}
	}
	if s.ending() {
		for _, o := range s.objects {
			if o.GetNamespace() != "" {
				wrong = append(wrong, fmt.Sprintf("no end is stuck: the namespace is being deleted, and %s is there", keyOf(o)))
			}
		}
		return wrong
	}
	if d == nil {
		return wrong // then members are Kubernetes' own matter
	}
	if d.DeletionTimestamp != nil {
		return append(wrong, "no end is stuck: the StatefulSetDrain is deleted, and still there")
	}
	says := says(r.status)
	ready := meta.IsStatusConditionTrue(r.status.Conditions, cachev1alpha1.ConditionReady)
	for v, is := range s.volumes {
		if !is.full || !is.kept || is.given || slices.ContainsFunc(s.pods(), func(p *corev1.Pod) bool { return running(p) && slices.Contains(volumesOf(p), v) }) {
			continue
		}
		claim := s.claimWith(s.volume(v).Spec.ClaimRef.UID)
		if claim == nil {
			wrong = append(wrong, fmt.Sprintf("nothing is forgotten: volume %s has data, and no claim", v))
			continue
		}
		none := set == nil || *set.Spec.Replicas == 0
		if !strings.Contains(says, claim.Name) && !none {
			wrong = append(wrong, fmt.Sprintf("a person is named: claim %s has data, nothing drains it, and status doesn't name it", claim.Name))
		}
		if ready && !none && claim.Annotations[cachev1alpha1.AnnotationAdopted] != cachev1alpha1.AdoptedRestored { // those are left over
			wrong = append(wrong, fmt.Sprintf("a person is named: claim %s has data, nothing drains it, and Ready is True", claim.Name))
		}
	}
	for _, c := range s.claims() {
		is, _ := stsdrain.ParseClaimName(name, c.Name)
		left := is.Aside && c.Annotations[cachev1alpha1.AnnotationProtected] == "" && set != nil
		if left && s.volumes[c.Spec.VolumeName].full && !strings.Contains(says, c.Name) {
			wrong = append(wrong, fmt.Sprintf("a person is named: claim %s has data, a StatefulSetDrain that is gone has left it, and status doesn't name it", c.Name))
		}
	}
	for i := range r.status.Drains {
		row := &r.status.Drains[i]
		if row.Phase != cachev1alpha1.DrainFailed && row.Phase != cachev1alpha1.DrainHeld && row.Reason != cachev1alpha1.ReasonHibernating &&
			!meta.IsStatusConditionTrue(r.status.Conditions, cachev1alpha1.ConditionDegraded) {
			wrong = append(wrong, fmt.Sprintf("no circle: the drain of %v rests in phase %s: %s: %s", row.Claims, row.Phase, row.Reason, row.Message))
		}
	}
	if len(r.status.LeftOver) > 0 && !m.leftOver(s) {
		wrong = append(wrong, fmt.Sprintf("left over without a reason: %v", r.status.LeftOver))
	}
	return append(wrong, m.away(s, says)...)
}

// leftOver tells whether a claim was never protected.
func (m *model) leftOver(s *state) bool {
	return slices.ContainsFunc(s.claims(), func(c *corev1.PersistentVolumeClaim) bool {
		return c.Annotations[cachev1alpha1.AnnotationProtected] == ""
	})
}

// away tells which wanted members don't run, although no person is named.
func (m *model) away(s *state, says string) (wrong []string) {
	set := s.set()
	if set == nil {
		return nil
	}
	for i := range *set.Spec.Replicas {
		if running(s.member(i)) || strings.Contains(says, fmt.Sprintf("-%s-%d", name, i)) || strings.Contains(says, fmt.Sprintf("member %d", i)) {
			continue
		}
		if i > 0 && m.ordered && !running(s.member(i-1)) {
			continue
		}
		wrong = append(wrong, fmt.Sprintf("members return: member %d does not run", i))
	}
	return wrong
}

// says returns all texts of a status.
func says(s *cachev1alpha1.StatefulSetDrainStatus) string {
	b := &strings.Builder{}
	for _, c := range s.Conditions {
		fmt.Fprintf(b, "%s=%s %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
	}
	for i := range s.Drains {
		fmt.Fprintf(b, "%v %s %s: %s\n", s.Drains[i].Claims, s.Drains[i].Phase, s.Drains[i].Reason, s.Drains[i].Message)
	}
	fmt.Fprintln(b, s.LeftOver)
	return b.String()
}
