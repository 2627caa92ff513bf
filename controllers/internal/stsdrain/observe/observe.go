// Package observe reads what belongs to a StatefulSetDrain: from the watches and the cache to plan, and live
// before steps that can't be undone. Package observe translates that for package stsdrain, and writes
// nothing.
//
//	owner.go    whose claims, Jobs and pods are   observe.go   from the watches and the cache
//	cache.go    the cache of labelled objects     live.go      live
//	look.go     claims without the label
package observe

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/ask"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/identity"
	"example.com/memcached-operator/controllers/internal/remembered"
	"example.com/memcached-operator/controllers/internal/stsdrain"
	"example.com/memcached-operator/controllers/internal/trim"
)

// Reader reads what belongs to StatefulSetDrains. The reconciler keeps its state.
type Reader struct {
	// Cache has StatefulSetDrains, Objects their claims, Jobs and drainers' pods.
	Cache, Objects client.Reader
	// See returns what is known of the StatefulSet that a StatefulSetDrain names, and of its pods.
	See func(drain client.ObjectKey, uid types.UID, set string) Seen
	// Live is the API server.
	Live       client.Reader
	Clock      clock.PassiveClock
	Unlabelled *read.UnlabelledClaims
	Seen       *remembered.Names
	Obstructed *remembered.Obstructions
	Looked     *Looked
	NotCreated *read.MissingPods
	Woken      *remembered.ByObject[Woken]
	Progress   *ask.Logs[Progress]
}

// Woken are the members for which the StatefulSet's controller was woken, by the StatefulSetDrain with
// this UID.
type Woken struct {
	By       types.UID
	Ordinals []int32
}

// Progress is what a drainer has counted, by a line of its log.
type Progress struct{ Done, Total int64 }

// maxCount bounds the counts of a drainer, which is not ours. The sum of such counts still fits into an
// int64.
const maxCount = 1 << 46

// ParseProgress parses a line of a drainer's log; nil for any other line.
func ParseProgress(line []byte) *Progress {
	var p struct{ Done, Total *int64 }
	if json.Unmarshal(line, &p) != nil || p.Done == nil || p.Total == nil || *p.Done < 0 || *p.Total < 1 || *p.Done > *p.Total || *p.Total > maxCount {
		return nil
	}
	return &Progress{*p.Done, *p.Total}
}

// State is what was observed of a StatefulSetDrain.
type State struct {
	Drain *cachev1alpha1.StatefulSetDrain
	// Set is the StatefulSet; nil if there is none. Members are the pods of its selector.
	Set     *appsv1.StatefulSet
	Members []*corev1.Pod
	// NotEnded has why Kubernetes can't delete the members' pods that are to go, by their ordinals.
	NotEnded map[int32]string
	// Reader reads its claims, Jobs and drainers' pods.
	Reader  *read.Reader
	Claims  []claims.Claim
	Foreign []stsdrain.Foreign
	Others  []stsdrain.Other
	Jobs    *read.Jobs
	// Progress is what drainers have counted, Waits why others are not at work, by the claim's UID.
	Progress    map[types.UID]Progress
	Waits       map[types.UID]claims.Wait
	Obstructed  map[types.UID]claims.Obstruction
	Terminating bool
	Woken       []int32
	Now         time.Time
	read.Requeue
}

// Observe reads what belongs to the StatefulSetDrain; nil while its watches are beginning, which report when
// they have begun.
func (r *Reader) Observe(ctx context.Context, d *cachev1alpha1.StatefulSetDrain) (*State, error) {
	key := client.ObjectKeyFromObject(d)
	seen := r.See(key, d.UID, d.Spec.StatefulSetName)
	if !seen.Known {
		return nil, nil
	}
	s := &State{Drain: d, Set: seen.Set, Members: seen.Pods, Now: r.Clock.Now(), Reader: r.For(d, seen.Set)}
	var err error
	if s.Others, err = others(ctx, r.Cache, d); err != nil {
		return nil, err
	}
	cached, err := s.Reader.Claims(ctx)
	if err != nil {
		return nil, err
	}
	if err := r.look(ctx, s, cached); err != nil {
		return nil, err
	}
	var pods corev1.PodList
	if err := r.Objects.List(ctx, &pods, client.InNamespace(d.Namespace), s.Reader.Cached); err != nil {
		return nil, err
	}
	if s.Jobs, err = s.Reader.Jobs(ctx, slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return !identity.DrainerPod(&p) })); err != nil {
		return nil, err
	}
	protects := slices.Contains(d.Finalizers, cachev1alpha1.OwnerFinalizer) // nothing is protected or noted when the namespace goes
	if d.DeletionTimestamp != nil || !protects || slices.ContainsFunc(s.Claims, func(c claims.Claim) bool { return c.Deleting || c.Unnoted || c.Fresh }) {
		if s.Terminating, err = read.NamespaceTerminates(ctx, r.Live, d.Namespace); err != nil {
			return nil, err
		}
	}
	s.Obstructed = r.Obstructed.Known(key, s.Now)
	r.Woken.Use(key, func(w *Woken) {
		if w.By == d.UID {
			s.Woken = w.Ordinals
		}
	})
	r.drainers(ctx, s)
	return s, nil
}

