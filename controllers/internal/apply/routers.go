package apply

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	appsac "k8s.io/client-go/applyconfigurations/apps/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	networkingac "k8s.io/client-go/applyconfigurations/networking/v1"
	policyac "k8s.io/client-go/applyconfigurations/policy/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/claims/write"
	"example.com/memcached-operator/controllers/internal/identity"
	"example.com/memcached-operator/drainer/contract"
)

// kindRouters with a part is the kind of a router object in Matches.
const kindRouters = "routers' "

// applyRouters applies one object of the routers, or deletes it.
func (r *run) applyRouters(ctx context.Context, part action.RouterPart) error {
	kind, name, present := kindRouters+string(part), build.RouterName(r.cluster.Name), &r.present.Routers
	switch part {
	case action.RouterService:
		return applyOwned(ctx, r, owned[corev1.Service, *corev1.Service, coreac.ServiceApplyConfiguration, *coreac.ServiceApplyConfiguration]{
			kind: kind, name: name, current: present.Service, extract: coreac.ExtractService,
			desired: func() *coreac.ServiceApplyConfiguration { return build.RouterService(r.cluster) },
		})
	case action.RouterPolicy:
		return applyOwned(ctx, r, owned[networkingv1.NetworkPolicy, *networkingv1.NetworkPolicy, networkingac.NetworkPolicyApplyConfiguration, *networkingac.NetworkPolicyApplyConfiguration]{
			kind: kind, name: name, current: present.Policy, extract: networkingac.ExtractNetworkPolicy,
			desired: func() *networkingac.NetworkPolicyApplyConfiguration { return build.RouterPolicy(r.cluster, r.Options) },
		})
	case action.RouterDeployment:
		if err := r.leaveNumber(ctx, present.Deployment); err != nil {
			return err
		}
		err := r.applyRouterDeployment(ctx, kind, name)
		if err == nil {
			r.noteRouterCount()
		}
		return err
	case action.RouterBudget:
		return applyOwned(ctx, r, owned[policyv1.PodDisruptionBudget, *policyv1.PodDisruptionBudget, policyac.PodDisruptionBudgetApplyConfiguration, *policyac.PodDisruptionBudgetApplyConfiguration]{
			kind: kind, name: name, current: present.Budget, extract: policyac.ExtractPodDisruptionBudget,
			desired: func() *policyac.PodDisruptionBudgetApplyConfiguration { return build.RouterBudget(r.cluster) },
		})
	}
	return fmt.Errorf("unknown part %q of the routers", part)
}

// applyRouterDeployment applies the routers' Deployment. A change that an upgrade of the operator
// makes to their pods is rolled out in the cluster's turn.
func (r *run) applyRouterDeployment(ctx context.Context, kind, name string) error {
	present := r.present.Routers.Deployment
	w := owned[appsv1.Deployment, *appsv1.Deployment, appsac.DeploymentApplyConfiguration, *appsac.DeploymentApplyConfiguration]{
		kind: kind, name: name, current: present, extract: appsac.ExtractDeployment,
		desired: func() *appsac.DeploymentApplyConfiguration { return nil },
		variant: r.routerOptions().OnMiss.Variant(),
	}
	desired := build.Routers(r.cluster, r.routerOptions())
	switch {
	case desired == nil:
		r.RouterTurns.Forget(client.ObjectKeyFromObject(r.cluster))
		return applyOwned(ctx, r, w)
	case present != nil && r.Matches.Has(r.cluster, kind, present, w.variant):
		return nil
	}
	spec := build.RouterSpec(r.cluster)
	d := firstTemplate(r.cluster, spec, desired.Spec.Template)
	if present != nil {
		n := ptr.Deref(present.Spec.Replicas, 1)
		m := &templateInput{
			turns: r.RouterTurns, spec: spec, object: present, live: &present.Spec.Template, desired: desired.Spec.Template,
			replicas: n, wanted: ptr.Deref(r.cluster.Spec.Router.Replicas, n), ready: deploymentReady(present),
			applied: templateOfDeployment(extracted(appsac.ExtractDeployment, present)),
		}
		var err error
		if d, err = r.decideTemplate(ctx, m); err != nil {
			return err
		}
		desired.Spec.Template = d.template
	}
	w.desired = func() *appsac.DeploymentApplyConfiguration { return desired.WithAnnotations(d.annotations()) }
	w.unsettled = !d.settled
	err := applyOwned(ctx, r, w)
	r.noteTemplateWrite(r.RouterTurns, d, err)
	if n := r.cluster.Spec.Router.Replicas; n != nil {
		_, err = r.deploymentSize(ctx, present, *n, err)
	}
	return err
}

// routerOptions are the options with the source that routers ask for missed keys.
func (r *run) routerOptions() build.Options {
	o := r.Options
	if from := r.cluster.Spec.WarmFrom; from != nil && from.OnMiss && r.present.Warm != nil {
		o.OnMiss = r.present.Warm.From
	}
	return o
}

