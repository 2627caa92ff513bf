package observe

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/plan"
)

// untoldMembers are the members' pods that were told of another version of the list than the
// one in DNS. Nobody is told of a list without members.
func (o *State) untoldMembers() []plan.ToTell {
	if o.Endpoints == nil || len(build.EndpointsOf(o.Endpoints)) == 0 {
		return nil
	}
	version := build.ListVersion(o.Endpoints.Annotations[cachev1alpha1.AnnotationListVersion], o.Now)
	return untold(o.Pods, version, cachev1alpha1.AnnotationListVersion, func(pod *corev1.Pod) bool {
		_, member := build.PodOrdinal(o.Cluster.Name, pod.Name)
		return member
	})
}

// untoldRouters are the routers' pods that were told of another table.
func (o *State) untoldRouters() []plan.ToTell {
	if o.Cluster.Spec.Router == nil {
		return nil
	}
	number := build.RouterTableNumber(o.Routers.Table, o.Now)
	return untold(o.Routers.Pods, number, cachev1alpha1.AnnotationTable, func(*corev1.Pod) bool { return true })
}

// untold are the pods whose annotation has another version; 0 is none.
func untold(pods []corev1.Pod, version int64, annotation string, which func(*corev1.Pod) bool) []plan.ToTell {
	if version == 0 {
		return nil
	}
	var all []plan.ToTell
	for i := range pods {
		pod := &pods[i]
		if which(pod) && pod.DeletionTimestamp == nil && pod.Annotations[annotation] != strconv.FormatInt(version, 10) {
			all = append(all, plan.ToTell{Name: pod.Name, UID: pod.UID, Version: version})
		}
	}
	return all
}
