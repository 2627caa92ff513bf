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
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/controllers/internal/ring"
	"example.com/memcached-operator/drainer/contract"
)

// Routers are what belongs to spec.router; what there is not is nil.
type Routers struct {
	Deployment *appsv1.Deployment
	Service    *corev1.Service
	// Table has the table of the rings.
	Table *corev1.ConfigMap
	// Told is what routers were told last: that table, or if somebody has deleted or spoilt it, the one that
	// this process has seen there before.
	Told *contract.RingTable
	// Since is when they were.
	Since time.Time
	// Strange: neither this operator nor the one before it has signed what routers were told.
	Strange bool
	// Signer is that of new tables.
	Signer string
	Budget *policyv1.PodDisruptionBudget
	Policy *networkingv1.NetworkPolicy
	Pods   []corev1.Pod
	// Behind are those that have not acknowledged the table, as far as is known.
	Behind []ask.Behind
	// Acknowledged: by all that run.
	Acknowledged bool
	// Silent: there are some that may serve, and can't be asked.
	Silent bool
}

// any tells whether something is there.
func (r *Routers) any() bool {
	return r.Deployment != nil || r.Service != nil || r.Table != nil || r.Budget != nil || r.Policy != nil
}

// told is what the routers of a cluster were told last, nil for nothing.
func (r *Reader) told(c *cachev1alpha1.Memcached, config *corev1.ConfigMap, now time.Time) *contract.RingTable {
	if c.Spec.Router == nil {
		return nil
	}
	if t := build.RouterTableIn(c, config); t != nil && build.RouterTableNumber(config, now) > 0 {
		return t
	}
	return r.Rings.Given(client.ObjectKeyFromObject(c), string(c.UID))
}

// toldSince is when the table was written. Its number may be ahead of the clock: then it is as old as this
// process knows it.
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

// planTable is what routers were told, for the plan of a cluster whose list is read; nil for nothing.
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

// observeRings asks the routers that run whether they have acknowledged the table. One that
// ends still answers applications until its time is over. One that starts in a ring change may have
// been given an older table.
func (r *Reader) observeRings(key client.ObjectKey, o *State) {
	o.Routers.Since = r.toldSince(o.Cluster, o.Routers.Told, o.Now)
	if r.Rings == nil || o.Routers.Told == nil || o.Cluster.DeletionTimestamp != nil {
		r.Rings.Forget(key)
		return
	}
	run, silent := o.routersServe()
	t := o.Routers.Told
	t.Key = string(o.Cluster.UID) // whatever somebody wrote there
	o.Routers.Behind = r.Rings.Behind(key, build.RouterAdminPort(o.Cluster), t, run...)
	if t.State != contract.RingStable {
		for _, p := range silent {
			since := o.Routers.Since
			if p.CreationTimestamp.After(since) {
				since = p.CreationTimestamp.Time
			}
			o.Routers.Behind = append(o.Routers.Behind, ask.Behind{Pod: p.Name, Since: since})
		}
	}
	o.Routers.Strange = r.Rings.Strange(key, t)
	o.Routers.Acknowledged, o.Routers.Silent = len(o.Routers.Behind) == 0, len(silent) > 0
}

// routersServe returns the routers that run, and those that can't be asked, but may serve: they have a
// node and don't run yet, so that their kubelet may have read the table already; or they should have
// ended, but their kubelet, which may be cut off, has not said so.
func (o *State) routersServe() (run, silent []*corev1.Pod) {
	for i := range o.Routers.Pods {
		p := &o.Routers.Pods[i]
		over := p.DeletionTimestamp != nil && p.DeletionTimestamp.Time.Before(o.Now)
		switch {
		case podEnded(p):
		case !over && p.Status.Phase == corev1.PodRunning && p.Status.PodIP != "":
			run = append(run, p)
		case p.Spec.NodeName != "":
			silent = append(silent, p)
		}
	}
	return run, silent
}
