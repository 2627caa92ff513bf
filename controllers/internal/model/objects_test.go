package model

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/build"
	pvc "example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/trim"
)

// This file translates a state of the model into objects of the API. Package apply itself makes the
// objects that the operator applies, with their managed fields, once for each exploration. Package
// build makes the Jobs and their pods.

const (
	namespace  = "shop"
	clusterUID = types.UID("memcached")
	setUID     = types.UID("statefulset")
)

// versionNow and versionBefore are resource versions: for an object that has changed the cache has
// the earlier one.
const versionNow, versionBefore = "1000", "999"

// All objects were created, or deleted, long ago.
var (
	created  = metav1.Unix(500, 0)
	podsMade = metav1.Unix(600, 0) // later than claims: every member has started once
	deleted  = metav1.Unix(700, 0)
)

// images has the images of the pods. An API server accepts no pod without them.
var images = build.Options{OperatorImage: "operator", MemcachedImage: "memcached"}

// prepared are the objects that package apply has written for one exploration.
type prepared struct {
	service *corev1.Service
	members [ordinals + 1]*appsv1.StatefulSet
	lists   map[list]*corev1.ConfigMap
}

// memcached is the Memcached of the exploration, without the fields that a state sets.
func memcached(o *Options) *cachev1alpha1.Memcached {
	b := apitest.MakeMemcached(clusterName).Namespace(namespace).Storage("128Mi").Parallelism(o.Cluster.Parallelism).
		Policy(map[pvc.DrainPolicy]cachev1alpha1.DrainPolicy{
			pvc.Drain: cachev1alpha1.PolicyDrain, pvc.Retain: cachev1alpha1.PolicyRetain, pvc.Delete: cachev1alpha1.PolicyDelete,
		}[o.Cluster.Policy])
	if o.Cluster.DeleteClaims {
		b.WhenDeleted(cachev1alpha1.DeletionDelete)
	}
	c := b.Patience(o.Cluster.Patience).Defaulted().Obj()
	c.UID, c.Generation, c.CreationTimestamp, c.ResourceVersion = clusterUID, 1, created, versionNow
	c.Spec.PodDisruptionBudget.Enabled = ptr.To(false)
	if !o.Moving {
		c.Spec.ContainerPort = 0 // the model's ring only has a size
	}
	return c
}

func (w *world) memcached(c *cluster) *cachev1alpha1.Memcached {
	out := w.base.DeepCopy()
	out.Spec.Size = ptr.To(int32(c.size))
	out.Spec.Routing.Client = cachev1alpha1.Client(clients[c.client])
	if c.off || !w.model.options.Moving {
		out.Spec.Routing.Moves = cachev1alpha1.MovesOff
	}
	if c.finalizer {
		out.Finalizers = []string{cachev1alpha1.OwnerFinalizer}
	}
	if c.deleting {
		out.DeletionTimestamp = &deleted
	}
	if c.servers > 0 {
		out.Status.Servers = build.Servers(out, nil, int32(c.servers))
	}
	return out
}

// objects returns the objects of a state. o are its live ones, or those that the caches show.
func (w *world) objects(s *state, o *objects) []client.Object {
	all := []client.Object{w.prepared.service.DeepCopy()}
	if o.cluster.exists {
		c := w.memcached(&o.cluster)
		if o.cluster != s.live.cluster {
			c.ResourceVersion = versionBefore
		}
		all = append(all, c)
	}
	if o.members.exists {
		all = append(all, w.prepared.members[o.members.replicas].DeepCopy())
	}
	l := o.list
	if !w.model.options.Moving { // the list follows the members at once
		l = list{exists: true, size: o.members.replicas}
		if !o.members.exists && o.cluster.exists {
			l.size = s.live.members.replicas // these are read live
		}
	}
	if l.exists {
		all = append(all, w.list(l))
	}
	for i := range int8(ordinals) {
		if p := &o.pods.members[i]; p.state != noPod {
			all = append(all, w.member(i, p, o.pods.lastReady()))
		}
		for slot := range slots {
			if c := &o.claims[i][slot]; c.exists {
				pvc := w.claim(i, c)
				if *c != s.live.claims[i][slot] {
					pvc.ResourceVersion = versionBefore
				}
				all = append(all, pvc)
			}
			if j := &o.jobs[i][slot]; j.state != noJob {
				all = append(all, w.job(s, i, j))
			}
			if d := &o.pods.drainers[i][slot]; d.state != noPod {
				all = append(all, w.drainer(s, i, d))
			}
		}
	}
	return all
}