// For returns the reader of the claims, Jobs and drainers' pods of a StatefulSetDrain.
func (r *Reader) For(d *cachev1alpha1.StatefulSetDrain, set *appsv1.StatefulSet) *read.Reader {
	return &read.Reader{Owner: Owner(d, set), Cache: r.Objects, Live: r.Live, Clock: r.Clock, Unlabelled: r.Unlabelled, Seen: r.Seen}
}

// others are the other StatefulSetDrains that name the same StatefulSet.
func others(ctx context.Context, c client.Reader, d *cachev1alpha1.StatefulSetDrain) ([]stsdrain.Other, error) {
	var list cachev1alpha1.StatefulSetDrainList
	if err := c.List(ctx, &list, client.InNamespace(d.Namespace)); err != nil {
		return nil, fmt.Errorf("list the StatefulSetDrains of the namespace: %w", err)
	}
	var found []stsdrain.Other
	for i := range list.Items {
		if o := &list.Items[i]; o.UID != d.UID && o.Spec.StatefulSetName == d.Spec.StatefulSetName {
			found = append(found, stsdrain.Other{Name: o.Name, UID: o.UID, Created: o.CreationTimestamp.Time})
		}
	}
	return found, nil
}

// drainers asks drainers how far they are, and finds out why others are not at work.
func (r *Reader) drainers(ctx context.Context, s *State) {
	key := client.ObjectKeyFromObject(s.Drain)
	var run []*corev1.Pod
	for i := range s.Jobs.Pods {
		if read.AtWork(&s.Jobs.Pods[i]) {
			run = append(run, &s.Jobs.Pods[i])
		}
	}
	s.Progress = map[types.UID]Progress{}
	known := r.Progress.Want(key, run...)
	for _, pod := range run {
		if p, is := known[pod.UID]; is {
			s.Progress[identity.DutyOf(pod).Claim] = p
		}
	}
	var owners []*read.PodOwner
	of := map[types.UID]types.UID{}
	for _, job := range s.Jobs.Active() {
		if owner := read.DrainerWithoutPod(job, s.Jobs.Pods); owner != nil {
			owners = append(owners, owner)
			of[job.UID] = identity.ClaimUID(job)
		}
	}
	undeletes, undeleted := read.OwnerOfUndeleted(s.Set, slices.Values(s.Members), stsdrain.PodOrdinal)
	asked := owners
	if undeletes != nil {
		asked = append(slices.Clone(owners), undeletes)
	}
	reasons, wait := r.NotCreated.Why(ctx, r.Live, key, asked, s.Now)
	s.NotEnded = read.NotEnded(undeletes, undeleted, reasons)
	refused := map[types.UID]claims.Wait{}
	for _, owner := range owners {
		if why := reasons[owner.UID]; why.Why != "" {
			refused[of[owner.UID]] = claims.Wait{
				Reason: cachev1alpha1.ReasonPodNotCreated, Message: fmt.Sprintf("Job %s can't create its pod: %s", owner.Name, why.Why), Since: why.Since,
			}
		}
	}
	s.Waits = s.Reader.DrainerWaits(s.Jobs, refused, s.Now)
	s.AtMost(wait)
	s.AtMost(read.DrainerStarts(s.Jobs.Pods, s.Now))
}

// Input is what the plan depends on. refused says why the API server does not take the template.
func (s *State) Input(refused string) stsdrain.Observed {
	in := stsdrain.Observed{
		Facts:   claims.Facts{Now: s.Now, Claims: slices.Clone(s.Claims), Obstructed: s.Obstructed, NotEnded: s.NotEnded},
		Drain:   wants(s.Drain),
		Set:     set(s.Drain, s.Set),
		Foreign: s.Foreign, Others: s.Others, Woken: s.Woken,
	}
	claims.NoteLost(in.Claims)
	in.Drain.NamespaceTerminating = s.Terminating
	in.Drain.TemplateRefused = refused
	in.Pods, in.Ready = Ordinals(s.Drain.Spec.StatefulSetName, s.Set, s.Members)
	in.Jobs, in.Drainers, in.ClaimsWithDrainerPod, in.ClaimsWithDrainerAtWork = facts(s.Drain, s.Reader.Owner, s.Jobs)
	return in
}

// wants translates the StatefulSetDrain.
func wants(d *cachev1alpha1.StatefulSetDrain) stsdrain.Drain {
	out := stsdrain.Drain{
		Name: d.Name, UID: d.UID, Created: d.CreationTimestamp.Time, Parallelism: max(1, d.Spec.Parallelism),
		Finalizer: slices.Contains(d.Finalizers, cachev1alpha1.OwnerFinalizer),
	}
	out.Deleting = d.DeletionTimestamp != nil
	out.Policy, _ = read.Policy(cmp.Or(d.Spec.Policy, cachev1alpha1.PolicyDrain))
	return out
}

