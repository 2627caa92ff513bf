package apply

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	discoveryac "k8s.io/client-go/applyconfigurations/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/claims/write"
	"example.com/memcached-operator/controllers/internal/identity"
)

// applyListService notes whether the Service belongs to another owner. Then that Service gets no
// endpoints of ours.
func (r *run) applyListService(ctx context.Context) error {
	err := applyOwned(ctx, r, owned[corev1.Service, *corev1.Service, coreac.ServiceApplyConfiguration, *coreac.ServiceApplyConfiguration]{
		kind: kindListService, name: build.ListName(r.cluster.Name), current: r.present.ListService, extract: coreac.ExtractService,
		desired: func() *coreac.ServiceApplyConfiguration { return build.ListService(r.cluster) },
	})
	taken := (*identity.NameTakenError)(nil)
	r.listServiceTaken = errors.As(err, &taken)
	return err
}

func (r *run) applyDiscovery(ctx context.Context) error {
	return applyOwned(ctx, r, owned[corev1.Service, *corev1.Service, coreac.ServiceApplyConfiguration, *coreac.ServiceApplyConfiguration]{
		kind: kindDiscovery, name: build.DiscoveryName(r.cluster.Name), current: r.present.Discovery, extract: coreac.ExtractService,
		desired: func() *coreac.ServiceApplyConfiguration { return build.Discovery(r.cluster) },
	})
}

// list is an EndpointSlice beside its wanted content.
type list struct {
	slice   *discoveryv1.EndpointSlice
	wanted  []build.Endpoint
	kind    discoveryv1.AddressType
	ports   build.ListPorts
	version int64
	// differs: the slice has another list. moves: the slice is to belong to the Service, or no longer to
	// belong to it.
	differs, moves bool
}

// listOf compares the slice with the wanted one. The version grows when anything in the list changes. If the
// slice was created again under a clock that is behind, members may have been told a later version, and would
// ignore an earlier one. So the new version is higher than theirs, too.
func (r *run) listOf(a action.WriteEndpoints, slice *discoveryv1.EndpointSlice) list {
	present := build.EndpointsOf(slice)
	l := list{slice: slice}
	if build.Stable(r.cluster) {
		l.wanted = build.StableEndpoints(r.cluster.Name, a.ListSize, r.present.MemberServices, present)
	} else {
		l.wanted = build.Endpoints(r.cluster, a.ListSize, r.present.Pods, present)
	}
	l.kind, l.ports = build.AddressType(l.wanted), build.ListPortsOf(r.cluster, r.ports, l.wanted)
	if slice != nil {
		l.version = build.ListVersion(slice.Annotations[cachev1alpha1.AnnotationListVersion], r.now)
		if len(l.wanted) == 0 {
			l.kind = slice.AddressType
		}
		l.moves = build.InDNS(r.cluster.Name, slice) == r.listServiceTaken
	}
	if l.differs = !slices.Equal(l.wanted, present) || l.version == 0 || l.ports != build.ListPortsIn(slice); l.differs {
		for i := range r.present.Pods {
			l.version = max(l.version, build.ListVersion(r.present.Pods[i].Annotations[cachev1alpha1.AnnotationListVersion], r.now))
		}
		l.version = build.NextListVersion(l.version, r.now)
	}
	return l
}

