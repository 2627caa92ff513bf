package observe

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"example.com/memcached-operator/controllers/internal/identity"
)

// Uncached reads from the API server what a manager's cache would have: it lists the objects that the cache
// selects, and finds those of one cluster as the index by cluster does.
func Uncached(live client.Reader) client.Reader { return uncached{live} }

type uncached struct{ client.Reader }

func (u uncached) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	given := (&client.ListOptions{}).ApplyOptions(options)
	if given.FieldSelector == nil {
		return u.Reader.List(ctx, list, options...)
	}
	cluster, indexed := given.FieldSelector.RequiresExactMatch(clusterIndex)
	if !indexed {
		return u.Reader.List(ctx, list, options...)
	}
	var kind metav1.Object
	switch list.(type) {
	case *corev1.PodList:
		kind = &corev1.Pod{}
	case *corev1.PersistentVolumeClaimList:
		kind = &corev1.PersistentVolumeClaim{}
	case *batchv1.JobList:
		kind = &batchv1.Job{}
	case *corev1.ServiceList:
		kind = &corev1.Service{}
	default:
		return fmt.Errorf("%T has no index by cluster", list)
	}
	if err := u.Reader.List(ctx, list, client.InNamespace(given.Namespace), client.MatchingLabelsSelector{Selector: identity.Selector(kind)}); err != nil {
		return err
	}
	all, err := meta.ExtractList(list)
	if err != nil {
		return err
	}
	var its []runtime.Object
	for _, o := range all {
		if of := identity.ClusterName(o.(metav1.Object)); len(of) > 0 && of[0] == cluster {
			its = append(its, o)
		}
	}
	return meta.SetList(list, its)
}
