package observe

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/ask"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/controllers/internal/ring"
	"example.com/memcached-operator/drainer/contract"
)

// Routers are the objects that belong to spec.router, and what routers were told. An object that
// doesn't exist is nil.
type Routers struct {
	Deployment *appsv1.Deployment
	Service    *corev1.Service
	// Table has the table of the rings.
	Table *corev1.ConfigMap
	// Told is the table that routers were told last: the one in Table or, if that was deleted or
	// damaged, the last one that this process has seen there.
	Told *contract.RingTable
	// Since is when routers were told that table.
	Since time.Time
	// SignedByOther: neither this operator nor the one before it has signed what routers were told.
	SignedByOther bool
	// Signer is the signer of new tables.
	Signer string
	Budget *policyv1.PodDisruptionBudget
	Policy *networkingv1.NetworkPolicy
	Pods   []corev1.Pod
	// Behind are the routers that have not acknowledged the table, as far as is known.
	Behind []ask.Behind
	// Acknowledged: all running routers have acknowledged the table.
	Acknowledged bool
	// Silent: some routers may serve and can't be asked.
	Silent bool
}

// any tells whether one of the objects exists.
func (r *Routers) any() bool {
	return r.Deployment != nil || r.Service != nil || r.Table != nil || r.Budget != nil || r.Policy != nil
}

// told is the table that the routers of a cluster were told last; nil if they were told none.
func (r *Reader) told(c *cachev1alpha1.Memcached, config *corev1.ConfigMap, now time.Time) *contract.RingTable {
	if c.Spec.Router == nil {
		return nil
	}
	if t := build.RouterTableIn(c, config); t != nil && build.RouterTableNumber(config, now) > 0 {
		return t
	}
	return r.Rings.Given(client.ObjectKeyFromObject(c), string(c.UID))
}

// toldSince is when the table was written. If its number is ahead of the clock, toldSince is when
// this process first saw it.
func (r *Reader) toldSince(c *cachev1alpha1.Memcached, t *contract.RingTable, now time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	since := contract.NumberTime(t.Number)
	if since.After(now) {
		return r.Rings.GivenSince(client.ObjectKeyFromObject(c), t.Number, now)
	}
	return since
}

// planTable translates the table that routers were told for the plan; nil for nil. in must have the
// record of the list.
func planTable(c *cachev1alpha1.Memcached, in *plan.Observed, t *contract.RingTable, since time.Time, acknowledged bool) *ring.Table {
	if t == nil {
		return nil
	}
	routed := func(told *contract.Ring) ring.Ring {
		return build.RouterRing(c, told, in.Record.Ring, in.Record.From, in.Cluster.Ring)
	}
	return &ring.Table{State: t.State, Old: routed(t.Old), New: routed(&t.New), Shared: t.Shared, Since: since, Acknowledged: acknowledged}
}

func (r *Reader) observeRouters(ctx context.Context, key client.ObjectKey, o *State) (err error) {
	name := build.RouterName(key.Name)
	if o.Routers.Deployment, err = Own[appsv1.Deployment](ctx, r, o.Cluster, name); err != nil {
		return err
	}
	if o.Routers.Service, err = Own[corev1.Service](ctx, r, o.Cluster, name); err != nil {
		return err
	}
	if o.Routers.Table, err = Own[corev1.ConfigMap](ctx, r, o.Cluster, name); err != nil {
		return err
	}
	o.Routers.Signer = r.Rings.Signer()
	o.Routers.Told = r.told(o.Cluster, o.Routers.Table, o.Now)
	if o.Routers.Budget, err = Own[policyv1.PodDisruptionBudget](ctx, r, o.Cluster, name); err != nil {
		return err
	}
	o.Routers.Policy, err = Own[networkingv1.NetworkPolicy](ctx, r, o.Cluster, name)
	return err
}

// observeRings asks the running routers whether they have acknowledged the table. A router that is
// ending still answers applications until its grace period is over. A router that starts during a
// ring change may have got an older table.
func (r *Reader) observeRings(key client.ObjectKey, o *State) {
	o.Routers.Since = r.toldSince(o.Cluster, o.Routers.Told, o.Now)
	if r.Rings == nil || o.Routers.Told == nil || o.Cluster.DeletionTimestamp != nil {
		r.Rings.Forget(key)
		return
	}
	run, silent := o.routersServe()
	t := o.Routers.Told
	t.Key = string(o.Cluster.UID) // another client may have written another key
	o.Routers.Behind = r.Rings.Behind(key, func(p *corev1.Pod) int32 { return build.AskedAt(p, build.RouterAdminPort(o.Cluster)) }, t, run...)
	if t.State != contract.RingStable {
		for _, p := range silent {
			since := o.Routers.Since
			if p.CreationTimestamp.After(since) {
				since = p.CreationTimestamp.Time
			}
			o.Routers.Behind = append(o.Routers.Behind, ask.Behind{Pod: p.Name, Since: since})
		}
	}
	o.Routers.SignedByOther = r.Rings.SignedByOther(key, t)
	o.Routers.Acknowledged, o.Routers.Silent = len(o.Routers.Behind) == 0, len(silent) > 0
}

// routersServe returns the running routers, and those that can't be asked but may serve. The silent
// ones have a node and don't run yet, so their kubelet may have read the table already; or they
// should have ended, but their kubelet, which may be unreachable, has not reported that.
func (o *State) routersServe() (run, silent []*corev1.Pod) {
	for i := range o.Routers.Pods {
		p := &o.Routers.Pods[i]
		over := p.DeletionTimestamp != nil && p.DeletionTimestamp.Time.Before(o.Now)
		switch {
		case read.PodEnded(p):
		case !over && p.Status.Phase == corev1.PodRunning && p.Status.PodIP != "":
			run = append(run, p)
		case p.Spec.NodeName != "":
			silent = append(silent, p)
		}
	}
	return run, silent
}
