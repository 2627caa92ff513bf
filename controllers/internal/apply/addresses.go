package apply

import (
	"context"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/claims/write"
	"example.com/memcached-operator/controllers/internal/identity"
	"example.com/memcached-operator/controllers/internal/observe"
	"example.com/memcached-operator/controllers/internal/plan"
)

func (r *run) applyMemberService(ctx context.Context, ordinal int32) error {
	var current *corev1.Service
	if present, is := r.present.MemberServices[ordinal]; is {
		current = &present
	}
	return write.ApartIf(current != nil, r.writeMemberService(ctx, ordinal, current, ""))
}

// writeMemberService applies the Service of one member. unlisted is the value of its annotation
// AnnotationUnlisted; empty for none.
func (r *run) writeMemberService(ctx context.Context, ordinal int32, current *corev1.Service, unlisted string) error {
	return applyOwned(ctx, r, owned[corev1.Service, *corev1.Service, coreac.ServiceApplyConfiguration, *coreac.ServiceApplyConfiguration]{
		kind: kindMemberService + strconv.Itoa(int(ordinal)), name: build.MemberServiceName(r.cluster.Name, ordinal),
		current: current, extract: coreac.ExtractService,
		desired: func() *coreac.ServiceApplyConfiguration {
			return build.MemberService(r.cluster, r.ports, ordinal, unlisted)
		},
		variant: r.ports.Of(r.cluster, ordinal).Export,
		differs: unlisted != "",
	})
}

// retireMemberService writes since when the member is gone. If the live Service has a time already,
// the cache is stale and the time is kept.
func (r *run) retireMemberService(ctx context.Context, a action.RetireMemberService) error {
	live, err := r.liveMemberService(ctx, a.Ordinal, a.UID)
	if err != nil || live == nil {
		return err
	}
	if since := observe.UnlistedSince(live); !since.IsZero() && !since.After(r.now) {
		return nil
	}
	return r.writeMemberService(ctx, a.Ordinal, live, r.now.UTC().Format(time.RFC3339))
}

// deleteMemberService deletes the Service of a member, unless the cache is stale and the member has
// come back.
func (r *run) deleteMemberService(ctx context.Context, a action.DeleteMemberService) error {
	live, err := r.liveMemberService(ctx, a.Ordinal, a.UID)
	if err != nil || live == nil {
		return err
	}
	service := plan.MemberService{Ordinal: a.Ordinal, UID: live.UID, Unlisted: observe.UnlistedSince(live)}
	if err := plan.MayDeleteMemberService(&service, r.now); err != nil {
		return read.RefusedBy(err)
	}
	return client.IgnoreNotFound(r.Delete(ctx, live, client.Preconditions{UID: &live.UID, ResourceVersion: &live.ResourceVersion}))
}

// liveMemberService reads the Service with that UID; nil if it is gone, or no longer the cluster's.
func (r *run) liveMemberService(ctx context.Context, ordinal int32, uid types.UID) (*corev1.Service, error) {
	live, err := read.Get[corev1.Service](ctx, r.Reader.Live, client.ObjectKey{Namespace: r.cluster.Namespace, Name: build.MemberServiceName(r.cluster.Name, ordinal)})
	if err != nil || live == nil || live.UID != uid || live.DeletionTimestamp != nil || !identity.Owns(r.cluster, live) {
		return nil, err
	}
	return live, nil
}
