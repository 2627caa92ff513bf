package read

import (
	"context"
	"maps"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/remembered"
)

const (
	// missingAfter is how long a pod may be missing: its controller needs a moment.
	missingAfter = 10 * time.Second
	// lookInterval is how often events are read while it is missing.
	lookInterval = 15 * time.Second
	// maxLooks bounds how many owners' events one reconcile reads, maxEvents how many of
	// each. The recorder allows an owner 25 at once.
	maxLooks, maxEvents = 4, 128
	// reasonFailedCreate is the reason of these events.
	reasonFailedCreate = "FailedCreate"
)

// PodOwner is an object whose controller should have created a pod, and has not.
type PodOwner struct {
	UID        types.UID
	Kind, Name string
	// Newest is when its last pod was created, or else the object itself. Older events
	// don't count.
	Newest time.Time
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

// Lack is why an object lacks a pod.
type Lack struct {
	// Since when it has been missing.
	Since time.Time
	// Why is the last refusal that its controller reported; empty if none is known.
	Why string
}

// lack is what is known of an object whose pod is missing.
type lack struct {
	Lack
	looked time.Time
}

// MissingPods remembers since when pods of each owner have been missing, and why. When a quota, Pod
// Security or a webhook refuses a pod, StatefulSets and Jobs have no condition that says so: their
// controllers only leave events. These are read when a pod has been missing for a while. They are not
// watched, because a cluster has many.
type MissingPods struct {
	kept remembered.ByObject[map[types.UID]lack]
}

// Why the owners' pods are missing, by the owner's UID, and when to look again; 0 for
// never. If no owner is given, live is not read; at most a few owners' events are read at
// once.
func (p *MissingPods) Why(
	ctx context.Context, live client.Reader, cluster client.ObjectKey, owners []*PodOwner, now time.Time,
) (reasons map[types.UID]Lack, again time.Duration) {
	known, looks := p.remember(cluster, owners, now), 0
	reasons = map[types.UID]Lack{}
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
		reasons[owner.UID] = l.Lack
	}
	return reasons, again
}

// Forget an owner that is gone.
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

// learn stores what was found out.
func (p *MissingPods) learn(cluster client.ObjectKey, uid types.UID, l lack) {
	p.kept.Use(cluster, func(kept *map[types.UID]lack) { (*kept)[uid] = l })
}

// whyNotCreated is the last refusal that the object's controller reported; empty for
// none.
func whyNotCreated(ctx context.Context, live client.Reader, namespace string, owner *PodOwner) string {
	var events corev1.EventList
	err := live.List(ctx, &events, client.InNamespace(namespace), client.Limit(maxEvents),
		client.MatchingFields{"involvedObject.uid": string(owner.UID), "reason": reasonFailedCreate})
	if err != nil {
		logf.FromContext(ctx).V(1).Info("Can't read why a pod is missing", "kind", owner.Kind, "name", owner.Name, "error", err.Error())
		return ""
	}
	return lastFailure(events.Items, owner.Newest)
}

// lastFailure is the message of the newest event that is not older than that.
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
