package controllers

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/memory"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/controllers/internal/status"
)

// A StatefulSet and a Job have no condition that says why a pod can't be made (a quota,
// Pod Security, a webhook): their controllers leave events only. These are read when a
// pod has been missing for a while, and no watch is kept on them: a cluster has many.
const (
	// missingAfter is how long a pod may be missing: its controller needs a moment.
	missingAfter = 10 * time.Second
	// creationInterval is how often events are read while it is missing.
	creationInterval = 15 * time.Second
	// maxLooks bounds how many owners' events one reconcile reads, maxEvents those of
	// each. The recorder lets an owner have 25 at once.
	maxLooks, maxEvents = 4, 128
	// reasonFailedCreate is Kubernetes' word in these events.
	reasonFailedCreate = "FailedCreate"
)

// lacking is an object whose controller should have made a pod.
type lacking struct {
	uid        types.UID
	kind, name string
	// claim of a Job's drainer; empty for members.
	claim types.UID
	// newest is when its last pod was made, or else the object: what was said before
	// that is history.
	newest time.Time
}

// lack is since when, and why, an object lacks a pod.
type lack struct {
	since, looked time.Time
	why           string
}

// observeCreation finds out why pods are missing. It reads nothing while none is.
func (r *MemcachedReconciler) observeCreation(ctx context.Context, o *observed) {
	lacks, now, looks := o.lacks(), r.Clock.Now(), 0
	known := r.lacks.remember(o.cluster, lacks, now)
	for i := range lacks {
		owner, l := &lacks[i], known[lacks[i].uid]
		if due := later(l.since.Add(missingAfter), l.looked.Add(creationInterval)); now.Before(due) || looks == maxLooks {
			o.waits.atMost(max(due.Sub(now), time.Second))
		} else {
			l.why, l.looked = r.whyNotCreated(ctx, o.cluster.Namespace, owner), now
			r.lacks.learn(o.cluster, owner.uid, l)
			o.waits.atMost(creationInterval)
			looks++
		}
		o.noteLack(owner, l)
	}
}

// noteLack hands what was found to the status.
func (o *observed) noteLack(owner *lacking, l lack) {
	switch {
	case l.why == "":
	case owner.claim != "":
		o.drainersNotCreated[owner.claim] = status.Wait{
			Reason: cachev1alpha1.ReasonPodNotCreated, Message: fmt.Sprintf("Job %s can't create its pod: %s", owner.name, l.why), Since: l.since,
		}
	default:
		o.notCreated = &status.NotCreated{Of: owner.kind + " " + owner.name, Why: l.why}
	}
}

// lacks are the StatefulSet and the Jobs that lack a pod.
func (o *observed) lacks() []lacking {
	var found []lacking
	if sts := o.statefulSet; sts != nil && sts.DeletionTimestamp == nil {
		there, newest := map[int32]bool{}, sts.CreationTimestamp.Time
		replicas := ptr.Deref(sts.Spec.Replicas, 1)
		for i := range o.pods {
			ordinal, ok := build.PodOrdinal(o.cluster.Name, o.pods[i].Name)
			if ok && ordinal < replicas {
				there[ordinal], newest = true, later(newest, o.pods[i].CreationTimestamp.Time)
			}
		}
		if len(there) < int(replicas) {
			found = append(found, lacking{uid: sts.UID, kind: kindStatefulSet, name: sts.Name, newest: newest})
		}
	}
	for _, jobs := range [][]batchv1.Job{o.jobs, o.placements} {
		for i := range jobs {
			if job, newest := &jobs[i], o.lacksPod(&jobs[i]); !newest.IsZero() {
				found = append(found, lacking{uid: job.UID, kind: "Job", name: job.Name, claim: claimUID(job), newest: newest})
			}
		}
	}
	return found
}

// lacksPod is when the Job made its last pod, or was made itself, where none is at work;
// else zero.
func (o *observed) lacksPod(job *batchv1.Job) time.Time {
	if jobState(job) != plan.JobActive || job.DeletionTimestamp != nil {
		return time.Time{}
	}
	newest := job.CreationTimestamp.Time
	for i := range o.drainerPods {
		pod := &o.drainerPods[i]
		if pod.Labels[batchv1.JobNameLabel] != job.Name {
			continue
		}
		if pod.Status.Phase != corev1.PodFailed {
			return time.Time{}
		}
		newest = later(newest, pod.CreationTimestamp.Time)
	}
	return newest
}

// whyNotCreated is what the object's controller was told last; empty for nothing.
func (r *MemcachedReconciler) whyNotCreated(ctx context.Context, namespace string, owner *lacking) string {
	var events corev1.EventList
	err := r.Live.List(ctx, &events, client.InNamespace(namespace), client.Limit(maxEvents),
		client.MatchingFields{"involvedObject.uid": string(owner.uid), "reason": reasonFailedCreate})
	if err != nil {
		logf.FromContext(ctx).V(1).Info("Can't read why a pod is missing", "kind", owner.kind, "name", owner.name, "error", err.Error())
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
	return status.Bound(why)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// lackMemory keeps since when the objects of each cluster lack pods.
type lackMemory struct{ memory.Of[map[types.UID]lack] }

// remember begins with those that are new, drops those that lack none any more, and
// returns a copy.
func (m *lackMemory) remember(cluster metav1.Object, lacks []lacking, now time.Time) map[types.UID]lack {
	known := map[types.UID]lack{}
	key := client.ObjectKey{Namespace: cluster.GetNamespace(), Name: cluster.GetName()}
	if len(lacks) == 0 {
		m.Forget(key)
		return known
	}
	m.Use(key, func(kept *map[types.UID]lack) {
		for _, l := range lacks {
			before, ok := (*kept)[l.uid]
			if !ok {
				before.since = now
			}
			known[l.uid] = before
		}
		*kept = maps.Clone(known)
	})
	return known
}

// learn keeps what was found out.
func (m *lackMemory) learn(cluster metav1.Object, uid types.UID, l lack) {
	m.Use(client.ObjectKey{Namespace: cluster.GetNamespace(), Name: cluster.GetName()}, func(kept *map[types.UID]lack) {
		(*kept)[uid] = l
	})
}
