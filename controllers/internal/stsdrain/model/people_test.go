package model

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/trim"
)

// mostMembers are in the StatefulSet at the beginning: one stays, one leaves and returns.
const mostMembers int32 = 2

// people returns the deeds that people may do.
func (m *model) people(s *state) (all []event) {
	set, drain := s.set(), s.drain()
	if set != nil {
		for n := range mostMembers + 1 {
			if n >= m.least && n != *set.Spec.Replicas {
				all = append(all, event{fmt.Sprintf("a person scales to %d", n), func(to *state) {
					change(to, set, func(o *appsv1.StatefulSet) { o.Spec.Replicas, o.Generation = ptr.To(n), o.Generation+1 })
					to.awake = true
				}})
			}
		}
	}
	if m.onlyScale {
		return all
	}
	if m.onlyBack {
		for _, c := range s.claims() {
			if v := s.volume(c.Spec.VolumeName); v != nil && v.Spec.ClaimRef.Name == c.Name && !s.mounts(c.Name) {
				all = append(all, event{"a backup brings claim " + c.Name + " back", func(to *state) { to.bringBack(c) }})
			}
			if c.Annotations[cachev1alpha1.AnnotationDrain] == "" && !strings.HasSuffix(c.Name, "-0") {
				all = append(all, requested(c, cachev1alpha1.DrainRetry))
				if m.skips {
					all = append(all, requested(c, cachev1alpha1.DrainSkip))
				}
			}
			if m.skips && c.DeletionTimestamp == nil && !strings.HasSuffix(c.Name, "-0") {
				all = append(all, event{"a person deletes claim " + c.Name, func(to *state) { to.remove(c) }})
			}
		}
		return all
	}
	if drain == nil && !s.ending() {
		all = append(all, event{"a person makes the StatefulSetDrain again", func(to *state) { to.put(m.newDrain(nextUID("d", to))) }})
	}
	if drain != nil && drain.DeletionTimestamp == nil {
		all = append(all, event{"a person deletes the StatefulSetDrain", func(to *state) { to.remove(drain) }})
	}
	if m.onlyRemakes {
		for _, c := range s.claims() {
			if c.Annotations[cachev1alpha1.AnnotationDrain] == "" && !strings.HasSuffix(c.Name, "-0") {
				all = append(all, requested(c, cachev1alpha1.DrainRetry))
			}
		}
		return all
	}
	if set != nil {
		all = append(all, event{"a person deletes the StatefulSet", func(to *state) { to.remove(set) }})
	}
	if drain != nil && drain.DeletionTimestamp == nil {
		for _, image := range []string{"drainer", noImage} {
			if is := template(image); string(drain.Spec.Template.Spec.Raw) != is && (image != noImage || m.badTemplates) {
				all = append(all, event{"a person changes the template to image " + image, func(to *state) {
					change(to, drain, func(o *cachev1alpha1.StatefulSetDrain) { o.Spec.Template.Spec.Raw = []byte(is) })
				}})
			}
		}
	}
	if !s.ending() {
		all = append(all, event{"a person deletes the namespace", func(to *state) { to.remove(find[*corev1.Namespace](to, "namespace", namespace)) }})
	}
	if drain != nil {
		for _, policy := range []cachev1alpha1.DrainPolicy{cachev1alpha1.PolicyDrain, cachev1alpha1.PolicyRetain, cachev1alpha1.PolicyDelete} {
			if m.policies && drain.Spec.Policy != policy {
				all = append(all, event{"a person changes the policy to " + string(policy), func(to *state) {
					change(to, drain, func(o *cachev1alpha1.StatefulSetDrain) { o.Spec.Policy = policy })
				}})
			}
		}
	}
	for _, c := range s.claims() {
		if c.DeletionTimestamp == nil {
			all = append(all, event{"a person deletes claim " + c.Name, func(to *state) { to.remove(c) }})
		}
		if strings.HasSuffix(c.Name, "-0") {
			continue // of the member that stays
		}
		for _, request := range []string{"", cachev1alpha1.DrainSkip, cachev1alpha1.DrainRetry, cachev1alpha1.DrainHold} {
			if c.Annotations[cachev1alpha1.AnnotationDrain] != request {
				all = append(all, requested(c, request))
			}
		}
	}
	for _, job := range s.jobs() {
		all = append(all, event{"a person deletes Job " + job.Name, func(to *state) { to.drop(job) }})
	}
	return all
}

// requested is a person's request about a claim, or its end.
func requested(c *corev1.PersistentVolumeClaim, request string) event {
	return event{fmt.Sprintf("a person annotates claim %s with %q", c.Name, request), func(to *state) {
		change(to, c, func(c *corev1.PersistentVolumeClaim) {
			if metav1.SetMetaDataAnnotation(&c.ObjectMeta, cachev1alpha1.AnnotationDrain, request); request == "" {
				delete(c.Annotations, cachev1alpha1.AnnotationDrain)
			}
		})
		if is, there := to.volumes[c.Spec.VolumeName]; there && (request == cachev1alpha1.DrainRetry || request == cachev1alpha1.DrainSkip) {
			is.asked = true
			to.volumes[c.Spec.VolumeName] = is
		}
	}}
}

// mounts tells whether a pod or a Job names the claim.
func (s *state) mounts(claim string) bool {
	names := func(spec *corev1.PodSpec) bool {
		return slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool {
			return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim
		})
	}
	return slices.ContainsFunc(s.pods(), func(p *corev1.Pod) bool { return names(&p.Spec) }) ||
		slices.ContainsFunc(s.jobs(), func(j *batchv1.Job) bool { return names(&j.Spec.Template.Spec) })
}

// bringBack brings a claim back with another UID, and with all that was written on it. The marks may be about a claim that is
// there, whose volume it takes over.
func (s *state) bringBack(c *corev1.PersistentVolumeClaim) {
	about := types.UID(c.Annotations[cachev1alpha1.AnnotationClaimUID])
	known := about != c.UID && s.claimWith(about) != nil
	back := c.DeepCopy()
	back.UID, back.DeletionTimestamp, back.OwnerReferences, back.CreationTimestamp = nextUID("c", s), nil, nil, justNow
	if !slices.Contains(back.Finalizers, trim.PVCProtection) {
		back.Finalizers = append(back.Finalizers, trim.PVCProtection)
	}
	s.put(back)
	s.awake = true // a controller that waits for the claim looks again, later and later
	if v := s.volume(c.Spec.VolumeName); v != nil && v.Spec.ClaimRef.UID == c.UID {
		change(s, v, func(v *corev1.PersistentVolume) { v.Spec.ClaimRef.UID = back.UID })
	}
	if is, there := s.volumes[c.Spec.VolumeName]; there && !known {
		is.restored, is.asked = true, false
		s.volumes[c.Spec.VolumeName] = is
	}
}

// faults returns the faults that may happen outside the operator.
func (m *model) faults(s *state) (all []event) {
	for _, pod := range s.pods() {
		_, member := isMember(pod)
		switch {
		case member:
			all = append(all, event{"pod " + pod.Name + " is force-deleted", func(n *state) {
				n.drop(pod)
				n.awake = true
			}})
		case running(pod):
			all = append(all,
				event{"the drainer is killed, and begins again", func(n *state) { n.drop(pod) }},
				event{"the drainer fails", func(n *state) { n.ends(pod, 1, "no route to host") }},
				event{"the drainer leaves a receipt that does not hold", func(n *state) { n.ends(pod, 0, short) }})
		}
	}
	return all
}
