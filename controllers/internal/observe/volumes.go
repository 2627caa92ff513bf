package observe

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/plan"
)

// observeVolumes reads, live, the volumes that may have to be set aside.
func (r *Reader) observeVolumes(ctx context.Context, o *State) error {
	o.Where = map[types.UID]claims.Where{}
	for i := range o.Claims {
		c := &o.Claims[i]
		p, ok := PlanClaim(o.Cluster.Name, c)
		returns := !p.LeavingSince.IsZero() && !p.Aside && p.Ordinal < *o.Cluster.Spec.Size
		if !ok || p.Volume == "" || !returns && (!p.Finalizer || !p.Deleting) {
			continue
		}
		where, err := r.For(o.Cluster).Where(ctx, c, &p)
		if err != nil {
			return err
		}
		o.Where[p.UID] = where
	}
	return nil
}

// VolumesWait tells whether a volume waits for a change that no watch reports.
func VolumesWait(p *plan.Plan) bool {
	return len(p.DeletedClaims) > 0 || slices.ContainsFunc(p.Drains, func(d claims.DrainState) bool { return d.Reason == claims.SettingAside })
}
