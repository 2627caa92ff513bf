package observe

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/identity"
	"example.com/memcached-operator/controllers/internal/status"
)

// observeCreation finds out why pods are missing, and why others are still there. If there are none of
// either, observeCreation reads nothing.
func (r *Reader) observeCreation(ctx context.Context, o *State) {
	var owners []*read.PodOwner
	if owner := membersWithoutPods(o.StatefulSet, o.Pods); owner != nil {
		owners = append(owners, owner)
	}
	about := map[types.UID]types.UID{}
	for _, job := range o.jobs().Active() {
		if owner := read.DrainerWithoutPod(job, o.DrainerPods); owner != nil {
			owners = append(owners, owner)
			about[job.UID] = identity.ClaimUID(job)
		}
	}
	undeletes, undeleted := read.OwnerOfUndeleted(o.StatefulSet, func(yield func(*corev1.Pod) bool) {
		for i := range o.Pods {
			if !yield(&o.Pods[i]) {
				return
			}
		}
	}, build.PodOrdinal)
	asked := owners
	if undeletes != nil {
		asked = append(slices.Clone(owners), undeletes)
	}
	reasons, wait := r.NotCreated.Why(ctx, r.Live, client.ObjectKeyFromObject(o.Cluster), asked, r.Clock.Now())
	o.NotEnded = read.NotEnded(undeletes, undeleted, reasons)
	o.Waits.AtMost(wait)
	for _, owner := range owners {
		reason, claim := reasons[owner.UID], about[owner.UID]
		switch {
		case reason.Why == "":
		case claim != "":
			o.DrainersNotCreated[claim] = claims.Wait{
				Reason: cachev1alpha1.ReasonPodNotCreated, Message: fmt.Sprintf("Job %s can't create its pod: %s", owner.Name, reason.Why), Since: reason.Since,
			}
		default:
			o.NotCreated = &status.NotCreated{Of: owner.Kind + " " + owner.Name, Why: reason.Why}
		}
	}
}

// membersWithoutPods returns the StatefulSet, which may be nil, if one of its members has no pod;
// otherwise nil.
func membersWithoutPods(sts *appsv1.StatefulSet, pods []corev1.Pod) *read.PodOwner {
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
	return &read.PodOwner{UID: sts.UID, Kind: "StatefulSet", Name: sts.Name, Newest: newest}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
