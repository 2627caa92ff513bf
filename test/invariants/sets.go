package invariants

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// SetDrain is a StatefulSetDrain, with the StatefulSet that it names. If several name one StatefulSet, the
// oldest counts.
type SetDrain struct {
	Name     string
	Deleting bool
	// Shown are the claims that status names, with a phase or a reason.
	Shown []string
	// Set is the StatefulSet's name. Exists, Start and Replicas are the StatefulSet's.
	Set             string
	Exists          bool
	Start, Replicas int32
}

// wants tells whether the member is one of those that the StatefulSet is to have.
func (d *SetDrain) wants(ordinal int32) bool {
	return d.Start <= ordinal && ordinal < d.Start+d.Replicas
}

// SetJob is the Job of a StatefulSetDrain.
type SetJob struct {
	Name, UID string
	// Claims are the names of those that it mounts.
	Claims []string
}

// drainsOf are the StatefulSetDrains among the objects. One that names the cluster's StatefulSet is refused.
func drainsOf(cluster string, objects []client.Object) []SetDrain {
	sets := map[string]*appsv1.StatefulSet{}
	oldest := map[string]*cachev1alpha1.StatefulSetDrain{}
	for _, object := range objects {
		switch o := object.(type) {
		case *appsv1.StatefulSet:
			sets[o.Name] = o
		case *cachev1alpha1.StatefulSetDrain:
			if other := oldest[o.Spec.StatefulSetName]; other == nil || o.CreationTimestamp.Before(&other.CreationTimestamp) ||
				o.CreationTimestamp.Equal(&other.CreationTimestamp) && o.Name < other.Name {
				oldest[o.Spec.StatefulSetName] = o
			}
		}
	}
	all := make([]SetDrain, 0, len(oldest))
	delete(oldest, cluster)
	for name, o := range oldest {
		d := SetDrain{Name: o.Name, Set: name, Deleting: o.DeletionTimestamp != nil, Shown: namedIn(o.Status.Conditions)}
		for _, row := range o.Status.Drains {
			d.Shown = append(d.Shown, row.Claims...)
		}
		d.Shown = append(d.Shown, o.Status.LeftOver...)
		if set := sets[name]; set != nil {
			d.Exists, d.Replicas = set.DeletionTimestamp == nil, ptr.Deref(set.Spec.Replicas, 1)
			if set.Spec.Ordinals != nil {
				d.Start = set.Spec.Ordinals.Start
			}
		}
		all = append(all, d)
	}
	return all
}

// namedIn are the words of messages: "claim data-cache-1 was deleted …".
func namedIn(conditions []metav1.Condition) (words []string) {
	for _, condition := range conditions {
		words = append(words, strings.FieldsFunc(condition.Message, func(r rune) bool { return strings.ContainsRune(" ,;:", r) })...)
	}
	return words
}

// setOf finds the StatefulSet that the claim is of by its name, or that its volume was set aside for.
func (s *State) setOf(claim string) (set string, ordinal int32) {
	member, _, _ := strings.Cut(claim, "-aside-")
	at := strings.LastIndexByte(member, '-')
	if at < 0 {
		return "", -1
	}
	for i := range s.Drains {
		if strings.HasSuffix(member[:at], "-"+s.Drains[i].Set) {
			return s.Drains[i].Set, ordinalAfter(member[:at+1], member)
		}
	}
	return "", -1
}

// drainOf is the StatefulSetDrain of the claim; nil if it has none.
func (s *State) drainOf(c *Claim) *SetDrain {
	i := slices.IndexFunc(s.Drains, func(d SetDrain) bool { return c.Set != "" && d.Set == c.Set })
	if i < 0 {
		return nil
	}
	return &s.Drains[i]
}

// setJobOf is the Job, if it is a StatefulSetDrain's.
func setJobOf(o *batchv1.Job) (j SetJob, is bool) {
	ref := metav1.GetControllerOfNoCopy(o)
	if ref == nil || ref.Kind != "StatefulSetDrain" {
		return SetJob{}, false
	}
	return SetJob{Name: o.Name, UID: string(o.UID), Claims: mountedBy(&o.Spec.Template.Spec)}, true
}

