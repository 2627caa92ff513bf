package controllers

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/identity"
	"example.com/memcached-operator/controllers/internal/notcreated"
	"example.com/memcached-operator/controllers/internal/status"
)

// observeCreation finds out why pods are missing. It reads nothing while none is.
func (r *MemcachedReconciler) observeCreation(ctx context.Context, o *observed) {
	var owners []*notcreated.Owner
	if owner := notcreated.Members(o.statefulSet, o.pods); owner != nil {
		owners = append(owners, owner)
	}
	claims := map[types.UID]types.UID{}
	for _, job := range o.activeJobs() {
		if owner := notcreated.Drainer(job, o.drainerPods); owner != nil {
			owners = append(owners, owner)
			claims[job.UID] = identity.ClaimUID(job)
		}
	}
	reasons, again := r.notCreated.Why(ctx, r.Live, client.ObjectKeyFromObject(o.cluster), owners, r.Clock.Now())
	o.waits.atMost(again)
	for _, owner := range owners {
		reason, claim := reasons[owner.UID], claims[owner.UID]
		switch {
		case reason.Why == "":
		case claim != "":
			o.drainersNotCreated[claim] = status.Wait{
				Reason: cachev1alpha1.ReasonPodNotCreated, Message: fmt.Sprintf("Job %s can't create its pod: %s", owner.Name, reason.Why), Since: reason.Since,
			}
		default:
			o.notCreated = &status.NotCreated{Of: owner.Kind + " " + owner.Name, Why: reason.Why}
		}
	}
}
