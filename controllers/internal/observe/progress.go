package observe

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/identity"
)

// observeProgress adds what is known about the drainers' progress. If the progress can't be read, the drain
// continues, and status shows none.
func (r *Reader) observeProgress(key client.ObjectKey, o *State) {
	claims := map[types.UID]types.UID{}
	var pods []*corev1.Pod
	for _, job := range o.jobs().Active() {
		for i := range o.DrainerPods {
			if pod := &o.DrainerPods[i]; metav1.IsControlledBy(pod, job) && read.DrainerRuns(pod) {
				pods = append(pods, pod)
				claims[pod.UID] = identity.ClaimUID(job)
			}
		}
	}
	for pod, progress := range r.Drainers.Want(key, pods...) {
		o.Progress[claims[pod]] = progress
	}
}