// mountedBy are the names of the claims that a pod mounts.
func mountedBy(spec *corev1.PodSpec) (claims []string) {
	for _, v := range spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			claims = append(claims, v.PersistentVolumeClaim.ClaimName)
		}
	}
	return claims
}

// emptied tells whether the pod's drainer is a user's, and has ended well. A message with counts has to add up.
func emptied(o *corev1.Pod) bool {
	if o.Labels[cachev1alpha1.LabelStatefulSetDrain] == "" || len(o.Spec.Containers) == 0 {
		return false
	}
	drainer := o.Spec.Containers[0].Name
	if named := o.Annotations[cachev1alpha1.AnnotationContainer]; named != "" {
		drainer = named
	}
	for _, status := range o.Status.ContainerStatuses {
		if ended := status.State.Terminated; status.Name == drainer && ended != nil && ended.ExitCode == 0 {
			var counts struct{ Found, Moved, Skipped int64 }
			return json.Unmarshal([]byte(ended.Message), &counts) != nil || counts.Found == counts.Moved+counts.Skipped
		}
	}
	return false
}

// releasedFromSet tells what releases the claim of a StatefulSet; empty if nothing does.
func releasedFromSet(s *State, d *SetDrain, c *Claim) string {
	switch {
	case c.Emptied:
		return "its drainer's end"
	case c.Skip:
		return "a person"
	case d.Deleting || s.NamespaceTerminating:
		return "the end of the StatefulSetDrain"
	case c.Leaving && c.Policy != "" && c.Policy != string(cachev1alpha1.PolicyDrain):
		return "the policy"
	case c.Volume == "":
		return "it has no volume"
	case c.Deleting && !d.Exists:
		return "the end of the StatefulSet"
	}
	return ""
}

// rememberOfSet takes over the memory of a claim of a StatefulSet.
func (s *State) rememberOfSet(c, before *Claim) {
	if before != nil {
		c.Outside, c.Emptied = before.Outside, before.Emptied
	}
	if d := s.drainOf(c); d != nil && d.Exists && d.Replicas > 0 && !d.wants(c.Member) {
		c.Outside = true
	}
	for i := range s.Pods {
		if p := &s.Pods[i]; p.Emptied && slices.Contains(p.Claims, c.Name) {
			c.Emptied = true
		}
	}
}

// wronglyLeft tells of claims of StatefulSets that are marked, or drained, and whose members have not left.
func wronglyLeft(before, after *State) (wrong []string) {
	for i := range after.Claims {
		c := &after.Claims[i]
		was := before.claim(c.UID)
		if c.Set != "" && c.Leaving && was != nil && !was.Leaving && !c.Deleting && !c.Outside {
			wrong = append(wrong, fmt.Sprintf("claim %s has the leaving mark; its member was wanted all the time", c.Name))
		}
	}
	for i := range after.SetJobs {
		j := &after.SetJobs[i]
		if slices.ContainsFunc(before.SetJobs, func(was SetJob) bool { return was.UID == j.UID }) {
			continue
		}
		for _, name := range j.Claims {
			if c := after.claimNamed(name); c != nil && c.Set != "" && !c.Leaving {
				wrong = append(wrong, fmt.Sprintf("Job %s drains claim %s, which is a member's", j.Name, name))
			}
		}
	}
	return wrong
}

// ended tells whether each Memcached and each StatefulSetDrain is gone, or is being deleted.
func (s *State) ended() bool {
	return s.ending() && (s.NamespaceTerminating || !slices.ContainsFunc(s.Drains, func(d SetDrain) bool { return !d.Deleting }))
}

// shown are the claims that the status of their owner names. owned is false if they have no owner.
func (s *State) shown(c *Claim) (claims []string, owned bool) {
	if d := s.drainOf(c); d != nil {
		return d.Shown, true
	}
	return s.Cluster.Shown, s.Cluster.Exists
}
