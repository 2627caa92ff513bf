// Package notcreated finds out why pods are not created that should be there. A
// StatefulSet and a Job have no condition that says why a pod can't be made (a quota, Pod
// Security, a webhook): their controllers leave events only. These are read when a pod has
// been missing for a while, and no watch is kept on them: a cluster has many.
package notcreated

import (
	"context"
	"maps"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/memory"
	"example.com/memcached-operator/controllers/internal/status"
)

const (
	// missingAfter is how long a pod may be missing: its controller needs a moment.
	missingAfter = 10 * time.Second
	// lookInterval is how often events are read while it is missing.
	lookInterval = 15 * time.Second
	// maxLooks bounds how many owners' events one reconcile reads, maxEvents those of
	// each. The recorder lets an owner have 25 at once.
	maxLooks, maxEvents = 4, 128
	// reasonFailedCreate is Kubernetes' word in these events.
	reasonFailedCreate = "FailedCreate"
)

// Owner is an object whose controller should have made a pod, and has not.
type Owner struct {
	UID        types.UID
	Kind, Name string
	// newest is when its last pod was made, or else the object: what was said before
	// that is history.
	newest time.Time
}

// Members returns the StatefulSet if it lacks one of these pods of its members, or nil.
// There may be no StatefulSet.
func Members(sts *appsv1.StatefulSet, pods []corev1.Pod) *Owner {
	if sts == nil || sts.DeletionTimestamp != nil {
		return nil
	}
	there, newest := map[int32]bool{}, sts.CreationTimestamp.Time
	replicas := ptr.Deref(sts.Spec.Replicas, 1)
	for i := range pods {
		ordinal, ok := build.PodOrdinal(sts.Name, pods[i].Name)
		if ok && ordinal < replicas {
			there[ordinal], newest = true, later(newest, pods[i].CreationTimestamp.Time)
		}
	}
	if len(there) >= int(replicas) {
		return nil
	}
	return &Owner{UID: sts.UID, Kind: "StatefulSet", Name: sts.Name, newest: newest}
}

// Drainer returns the Job, which has not ended, if none of these pods is at work for it,
// or nil.
func Drainer(job *batchv1.Job, pods []corev1.Pod) *Owner {
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
	return &Owner{UID: job.UID, Kind: "Job", Name: job.Name, newest: newest}
}

// Reason why an object lacks a pod.
type Reason struct {
	// Since when it has been seen to lack one.
	Since time.Time
	// Why, as its controller was told last; empty if nobody knows.
	Why string
}

// lack is what is known of an object that lacks a pod.
type lack struct {
	Reason
	looked time.Time
}

// Pods remembers since when pods of each cluster have been missing, and why.
type Pods struct{ kept memory.Of[map[types.UID]lack] }

// Why the owners lack pods, by their UID, and when to look again; 0 stands for never. Live
// is asked for nothing if there are none, and never for more than a few of them at once.
func (p *Pods) Why(
	ctx context.Context, live client.Reader, cluster client.ObjectKey, owners []*Owner, now time.Time,
) (reasons map[types.UID]Reason, again time.Duration) {
	known, looks := p.remember(cluster, owners, now), 0
	reasons = map[types.UID]Reason{}
	for _, owner := range owners {
		l, next := known[owner.UID], lookInterval
		if due := later(l.Since.Add(missingAfter), l.looked.Add(lookInterval)); now.Before(due) || looks == maxLooks {
			next = max(due.Sub(now), time.Second)
		} else {
			l.Why, l.looked = whyNotCreated(ctx, live, cluster.Namespace, owner), now
			p.learn(cluster, owner.UID, l)
			looks++
		}
		if again == 0 || next < again {
			again = next
		}
		reasons[owner.UID] = l.Reason
	}
	return reasons, again
}

// Forget a Memcached that is gone.
func (p *Pods) Forget(cluster client.ObjectKey) { p.kept.Forget(cluster) }

// remember begins with those that are new, drops those that lack none any more, and
// returns a copy.
func (p *Pods) remember(cluster client.ObjectKey, owners []*Owner, now time.Time) map[types.UID]lack {
	known := map[types.UID]lack{}
	if len(owners) == 0 {
		p.kept.Forget(cluster)
		return known
	}
	p.kept.Use(cluster, func(kept *map[types.UID]lack) {
		for _, owner := range owners {
			before, ok := (*kept)[owner.UID]
			if !ok {
				before.Since = now
			}
			known[owner.UID] = before
		}
		*kept = maps.Clone(known)
	})
	return known
}

// learn keeps what was found out.
func (p *Pods) learn(cluster client.ObjectKey, uid types.UID, l lack) {
	p.kept.Use(cluster, func(kept *map[types.UID]lack) { (*kept)[uid] = l })
}

// whyNotCreated is what the object's controller was told last; empty for nothing.
func whyNotCreated(ctx context.Context, live client.Reader, namespace string, owner *Owner) string {
	var events corev1.EventList
	err := live.List(ctx, &events, client.InNamespace(namespace), client.Limit(maxEvents),
		client.MatchingFields{"involvedObject.uid": string(owner.UID), "reason": reasonFailedCreate})
	if err != nil {
		logf.FromContext(ctx).V(1).Info("Can't read why a pod is missing", "kind", owner.Kind, "name", owner.Name, "error", err.Error())
		return ""
	}
	return lastFailure(events.Items, owner.newest)
}

// lastFailure is the message of the event that is the newest, and not older than that.
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
	return status.BoundMessage(why)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
