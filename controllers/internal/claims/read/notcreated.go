package read

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/remembered"
)

const (
	// missingAfter is how long a pod may be missing: its controller needs a moment.
	missingAfter = 10 * time.Second
	// lookInterval is how often events are read while a pod is missing.
	lookInterval = 15 * time.Second
	// maxLooks bounds how many owners' events one reconcile reads, maxEvents how many of
	// each. The recorder allows an owner 25 at once.
	maxLooks, maxEvents = 4, 128
	// The reasons of these events.
	reasonFailedCreate = "FailedCreate"
	reasonFailedDelete = "FailedDelete"
)

// PodOwner is an object whose controller should have created or deleted a pod, and has not.
type PodOwner struct {
	UID        types.UID
	Kind, Name string
	// Newest is when its last pod was created, or else the object itself. Older events
	// don't count.
	Newest time.Time
	// Undeleted is the UID of the pod that it should have deleted, empty if a pod is missing.
	Undeleted types.UID
}

// id is the UID under which MissingPods remembers the owner.
func (o *PodOwner) id() types.UID { return cmp.Or(o.Undeleted, o.UID) }

// OwnerOfUndeleted returns the StatefulSet, which may be nil, if it should have deleted one of these pods;
// otherwise nil. Undeleted has the ordinals of all such pods. The StatefulSet's controller begins with the
// highest one.
func OwnerOfUndeleted(
	set *appsv1.StatefulSet, pods iter.Seq[*corev1.Pod], ordinalOf func(set, pod string) (int32, bool),
) (owner *PodOwner, undeleted []int32) {
	if set == nil {
		return nil, nil
	}
	start := int32(0)
	if set.Spec.Ordinals != nil {
		start = set.Spec.Ordinals.Start
	}
	end := start + ptr.Deref(set.Spec.Replicas, 1)
	for pod := range pods {
		ordinal, is := ordinalOf(set.Name, pod.Name)
		if !is || pod.DeletionTimestamp != nil || start <= ordinal && ordinal < end || !metav1.IsControlledBy(pod, set) {
			continue
		}
		if len(undeleted) == 0 || ordinal > slices.Max(undeleted) {
			owner = &PodOwner{UID: set.UID, Kind: "StatefulSet", Name: set.Name, Newest: pod.CreationTimestamp.Time, Undeleted: pod.UID}
		}
		undeleted = append(undeleted, ordinal)
	}
	return owner, undeleted
}

// DrainerWithoutPod returns the Job, which has not ended, if it has no pod; otherwise nil.
func DrainerWithoutPod(job *batchv1.Job, pods []corev1.Pod) *PodOwner {
	if job.DeletionTimestamp != nil {
		return nil
	}
	newest := job.CreationTimestamp.Time
	for i := range pods {
		pod := &pods[i]
		if pod.Labels[batchv1.JobNameLabel] != job.Name {
			continue
		}
		if pod.Status.Phase != corev1.PodFailed {
			return nil
		}
		newest = later(newest, pod.CreationTimestamp.Time)
	}
	return &PodOwner{UID: job.UID, Kind: "Job", Name: job.Name, Newest: newest}
}

// NotEnded is why these members have not ended, as in claims.Facts.
func NotEnded(owner *PodOwner, undeleted []int32, reasons map[types.UID]Lack) map[int32]string {
	if owner == nil || reasons[owner.id()].Why == "" {
		return nil
	}
	notEnded := map[int32]string{}
	for _, ordinal := range undeleted {
		notEnded[ordinal] = reasons[owner.id()].Why
	}
	return notEnded
}

// Lack is why an object lacks a pod.
type Lack struct {
	// Since is when the pod was first missing.
	Since time.Time
	// Why is the last refusal that its controller reported; empty if none is known.
	Why string
}

// lack has the known facts about an object whose pod is missing.
type lack struct {
	Lack
	looked time.Time
}

// MissingPods remembers since when pods of each owner have been missing, and why. When a quota, Pod Security
// or a webhook refuses a pod, StatefulSets and Jobs have no condition that says so: their controllers only
// leave events. The events of an owner are read when a pod has been missing for a while, and are not watched,
// because a cluster has many.
type MissingPods struct {
	kept remembered.ByObject[map[types.UID]lack]
}

// Why returns why the owners' pods are missing, or still there, by the owner's UID or that of the pod, and
// when to look again; 0 for never. If no owner is given, live is not read; at most a few owners' events are
// read at once.
func (p *MissingPods) Why(
	ctx context.Context, live client.Reader, cluster client.ObjectKey, owners []*PodOwner, now time.Time,
) (reasons map[types.UID]Lack, wait time.Duration) {
	known, looks := p.remember(cluster, owners, now), 0
	reasons = map[types.UID]Lack{}
	for _, owner := range owners {
		l, next := known[owner.id()], lookInterval
		if due := later(l.Since.Add(missingAfter), l.looked.Add(lookInterval)); now.Before(due) || looks == maxLooks {
			next = max(due.Sub(now), time.Second)
		} else {
			l.Why, l.looked = whyNot(ctx, live, cluster.Namespace, owner), now
			p.learn(cluster, owner.id(), l)
			looks++
		}
		if wait == 0 || next < wait {
			wait = next
		}
		reasons[owner.id()] = l.Lack
	}
	return reasons, wait
}

// Forget forgets an owner that is gone.
func (p *MissingPods) Forget(cluster client.ObjectKey) { p.kept.Forget(cluster) }

// remember adds new owners, drops those whose pods are back, and returns a copy.
func (p *MissingPods) remember(cluster client.ObjectKey, owners []*PodOwner, now time.Time) map[types.UID]lack {
	known := map[types.UID]lack{}
	if len(owners) == 0 {
		p.kept.Forget(cluster)
		return known
	}
	p.kept.Use(cluster, func(kept *map[types.UID]lack) {
		for _, owner := range owners {
			before, ok := (*kept)[owner.id()]
			if !ok {
				before.Since = now
			}
			known[owner.id()] = before
		}
		*kept = maps.Clone(known)
	})
	return known
}

// learn stores the result of a look.
func (p *MissingPods) learn(cluster client.ObjectKey, uid types.UID, l lack) {
	p.kept.Use(cluster, func(kept *map[types.UID]lack) { (*kept)[uid] = l })
}

// whyNot is the last refusal that the object's controller reported; empty for none.
func whyNot(ctx context.Context, live client.Reader, namespace string, owner *PodOwner) string {
	var events corev1.EventList
	reason := reasonFailedCreate
	if owner.Undeleted != "" {
		reason = reasonFailedDelete
	}
	err := live.List(ctx, &events, client.InNamespace(namespace), client.Limit(maxEvents),
		client.MatchingFields{"involvedObject.uid": string(owner.UID), "reason": reason})
	if err != nil {
		logf.FromContext(ctx).V(1).Info("Can't read why a pod is missing, or still there", "kind", owner.Kind, "name", owner.Name, "error", err.Error())
		return ""
	}
	return lastFailure(events.Items, owner.Newest)
}

// lastFailure is the message of the newest event that is not older than since.
func lastFailure(events []corev1.Event, since time.Time) string {
	why := ""
	for i := range events {
		e := &events[i]
		at := later(later(e.LastTimestamp.Time, e.EventTime.Time), e.CreationTimestamp.Time)
		if e.Series != nil {
			at = later(at, e.Series.LastObservedTime.Time)
		}
		if !at.Before(since) {
			why, since = strings.ToValidUTF8(e.Message, ""), at
		}
	}
	return claims.BoundMessage(why)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
