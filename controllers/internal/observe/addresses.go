package observe

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/identity"
	"example.com/memcached-operator/controllers/internal/plan"
)

// observeMemberServices reads the Services of single members, present and past.
func (r *Reader) observeMemberServices(ctx context.Context, key client.ObjectKey, o *State) error {
	var services corev1.ServiceList
	if err := r.list(ctx, key, &services); err != nil {
		return err
	}
	for i := range services.Items {
		ordinal, member := build.MemberServiceOrdinal(key.Name, services.Items[i].Name)
		if !member || !identity.OwnsOrAdopts(o.Cluster, &services.Items[i]) {
			continue
		}
		service, err := Own[corev1.Service](ctx, r, o.Cluster, services.Items[i].Name)
		if err != nil {
			return err
		}
		if service != nil {
			if o.MemberServices == nil {
				o.MemberServices = map[int32]corev1.Service{}
			}
			o.MemberServices[ordinal] = *service
		}
	}
	return nil
}

// planMemberServices returns the members' Services that the cluster controls, for the plan.
func (o *State) planMemberServices() []plan.MemberService {
	var all []plan.MemberService
	for _, ordinal := range slices.Sorted(maps.Keys(o.MemberServices)) {
		service := o.MemberServices[ordinal]
		if metav1.IsControlledBy(&service, o.Cluster) && service.DeletionTimestamp == nil {
			all = append(all, plan.MemberService{Ordinal: ordinal, UID: service.UID, Unlisted: UnlistedSince(&service)})
		}
	}
	return all
}

// UnlistedSince is when the operator saw that the Service's member was neither listed nor running;
// zero if the annotation is missing or has no time.
func UnlistedSince(service *corev1.Service) time.Time {
	since, _ := read.Time(service.Annotations[cachev1alpha1.AnnotationUnlisted])
	return since
}