// liveOnly are the objects that no cache has: the volumes and the namespace.
func liveOnly(s *state) []client.Object {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if s.ending {
		ns.DeletionTimestamp, ns.Finalizers = &deleted, []string{"kubernetes"}
	}
	all := []client.Object{ns}
	for i := range s.volumes {
		for _, v := range s.volumes[i] {
			if v.name == 0 {
				continue
			}
			pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: volumeNames[i][v.name], ResourceVersion: versionNow}}
			pv.Spec.ClaimRef = &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: namespace, Name: claimNames[i][v.of],
			}
			if v.bound != 0 {
				pv.Spec.ClaimRef.UID = claimUIDs[i][v.bound]
			}
			all = append(all, pv)
		}
	}
	return all
}

func (w *world) meta(name string, uid types.UID, component string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: uid, CreationTimestamp: created, ResourceVersion: versionNow,
		Labels: build.Labels(w.base, component), Annotations: map[string]string{},
	}
}

func (w *world) claim(i int8, c *claim) *corev1.PersistentVolumeClaim {
	out := &corev1.PersistentVolumeClaim{ObjectMeta: w.meta(claimNames[i][c.of], claimUIDs[i][c.generation], cachev1alpha1.ComponentMember)}
	if c.finalizer {
		out.Finalizers = append(out.Finalizers, cachev1alpha1.ClaimFinalizer)
	}
	if c.protected {
		out.Finalizers = append(out.Finalizers, trim.PVCProtection)
	}
	if c.deleting {
		out.DeletionTimestamp = &deleted
	}
	annotate := func(key, value string) {
		if value != "" {
			out.Annotations[key] = value
		}
	}
	if c.leaving {
		annotate(cachev1alpha1.AnnotationLeaving, c.leftAt().UTC().Format(time.RFC3339))
		annotate(cachev1alpha1.AnnotationLeft, strconv.Itoa(int(c.left)+1))
		policies := [...]cachev1alpha1.DrainPolicy{cachev1alpha1.PolicyDrain, cachev1alpha1.PolicyRetain, cachev1alpha1.PolicyDelete}
		annotate(cachev1alpha1.AnnotationPolicy, string(policies[c.policy]))
	}
	if c.unmoved {
		annotate(cachev1alpha1.AnnotationUnmoved, "true")
	}
	if c.of != 0 {
		annotate(cachev1alpha1.AnnotationAsideOf, string(claimUIDs[i][c.of]))
	}
	if c.restored {
		annotate(cachev1alpha1.AnnotationAdopted, cachev1alpha1.AdoptedRestored)
	}
	switch {
	case c.carries:
		annotate(cachev1alpha1.AnnotationClaimUID, string(claimUIDs[i][c.of]))
	case c.leaving:
		annotate(cachev1alpha1.AnnotationClaimUID, string(claimUIDs[i][c.generation]))
	}
	if r := receipts[i][c.generation][c.receipt]; r != nil {
		annotate(cachev1alpha1.AnnotationReceipt, marshal(r))
	}
	if c.moved != 0 {
		annotate(cachev1alpha1.AnnotationMoved, strconv.Itoa(int(c.moved)))
	}
	if c.counted != 0 {
		annotate(cachev1alpha1.AnnotationAttempts, "1/"+string(jobUIDs[i][c.counted]))
	}
	annotate(cachev1alpha1.AnnotationDrain, string(planRequests[c.request]))
	annotate(cachev1alpha1.AnnotationMove, string(planRequests[c.moving]))
	if c.volume != 0 {
		out.Spec.VolumeName = volumeNames[i][c.volume]
	}
	if out.Status.Phase = corev1.ClaimBound; c.volume == 0 || c.pending {
		out.Status.Phase = corev1.ClaimPending
	}
	return out
}

// claimName is the name of the claim of this generation. A claim that is gone counts as one with
// the member's name.
func claimName(s *state, i, generation int8) string {
	for _, o := range []*objects{&s.live, &s.seen} {
		if c := o.claimOf(i, generation); c != nil {
			return claimNames[i][c.of]
		}
	}
	return claimNames[i][0]
}

