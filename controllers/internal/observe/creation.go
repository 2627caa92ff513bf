package observe

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

// observeCreation finds out why pods are missing. If no pod is missing, it reads nothing.
func (r *Reader) observeCreation(ctx context.Context, o *State) {
	var owners []*notcreated.Owner
	if owner := notcreated.Members(o.StatefulSet, o.Pods); owner != nil {
		owners = append(owners, owner)
	}
	claims := map[types.UID]types.UID{}
	for _, job := range o.activeJobs() {
		if owner := notcreated.Drainer(job, o.DrainerPods); owner != nil {
			owners = append(owners, owner)
			claims[job.UID] = identity.ClaimUID(job)
		}
	}
	reasons, again := r.NotCreated.Why(ctx, r.Live, client.ObjectKeyFromObject(o.Cluster), owners, r.Clock.Now())
	o.Waits.AtMost(again)
	for _, owner := range owners {
		reason, claim := reasons[owner.UID], claims[owner.UID]
		switch {
		case reason.Why == "":
		case claim != "":
			o.DrainersNotCreated[claim] = status.Wait{
				Reason: cachev1alpha1.ReasonPodNotCreated, Message: fmt.Sprintf("Job %s can't create its pod: %s", owner.Name, reason.Why), Since: reason.Since,
			}
		default:
			o.NotCreated = &status.NotCreated{Of: owner.Kind + " " + owner.Name, Why: reason.Why}
		}
	}
}