// RuleRefused says why spec.receipt can't be used; empty if it can.
func RuleRefused(d *cachev1alpha1.StatefulSetDrain) string {
	if _, err := stsdrain.CompileRule(d.Spec.Receipt); err != nil {
		return err.Error()
	}
	return ""
}

// set translates the StatefulSet, which may be nil.
func set(d *cachev1alpha1.StatefulSetDrain, s *appsv1.StatefulSet) stsdrain.StatefulSet {
	out := stsdrain.StatefulSet{Name: d.Spec.StatefulSetName}
	if s == nil {
		return out
	}
	out.Exists, out.Deleting, out.UID = true, s.DeletionTimestamp != nil, s.UID
	out.Version = stsdrain.SetVersion(s)
	out.Replicas = max(0, trim.Replicas(s))
	if s.Spec.Ordinals != nil {
		out.Start = max(0, s.Spec.Ordinals.Start)
	}
	for i := range s.Spec.VolumeClaimTemplates {
		out.Templates = append(out.Templates, s.Spec.VolumeClaimTemplates[i].Name)
	}
	out.OrderedReady = cmp.Or(s.Spec.PodManagementPolicy, appsv1.OrderedReadyPodManagement) == appsv1.OrderedReadyPodManagement
	if ref := metav1.GetControllerOfNoCopy(s); ref != nil && build.IsMemcached(ref) {
		out.Memcached = ref.Name
	}
	return out
}

// Ordinals returns the members that have a pod, or whose claims a pod of the selector mounts, and those
// that are ready.
func Ordinals(name string, set *appsv1.StatefulSet, pods []*corev1.Pod) (exist, ready []int32) {
	for _, pod := range pods {
		ordinal, member := stsdrain.PodOrdinal(name, pod.Name)
		if member && !slices.Contains(exist, ordinal) {
			exist = append(exist, ordinal)
		}
		if member && pod.DeletionTimestamp == nil && claims.PodReady(pod) && (set == nil || metav1.IsControlledBy(pod, set)) {
			ready = append(ready, ordinal)
		}
		for i := range pod.Spec.Volumes {
			claim := pod.Spec.Volumes[i].PersistentVolumeClaim
			if claim == nil {
				continue
			}
			if is, ok := stsdrain.ParseClaimName(name, claim.ClaimName); ok && !is.Aside && !slices.Contains(exist, is.Ordinal) {
				exist = append(exist, is.Ordinal)
			}
		}
	}
	slices.Sort(exist)
	slices.Sort(ready)
	return exist, ready
}

// facts translates Jobs and drainers' pods.
func facts(d *cachev1alpha1.StatefulSetDrain, owner *read.Owner, all *read.Jobs) (jobs []claims.Job, drainers []claims.Drainer, mounted, atWork []types.UID) {
	now := stsdrain.TemplateHash(d)
	pods := all.Drainers()
	for i := range all.Jobs {
		job := &all.Jobs[i]
		out := owner.Job(job, pods)
		out.Unstarted = out.State == claims.JobActive && read.Unstarted(job, pods)
		out.SetVersion = job.Annotations[cachev1alpha1.AnnotationStatefulSet]
		out.Outdated = job.Annotations[cachev1alpha1.AnnotationDrainer] != now
		jobs = append(jobs, out)
	}
	for i := range pods {
		if drainer, is := read.AsDrainer(&pods[i]); is {
			drainers = append(drainers, drainer)
		}
	}
	mounted, atWork = read.Mounted(pods)
	return jobs, drainers, mounted, atWork
}

// Started has the creation times of Jobs, by the claim's UID.
func (s *State) Started() map[types.UID]metav1.Time {
	started := map[types.UID]metav1.Time{}
	for i := range s.Jobs.Jobs {
		started[identity.ClaimUID(&s.Jobs.Jobs[i])] = s.Jobs.Jobs[i].CreationTimestamp
	}
	return started
}

// Member returns the pod of the member with this ordinal, or nil.
func (s *State) Member(ordinal int32) *corev1.Pod {
	for _, pod := range s.Members {
		if pod.Name == stsdrain.PodName(s.Drain.Spec.StatefulSetName, ordinal) {
			return pod
		}
	}
	return nil
}

// Mounts are the names of a unit's claims by the names of their templates: what a drain's Job mounts.
func Mounts(all []claims.Claim, refs ...action.ClaimRef) map[string]string {
	mounts := map[string]string{}
	for _, ref := range refs {
		for i := range all {
			if all[i].UID == ref.UID {
				mounts[all[i].Template] = ref.Name
			}
		}
	}
	return mounts
}