func (w *world) job(s *state, i int8, j *job) *batchv1.Job {
	name, uid, n := claimName(s, i, j.generation), claimUIDs[i][j.generation], int32(j.target.size)
	var out *batchv1.Job
	if j.target.moves() {
		out = build.MoveJob(w.base, images, build.Move{
			Claim: name, UID: uid, Ordinal: int32(i), Target: w.model.nameOf(j.target), Members: max(n, ordinals), Lost: j.target.without(), Prepared: j.waits,
		})
	} else {
		out = build.DrainJob(w.base, images, nil, name, uid, n, false)
	}
	out.UID, out.CreationTimestamp, out.ResourceVersion = jobUIDs[i][j.instance], created, versionNow
	end := batchv1.JobCondition{Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(justNow)}
	if j.due {
		end.LastTransitionTime = metav1.Time{}
	}
	switch j.state {
	case complete:
		end.Type = batchv1.JobComplete
		out.Status.Conditions = []batchv1.JobCondition{end}
	case gaveUp:
		end.Type = batchv1.JobFailed
		out.Status.Conditions = []batchv1.JobCondition{end}
	}
	return out
}

func (w *world) member(i int8, p *pod, ready time.Time) *corev1.Pod {
	out := &corev1.Pod{ObjectMeta: w.meta(podNames[i], types.UID(podUIDs[i][p.generation]), cachev1alpha1.ComponentMember)}
	out.CreationTimestamp = podsMade
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: clusterName, UID: setUID}}
	out.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))}
	out.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claimNames[i][0]},
	}}}
	if out.Status.Phase = corev1.PodPending; p.state == running {
		out.Status.Phase = corev1.PodRunning
		out.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(ready)}}
	}
	return out
}

// drainer is the pod of a Job that may be gone.
func (w *world) drainer(s *state, i int8, d *drainer) *corev1.Pod {
	job := w.job(s, i, &job{state: active, generation: d.generation, instance: d.instance, target: d.target, waits: d.waits})
	name := fmt.Sprintf("%s-%d", job.Name, d.instance)
	out := &corev1.Pod{ObjectMeta: *job.Spec.Template.ObjectMeta.DeepCopy(), Spec: *job.Spec.Template.Spec.DeepCopy()}
	out.Namespace, out.Name, out.UID, out.CreationTimestamp, out.ResourceVersion = namespace, name, types.UID(name), podsMade, versionNow
	out.Labels[batchv1.JobNameLabel] = job.Name
	out.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))}
	status := corev1.ContainerStatus{Name: build.ContainerDrainer}
	ended := &corev1.ContainerStateTerminated{}
	if r := w.model.receiptOf(d, i); r != nil {
		ended.Message, ended.ExitCode = marshal(r), int32(r.ExitCode)
	}
	switch d.state {
	case pending:
		out.Status.Phase = corev1.PodPending
	case running:
		out.Status.Phase, status.State.Running = corev1.PodRunning, &corev1.ContainerStateRunning{StartedAt: podsMade}
	case succeeded:
		out.Status.Phase, status.State.Terminated = corev1.PodSucceeded, ended
	case failed:
		out.Status.Phase, status.State.Terminated = corev1.PodFailed, ended
	}
	if d.state != pending {
		out.Status.ContainerStatuses = []corev1.ContainerStatus{status}
	}
	return out
}

func (w *world) list(l list) *corev1.ConfigMap {
	made := w.prepared.lists[l]
	if made == nil {
		made = w.makeList(l)
		w.prepared.lists[l] = made
	}
	return made.DeepCopy()
}

// boundTo returns the claim that each volume of the state names, by the volume's name.
func boundTo(s *state) map[string]corev1.ObjectReference {
	all := map[string]corev1.ObjectReference{}
	for _, o := range liveOnly(s) {
		if pv, is := o.(*corev1.PersistentVolume); is {
			all[pv.Name] = *pv.Spec.ClaimRef
		}
	}
	return all
}

func marshal(r interface{ Marshal() ([]byte, error) }) string {
	b, err := r.Marshal()
	if err != nil {
		panic(err)
	}
	return string(b)
}

