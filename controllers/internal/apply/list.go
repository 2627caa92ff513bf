package apply

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	discoveryac "k8s.io/client-go/applyconfigurations/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/identity"
	"example.com/memcached-operator/controllers/internal/observe"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/controllers/internal/status"
)

// applyListService notes whether the Service is somebody else's: then no endpoints are
// written for it.
func (r *run) applyListService(ctx context.Context) error {
	err := applyOwned(ctx, r, owned[corev1.Service, *corev1.Service, coreac.ServiceApplyConfiguration, *coreac.ServiceApplyConfiguration]{
		kind: kindListService, name: build.ListName(r.cluster.Name), current: r.seen.ListService, extract: coreac.ExtractService,
		desired: func() *coreac.ServiceApplyConfiguration { return build.ListService(r.cluster) },
	})
	taken := (*status.NameTakenError)(nil)
	r.listServiceTaken = errors.As(err, &taken)
	return err
}

// writeEndpoints writes the members that are on the clients' list. If they differ from
// those in the cache, it compares them with those on the API server: a list that was
// written a moment ago is not written again.
func (r *run) writeEndpoints(ctx context.Context, a plan.WriteEndpoints) error {
	if r.listServiceTaken {
		return nil
	}
	slice := r.seen.Endpoints
	wanted, differs := r.endpoints(a, slice)
	if slice != nil && differs {
		live, err := observe.Get[discoveryv1.EndpointSlice](ctx, r.Reader.Live, client.ObjectKeyFromObject(slice))
		if err != nil {
			return err
		}
		if slice = nil; live != nil && identity.OwnsOrAdopts(r.cluster, live) {
			slice = live
		}
		wanted, differs = r.endpoints(a, slice)
	}
	if slice == nil && len(wanted) == 0 {
		return nil // nobody has been on the list yet
	}
	kind := build.AddressType(wanted)
	if slice != nil && len(wanted) == 0 {
		kind = slice.AddressType
	}
	if slice != nil && slice.AddressType != kind {
		// It can't be changed. The deletion brings an event, and then there is a new one.
		return r.deleteObject(ctx, slice)
	}
	return applyOwned(ctx, r, owned[discoveryv1.EndpointSlice, *discoveryv1.EndpointSlice, discoveryac.EndpointSliceApplyConfiguration, *discoveryac.EndpointSliceApplyConfiguration]{
		kind: kindEndpointSlice, name: build.ListName(r.cluster.Name), current: slice, extract: discoveryac.ExtractEndpointSlice,
		desired: func() *discoveryac.EndpointSliceApplyConfiguration { return build.ListSlice(r.cluster, wanted, kind) },
		variant: a.ListSize, differs: differs,
	})
}

// endpoints are those that the slice should have, and whether they differ from those that
// it has.
func (r *run) endpoints(a plan.WriteEndpoints, slice *discoveryv1.EndpointSlice) (wanted []build.Endpoint, differs bool) {
	present := build.EndpointsOf(slice)
	wanted = build.Endpoints(r.cluster.Name, a.ListSize, r.seen.Pods, present)
	return wanted, !slices.Equal(wanted, present)
}
