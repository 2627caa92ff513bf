package invariants

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/drainer/contract"
)

// Of makes a state of the objects of one cluster and its namespace. Of reads, if possible, the effects of
// objects (mounts, commands, conditions), and not the operator's labels and annotations.
func Of(cluster string, objects []client.Object) *State {
	s := &State{Versions: map[string]string{}, Volumes: []Volume{}, Drains: drainsOf(cluster, objects)}
	var ended []types.UID // Jobs whose drainer has ended, before their controller says so
	for _, object := range objects {
		switch o := object.(type) {
		case *corev1.Namespace:
			s.NamespaceTerminating = o.DeletionTimestamp != nil
		case *cachev1alpha1.Memcached:
			if o.Name == cluster {
				s.Cluster = clusterOf(o)
			}
		case *appsv1.StatefulSet:
			if o.Name == cluster && o.Spec.Replicas != nil {
				s.Members = StatefulSet{Exists: true, Replicas: *o.Spec.Replicas}
			}
		case *corev1.ConfigMap:
			if o.Name == cluster+"-servers" {
				s.Told = told(o)
				s.Out, s.OutSerial = outOf(o)
			}
			if table, err := contract.ParseRingTable([]byte(o.Data["table.json"])); o.Name == cluster+"-router" && err == nil {
				s.Routed = table.State.String()
			}
		case *corev1.Pod:
			if ref := metav1.GetControllerOf(o); ref != nil && isLast(o) {
				ended = append(ended, ref.UID)
			}
			if p := podOf(cluster, o); p.Ordinal >= 0 || p.Survivors > 0 || p.Claim != "" {
				s.Pods = append(s.Pods, p)
			} // any other pod moves nothing, and uses no volume
		case *corev1.PersistentVolumeClaim:
			c := claimOf(cluster, o)
			c.Set, c.Member = s.setOf(o.Name)
			s.Claims = append(s.Claims, c)
		case *batchv1.Job:
			if j, is := setJobOf(o); is {
				s.SetJobs = append(s.SetJobs, j)
			} else if j := jobOf(o); j.Survivors > 0 {
				s.Jobs = append(s.Jobs, j)
			} // any other Job moves nothing
		case *corev1.PersistentVolume:
			v := Volume{Name: o.Name, Retained: o.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain}
			if o.Spec.ClaimRef != nil {
				v.Claim = string(o.Spec.ClaimRef.UID)
			}
			s.Volumes = append(s.Volumes, v)
		}
		s.Versions[fmt.Sprintf("%T %s", object, object.GetName())] = object.GetResourceVersion()
	}
	for i := range s.Jobs {
		if slices.Contains(ended, types.UID(s.Jobs[i].UID)) {
			s.Jobs[i].Unfinished = false
		}
	}
	return s
}

// isLast tells whether the Job starts no pod after this one, because its drainer succeeded, or failed in a way
// that another try can't fix.
func isLast(pod *corev1.Pod) bool {
	how := drainerEnded(pod)
	return how != nil && (how.ExitCode == 0 || pod.Status.Phase == corev1.PodRunning && slices.Contains(contract.NoRetry, how.ExitCode))
}

func clusterOf(o *cachev1alpha1.Memcached) Cluster {
	c := Cluster{
		Exists:     true,
		Deleting:   o.DeletionTimestamp != nil,
		Finalizer:  slices.Contains(o.Finalizers, cachev1alpha1.OwnerFinalizer),
		Size:       1,
		KeepsItems: o.Spec.Drain.Policy == cachev1alpha1.PolicyDrain,

		ReleasesUnreadable: o.Spec.Drain.OnUnrecoverable == cachev1alpha1.UnreadableRelease,
	}
	if o.Spec.Size != nil {
		c.Size = *o.Spec.Size
	}
	for _, d := range o.Status.Drains {
		if d.Phase != "" {
			c.Shown = append(c.Shown, d.Claim)
		}
	}
	c.Shown = append(c.Shown, namedIn(o.Status.Conditions)...)
	return c
}

func podOf(cluster string, o *corev1.Pod) Pod {
	p := Pod{
		Name: o.Name, UID: string(o.UID), Ordinal: -1,
		AtWork: o.Spec.NodeName != "" && o.Status.Phase != corev1.PodSucceeded && o.Status.Phase != corev1.PodFailed && drainerEnded(o) == nil,
	}
	ref := metav1.GetControllerOfNoCopy(o)
	p.Claims, p.Emptied = mountedBy(&o.Spec), emptied(o)
	p.MayWrite = o.Labels[cachev1alpha1.LabelStatefulSetDrain] != "" || ref != nil && ref.Kind == "StatefulSet" && ref.Name != cluster
	mount := ""
	for _, v := range o.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			p.Claim, mount = v.PersistentVolumeClaim.ClaimName, v.Name
			p.ReadOnly = v.PersistentVolumeClaim.ReadOnly
		}
	}
	for _, c := range o.Spec.Containers {
		for _, m := range c.VolumeMounts {
			p.ReadOnly = p.ReadOnly && (m.Name != mount || m.ReadOnly)
		}
	}
	if p.Moves = movesItems(&o.Spec); p.Moves || runs(&o.Spec, "drain") {
		var servers []string
		p.DrainsClaim, servers = commandOf(&o.Spec)
		p.Survivors = int32(len(servers))
		p.Receipt = receiptOf(o)
		p.Waits = waits(&o.Spec, o.Annotations)
		if job := metav1.GetControllerOfNoCopy(o); job != nil {
			p.Job = string(job.UID)
		}
		return p
	}
	p.Ordinal = ordinalAfter(cluster+"-", o.Name)
	p.StartsEmpty = contract.ParseStepOut(o.Annotations[cachev1alpha1.AnnotationStepOut])
	return p
}

