package observe

import (
	"net"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/claims"
)

// observeCertificates asks the members and routers that are ready about their certificate of
// spec.tls, because the operator may not read its Secret.
func (r *Reader) observeCertificates(key client.ObjectKey, o *State) {
	if r.Certificates == nil || o.Cluster.Spec.TLS == nil || o.Cluster.DeletionTimestamp != nil {
		r.Certificates.Forget(key)
		return
	}
	var pods []*corev1.Pod
	ports := map[*corev1.Pod]int32{}
	add := func(all []corev1.Pod, port int32) {
		for i := range all {
			if p := &all[i]; p.DeletionTimestamp == nil && p.Status.PodIP != "" && claims.PodReady(p) {
				pods, ports[p] = append(pods, p), build.AskedAt(p, port)
			}
		}
	}
	add(o.Pods, build.ProbePort(o.Cluster))
	add(o.Routers.Pods, build.RouterAdminPort(o.Cluster))
	o.Certificates = r.Certificates.Want(key, pods, func(p *corev1.Pod) string {
		return net.JoinHostPort(p.Status.PodIP, strconv.Itoa(int(ports[p])))
	})
}
