package build

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/claims"
)

// A Deployment's pods get new names when they are replaced. So the clients' list of a cluster without storage
// has places instead, cache-0.cache-list and so on, and the list in DNS says which pod has which place. A new
// pod gets the place of the pod that it replaces, so the names stay, and so does the ring.

// listedAddresses returns the addresses of the members by their names on the list in DNS: with storage those
// of their pods, without it their places. before is the present list.
func listedAddresses(c *cachev1alpha1.Memcached, n int32, pods []corev1.Pod, before []Endpoint) map[string][]string {
	if c.Spec.Storage != nil {
		return podAddresses(pods)
	}
	return placeAddresses(c.Name, n, pods, before)
}

// placeAddresses returns the addresses of the pods that have the first n places. A pod keeps its place until it
// ends, even while it isn't ready. A place whose pod is gone, or ends, goes to a ready pod without a place, the
// oldest first.
func placeAddresses(cluster string, n int32, pods []corev1.Pod, before []Endpoint) map[string][]string {
	addresses := podAddresses(pods)
	holders, placed := map[string]*corev1.Pod{}, map[string]bool{}
	for _, e := range before {
		if ordinal, ok := PodOrdinal(cluster, e.Name); !ok || ordinal >= n || holders[e.Name] != nil {
			continue
		}
		i := slices.IndexFunc(pods, func(p corev1.Pod) bool {
			return !placed[p.Name] && !ends(&p) && slices.Contains(addresses[p.Name], e.Address)
		})
		if i >= 0 {
			holders[e.Name], placed[pods[i].Name] = &pods[i], true
		}
	}
	var waiting []*corev1.Pod
	for i := range pods {
		if p := &pods[i]; !placed[p.Name] && !ends(p) && claims.PodReady(p) && len(addresses[p.Name]) > 0 {
			waiting = append(waiting, p)
		}
	}
	slices.SortFunc(waiting, func(a, b *corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	out := map[string][]string{}
	for i := range n {
		place := PodName(cluster, i)
		if holders[place] == nil && len(waiting) > 0 {
			holders[place], waiting = waiting[0], waiting[1:]
		}
		if p := holders[place]; p != nil {
			out[place] = addresses[p.Name]
		}
	}
	return out
}

// ends tells whether the pod is being deleted, or has ended.
func ends(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}