// action is the action of the plan that the step stands for.
func (m *model) action(s *state, a step) action.Action {
	i := a.ordinal
	switch a.verb {
	case addOwnerFinalizer:
		return action.AddOwnerFinalizer{}
	case removeOwnerFinalizer:
		return action.RemoveOwnerFinalizer{}
	case applyMembers:
		return action.ApplyStatefulSet{Replicas: int32(a.argument)}
	case deleteMembers:
		return action.DeleteMembers{UID: setUID}
	case writeList:
		was, to := s.todo.was.record(), s.todo.list.record()
		return action.WriteList{ListSize: int32(a.argument), Record: to, From: was, Replicas: int32(a.generation)}
	case deleteJob:
		return action.DeleteJob{Name: m.jobName(s, i, a.argument), UID: jobUIDs[i][a.argument]}
	}
	return m.actionOnClaim(s, a)
}

func (m *model) jobName(s *state, i, instance int8) string {
	for _, o := range []*objects{&s.seen, &s.live} {
		if j := o.instanceOf(i, instance); j != nil {
			name, uid := claimName(s, i, j.generation), claimUIDs[i][j.generation]
			if j.target.moves() {
				return build.MoveName(name, uid, m.nameOf(j.target))
			}
			return build.DrainName(name, uid)
		}
	}
	return "gone"
}

func (m *model) actionOnClaim(s *state, a step) action.Action {
	i := a.ordinal
	ref := action.ClaimRef{Name: claimName(s, i, a.generation), UID: claimUIDs[i][a.generation], Ordinal: int32(i)}
	volume, to := volumeOf(s, i, a.generation), claimNames[i][a.generation]
	switch a.verb {
	case addClaimFinalizer:
		return action.AddClaimFinalizer{Claim: ref}
	case markLeaving:
		return action.MarkLeaving{Claim: ref, Unmoved: a.argument == 1}
	case createDrain:
		return action.CreateDrain{Claim: ref, Survivors: action.Range{Count: int32(a.argument)}}
	case recordReceipt:
		return action.RecordReceipt{Claim: ref, Receipt: known[i][a.generation][a.argument]}
	case clearRetry:
		return action.ClearRetry{Claim: ref}
	case countFailure:
		return action.CountFailure{Claim: ref, Attempts: action.Attempts{Failed: 1, Last: jobUIDs[i][a.argument]}}
	case deleteClaim:
		return action.DeleteClaim{Claim: ref, Why: reasons[a.argument]}
	case releaseClaim:
		return action.ReleaseClaim{Claim: ref, Why: reasons[a.argument]}
	case setAside:
		return action.SetAside{Claim: ref}
	case reserveVolume:
		return action.ReserveVolume{Claim: ref, Volume: volume, To: to}
	case createAside:
		return action.CreateAside{Claim: ref, Volume: volume, To: to, StoredBy: int64(a.target.serial)}
	case returnVolume:
		return action.ReturnVolume{Claim: ref, Volume: volume, From: to}
	case skipAside:
		return action.SkipToo{Claim: ref}
	case carryOver:
		return action.CarryOver{Claim: ref}
	case noteRestored:
		return action.NoteRestored{Claim: ref, Hold: true}
	case createMove:
		return action.CreateMove{Claim: ref, Target: m.nameOf(a.target), Members: int32(a.target.size), Lost: a.target.without(), Prepared: a.argument == isPrepared}
	case beginMove:
		return action.BeginMove{Claim: ref, Target: m.nameOf(a.target)}
	case clearMoving:
		return action.ClearMoveRetry{Claim: ref}
	case recordMoved:
		out := action.RecordMoved{Claim: ref, Serial: int64(a.target.serial), Target: m.nameOf(a.target)}
		if a.argument != bySkip {
			out.Receipt = m.told(m.moveReceipt(&drainer{state: succeeded, generation: a.generation, target: a.target, said: goodReceipt}, i))
		}
		return out
	}
	panic(fmt.Sprintf("no action of the plan is %s", a.verb))
}

// volumeOf is the volume of the claim of this generation. If the claim is gone, volumeOf is the volume that
// waits for the claim that was to take it over.
func volumeOf(s *state, i, generation int8) string {
	for _, o := range []*objects{&s.seen, &s.live} {
		if c := o.claimOf(i, generation); c != nil {
			return volumeNames[i][c.volume]
		}
	}
	at := slices.IndexFunc(s.volumes[i][:], func(v volume) bool { return v.name != 0 && v.of == generation })
	if at < 0 {
		return "gone"
	}
	return volumeNames[i][s.volumes[i][at].name]
}