// leaveNumber keeps the number of routers when spec.router.replicas is removed. A field that we
// applied and no longer apply goes back to Kubernetes' default, here one. So the number gets
// another field owner first; an autoscaler takes it over from that owner.
func (r *run) leaveNumber(ctx context.Context, d *appsv1.Deployment) error {
	if d == nil || r.cluster.Spec.Router == nil || r.cluster.Spec.Router.Replicas != nil || !metav1.IsControlledBy(d, r.cluster) {
		return nil
	}
	applied, err := appsac.ExtractDeployment(d, cachev1alpha1.ManagedBy)
	if err != nil || applied.Spec == nil || applied.Spec.Replicas == nil {
		return err
	}
	kept := appsac.Deployment(d.Name, d.Namespace).WithUID(d.UID).WithSpec(appsac.DeploymentSpec().WithReplicas(*applied.Spec.Replicas))
	return r.Client.Apply(ctx, kept, client.FieldOwner(numberOwner))
}

// noteRouterCount notes whether admission has changed the number of routers.
func (r *run) noteRouterCount() {
	d := r.present.Routers.Deployment
	if d == nil || r.cluster.Spec.Router == nil || r.cluster.Spec.Router.Replicas == nil {
		return
	}
	sent, is := *r.cluster.Spec.Router.Replicas, ptr.Deref(d.Spec.Replicas, 1)
	if desired := build.Routers(r.cluster, r.routerOptions()); sent != is && asSent(d, hashOf(desired), desired) {
		r.sizeChanged("routers", sent, is)
	}
}

// numberOwner is the field owner of the number of routers when the spec has none.
const numberOwner = cachev1alpha1.ManagedBy + "-replicas"

// tableOf compares the table in a ConfigMap with what is wanted. The number grows when anything in
// the table changes. A table that another client has signed is written again under our name,
// because routers would accept that client's next table, too. If the ConfigMap was created again
// under a clock that is behind, routers may have been told a higher number, and would ignore a
// lower one. So the new number is higher than theirs, too.
func (r *run) tableOf(a action.WriteTable, config *corev1.ConfigMap) (t *contract.RingTable, differs bool) {
	routers := &r.present.Routers
	number, before := build.RouterTableNumber(config, r.now), build.RouterTableIn(r.cluster, config)
	if number == 0 || before == nil {
		before = routers.Told
	}
	t = build.RouterTable(r.cluster, r.ports, a.State, a.ListSize, a.Out, before, number)
	switch {
	case t == nil:
		return nil, true
	case number > 0 && config.Data[build.RouterTableKey] == build.RouterTableText(t) && !routers.SignedByOther:
		return t, false
	}
	if before != nil {
		number = max(number, before.Number)
	}
	for i := range r.present.Routers.Pods {
		number = max(number, build.ListVersion(r.present.Routers.Pods[i].Annotations[cachev1alpha1.AnnotationTable], r.now))
	}
	t = build.RouterTable(r.cluster, r.ports, a.State, a.ListSize, a.Out, before, build.NextListVersion(number, r.now))
	t.Signer = routers.Signer
	t.Acknowledged = before != nil && routers.Acknowledged && !routers.Silent && routers.Told != nil && before.Number == routers.Told.Number
	return t, true
}

// writeTable writes the table of the rings. If the wanted table differs from the one in the cache,
// it is compared with the one on the API server, so that a table that was written a moment ago is
// not written again. A cluster without members keeps its table.
func (r *run) writeTable(ctx context.Context, a action.WriteTable) error {
	current, name := r.present.Routers.Table, build.RouterName(r.cluster.Name)
	wanted := r.cluster.Spec.Router != nil
	if wanted && a.ListSize == 0 {
		return nil
	}
	var t *contract.RingTable
	differs := false
	if wanted {
		if t, differs = r.tableOf(a, current); differs {
			live, err := read.Get[corev1.ConfigMap](ctx, r.Reader.Live, client.ObjectKey{Namespace: r.cluster.Namespace, Name: name})
			if err != nil {
				return err
			}
			if live != nil && !identity.OwnsOrAdopts(r.cluster, live) {
				live = nil // applyOwned reports the taken name
			}
			current = live
			if t, differs = r.tableOf(a, live); t == nil {
				return read.Refuse("routers are told of state %s only after the one before: the cache is stale", a.State)
			}
		}
	}
	err := applyOwned(ctx, r, owned[corev1.ConfigMap, *corev1.ConfigMap, coreac.ConfigMapApplyConfiguration, *coreac.ConfigMapApplyConfiguration]{
		kind: kindRouters + kindConfigMap, name: name, current: current, extract: coreac.ExtractConfigMap,
		desired: func() *coreac.ConfigMapApplyConfiguration {
			if t == nil {
				return nil
			}
			return build.RouterConfigMap(r.cluster, t)
		},
		variant: a.ListSize, differs: differs,
	})
	if err == nil && t != nil {
		r.table = t.Number
	}
	if err == nil && differs && a.Begins {
		r.event(r.cluster, "RollOut", "RollOut", "the members get another template, and each steps out of the ring before its restart: member %d is the first", a.Out-1)
	}
	return write.ApartIf(current == nil && len(r.present.Routers.Pods) == 0, err) // no router has been told of any member
}

// tellRouter writes the number of the routers' table on a router's pod, so that the kubelet updates
// the table in the pod at once.
func (r *run) tellRouter(ctx context.Context, a action.TellRouter) error {
	if r.table == 0 {
		return nil
	}
	return r.tell(ctx, r.present.Routers.Pods, a.Pod, cachev1alpha1.AnnotationTable, r.table, nil)
}
