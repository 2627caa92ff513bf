package apply

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/claims/write"
	"example.com/memcached-operator/controllers/internal/observe"
)

// Label restores the label of the cluster's objects that the cache doesn't have, and adopts the
// claims among those found that existed before their members. Until then the plan doesn't know what
// belongs to the cluster, so an error ends the reconcile. If the API server denies such a write, it
// would deny the next one, too: then the state gets the object as it was read, and denied says why.
// For a paused cluster Label writes nothing.
func (a *Applier) Label(ctx context.Context, s *observe.State) (denied, failed error) {
	if observe.Paused(s.Cluster) {
		return nil, nil
	}
	for _, object := range s.Unlabelled {
		err := a.writer(s.Cluster).Label(ctx, object.DeepCopyObject().(client.Object))
		if read.Denied(err) {
			a.Reader.AddUnlabelled(s, object)
			denied = errors.Join(denied, a.deny(object.GetUID(), err))
			continue
		}
		failed = errors.Join(failed, err)
	}
	if s.Found != nil {
		refused, err := a.adopt(ctx, s)
		denied, failed = errors.Join(denied, refused), errors.Join(failed, err)
	}
	return denied, failed
}

// deny remembers until the end of the reconcile that the API server denies the object its label.
func (a *Applier) deny(object types.UID, err error) error {
	if a.denied == nil {
		a.denied = map[types.UID]bool{}
	}
	a.denied[object] = true
	return err
}

// labelFound is Label for the objects that the guards of this plan's steps have found.
func (r *run) labelFound(ctx context.Context) error {
	var failed error
	for _, object := range r.unlabelled {
		if !r.denied[object.GetUID()] {
			failed = errors.Join(failed, r.claims.Label(ctx, object))
		}
	}
	for _, why := range r.withoutLabel {
		failed = errors.Join(failed, errors.New(why))
	}
	for _, claim := range r.unadopted {
		err := r.adoptClaim(ctx, r.cluster, claim)
		write.NoteOutcome(r.Reader.Obstructed, client.ObjectKeyFromObject(r.cluster), claim.UID, err, r.now)
		failed = errors.Join(failed, err)
	}
	return failed
}