// writeEndpoints writes the members that are on the clients' list. If these differ from the cache, the list
// is compared with the API server's: a list that was written a moment ago is not written again, and the
// members are told its version.
func (r *run) writeEndpoints(ctx context.Context, a action.WriteEndpoints) error {
	l := r.listOf(a, r.present.Endpoints)
	if l.slice == nil && len(l.wanted) == 0 {
		return nil // no member has been on the list yet
	}
	made := r.Matches.Has(r.cluster, kindMade+kindEndpointSlice, &metav1.ObjectMeta{UID: r.cluster.UID}, 0)
	if l.differs && (r.present.Endpoints != nil || made) {
		live, err := read.Get[discoveryv1.EndpointSlice](ctx, r.Reader.Live, client.ObjectKey{Namespace: r.cluster.Namespace, Name: build.ListName(r.cluster.Name)})
		if err != nil {
			return err
		}
		if live != nil && !identity.OwnsOrAdopts(r.cluster, live) {
			live = nil // applyOwned reports the taken name
		}
		l = r.listOf(a, live)
	}
	switch {
	case l.slice == nil && len(l.wanted) == 0:
		return nil // no member has been on the list yet
	case l.slice != nil && l.slice.AddressType != l.kind:
		// The address type can't be changed. The deletion brings an event, and the next reconcile
		// creates a new slice.
		return write.Delete(ctx, r.Client, l.slice)
	}
	stale := false
	err := applyOwned(ctx, r, owned[discoveryv1.EndpointSlice, *discoveryv1.EndpointSlice, discoveryac.EndpointSliceApplyConfiguration, *discoveryac.EndpointSliceApplyConfiguration]{
		kind: kindEndpointSlice, name: build.ListName(r.cluster.Name), current: l.slice, extract: discoveryac.ExtractEndpointSlice,
		desired: func() *discoveryac.EndpointSliceApplyConfiguration {
			return build.ListSlice(r.cluster, l.ports, l.wanted, l.kind, l.version, !r.listServiceTaken)
		},
		variant: a.ListSize, differs: l.differs || l.moves, stale: &stale,
	})
	if err == nil && !stale && len(l.wanted) > 0 {
		r.done.Listed = l.wanted
		r.list = build.TheList(r.cluster, r.ports, l.version, l.wanted)
	}
	return write.ApartIf(l.slice == nil, err) // no client has been told of any member
}

// tellMember writes the list that is in DNS to a member's pod.
func (r *run) tellMember(ctx context.Context, a action.TellMember) error {
	if r.list == nil {
		return nil
	}
	err := r.tell(ctx, r.present.Pods, a.Pod, cachev1alpha1.AnnotationListVersion, r.list.Version, map[string]string{cachev1alpha1.AnnotationList: r.list.String()})
	told := slices.ContainsFunc(r.present.Pods, func(p corev1.Pod) bool {
		return p.UID == a.Pod.UID && p.Annotations[cachev1alpha1.AnnotationListVersion] != ""
	})
	return write.ApartIf(!told, err) // a pod that was told nothing names no member to clients
}

// tell writes the version of a list or a table on a pod that has another version, with more annotations. tell
// remembers the resourceVersion of the pod that it wrote to, so it doesn't write again before the cache has the
// write. A pod that replaces it is told when the cache has it.
func (r *run) tell(ctx context.Context, pods []corev1.Pod, ref action.PodRef, annotation string, version int64, more map[string]string) error {
	i := slices.IndexFunc(pods, func(p corev1.Pod) bool { return p.UID == ref.UID })
	number := strconv.FormatInt(version, 10)
	told, variant := kindTold+ref.Name, int32(version)
	if i < 0 || pods[i].Annotations[annotation] == number || r.Matches.Has(r.cluster, told, &pods[i], variant) {
		return nil
	}
	annotations := map[string]string{annotation: number}
	maps.Copy(annotations, more)
	err := r.annotatePod(ctx, &pods[i], annotations)
	if err == nil {
		r.Matches.Note(r.cluster, told, &pods[i], variant)
	}
	return err
}

// kindTold with the name of a pod is the key in Matches of a pod that was told a version.
const kindTold = "told "

// forgetPods forgets the versions that pods that are gone were told.
func (r *run) forgetPods() {
	there := map[string]bool{}
	for _, pods := range [][]corev1.Pod{r.present.Pods, r.present.Routers.Pods} {
		for i := range pods {
			there[kindTold+pods[i].Name] = true
		}
	}
	r.Matches.Drop(r.cluster, func(kind string) bool { return strings.HasPrefix(kind, kindTold) && !there[kind] })
}

// annotatePod does nothing if the pod is gone. If the pod was replaced, or another client has
// written to it at the same moment, the conflict is a refusal: the next reconcile sees more.
func (r *run) annotatePod(ctx context.Context, pod *corev1.Pod, annotations map[string]string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID, "annotations": annotations}})
	if err != nil {
		return err
	}
	target := &corev1.Pod{}
	target.Namespace, target.Name = pod.Namespace, pod.Name
	return client.IgnoreNotFound(r.Patch(ctx, target, client.RawPatch(types.MergePatchType, patch)))
}