// waits tells whether the kubelet shows the mover another text than the one at which it begins.
func waits(spec *corev1.PodSpec, annotations map[string]string) bool {
	for _, arg := range drainerCommand(spec) {
		if when, waits := strings.CutPrefix(arg, "--"+contract.FlagBeginWhen+"="); waits {
			return strings.TrimSuffix(annotations[cachev1alpha1.AnnotationBegin], contract.BeginLeases) != when
		}
	}
	return false
}

// told is how many servers the clients' list names.
func told(list *corev1.ConfigMap) int32 {
	var servers []string
	if err := json.Unmarshal([]byte(list.Data["servers.json"]), &servers); err != nil {
		return 0
	}
	return int32(len(servers))
}

// outOf is the member that the record of the rings leaves out, counted from 1, and the record's serial.
func outOf(list *corev1.ConfigMap) (out int32, serial int64) {
	var record struct {
		Ring struct {
			Out int32 `json:"out"`
		} `json:"ring"`
		Serial int64 `json:"serial"`
	}
	if err := json.Unmarshal([]byte(list.Annotations[cachev1alpha1.AnnotationRing]), &record); err != nil || record.Ring.Out == 0 {
		return 0, 0
	}
	return record.Ring.Out, record.Serial
}

// runs tells whether the pod runs that command of the drainer.
func runs(spec *corev1.PodSpec, command string) bool {
	return slices.Contains(drainerCommand(spec), command)
}

// movesItems tells whether the pod moves items between members, or copies them from another cache.
func movesItems(spec *corev1.PodSpec) bool { return runs(spec, "move") || runs(spec, "copy") }

// drainerContainer is the container that drains or moves; there may be others.
const drainerContainer = "drainer"

// drainerCommand returns the drainer's command; nil if the pod is a member's.
func drainerCommand(spec *corev1.PodSpec) []string {
	for i := range spec.Containers {
		if spec.Containers[i].Name == drainerContainer {
			return spec.Containers[i].Command
		}
	}
	return nil
}

// commandOf returns the claim's UID and the servers in a drainer's command.
func commandOf(spec *corev1.PodSpec) (claim string, servers []string) {
	for _, arg := range drainerCommand(spec) {
		if id, ok := strings.CutPrefix(arg, "--"+contract.FlagSourceID+"="); ok {
			claim = id
		}
		if server, ok := strings.CutPrefix(arg, "--"+contract.FlagServer+"="); ok {
			_, address, named := strings.Cut(server, "=")
			if !named {
				address = server
			}
			servers = append(servers, address)
		}
	}
	return claim, servers
}

func receiptOf(o *corev1.Pod) *contract.Receipt {
	if ended := drainerEnded(o); ended != nil {
		if receipt, err := contract.ParseReceipt(ended.Message); err == nil {
			return receipt
		}
	}
	return nil
}

// drainerEnded returns how the pod's drainer ended; nil if it runs.
func drainerEnded(o *corev1.Pod) *corev1.ContainerStateTerminated {
	for _, status := range o.Status.ContainerStatuses {
		if status.Name == drainerContainer {
			return status.State.Terminated
		}
	}
	return nil
}

func claimOf(cluster string, o *corev1.PersistentVolumeClaim) Claim {
	c := Claim{
		Name: o.Name, UID: string(o.UID), Volume: o.Spec.VolumeName,
		Ordinal:      ordinalAfter("data-"+cluster+"-", o.Name),
		HasFinalizer: slices.Contains(o.Finalizers, cachev1alpha1.ClaimFinalizer),
		Deleting:     o.DeletionTimestamp != nil,
		Leaving:      o.Annotations[cachev1alpha1.AnnotationLeaving] != "",
		Skip:         o.Annotations[cachev1alpha1.AnnotationDrain] == cachev1alpha1.DrainSkip,
	}
	policy, unreadable, _ := strings.Cut(o.Annotations[cachev1alpha1.AnnotationPolicy], ",")
	switch cachev1alpha1.DrainPolicy(policy) {
	case cachev1alpha1.PolicyDrain, cachev1alpha1.PolicyRetain, cachev1alpha1.PolicyDelete:
		c.Policy, c.ReleasesUnreadable = policy, unreadable == string(cachev1alpha1.UnreadableRelease)
	}
	if receipt, err := contract.ParseReceipt(o.Annotations[cachev1alpha1.AnnotationReceipt]); err == nil {
		c.Receipt = receipt
	}
	return c
}

func jobOf(o *batchv1.Job) Job {
	spec := &o.Spec.Template.Spec
	j := Job{Name: o.Name, UID: string(o.UID), Unfinished: o.DeletionTimestamp == nil}
	for _, v := range spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			j.Claim = v.PersistentVolumeClaim.ClaimName
		}
	}
	j.Moves, j.Prepared = movesItems(spec), waits(spec, o.Spec.Template.Annotations)
	j.ClaimUID, j.Servers = commandOf(spec)
	if j.Moves {
		// A mover's source ID has the claim's UID between two slashes.
		_, j.ClaimUID, _ = strings.Cut(j.ClaimUID, "/")
		j.ClaimUID, _, _ = strings.Cut(j.ClaimUID, "/")
	}
	j.Survivors = int32(len(j.Servers))
	for _, c := range o.Status.Conditions {
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			j.Unfinished = false
		}
	}
	return j
}

// ordinalAfter returns the number that follows the prefix, or -1.
func ordinalAfter(prefix, name string) int32 {
	digits, ok := strings.CutPrefix(name, prefix)
	if n, err := strconv.ParseInt(digits, 10, 32); ok && err == nil {
		return int32(n)
	}
	return -1
}
