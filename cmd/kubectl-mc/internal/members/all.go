package members

import (
	"context"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// atOnce is how many members are asked at once.
const atOnce = 8

// Each asks each pod that runs for its numbers. numbers has the answers, and why the errors, by the pods'
// names.
func (a *Members) Each(ctx context.Context, m *cachev1alpha1.Memcached, pods []corev1.Pod) (numbers map[string]*Numbers, why map[string]error) {
	answers, failures := make([]*Numbers, len(pods)), make([]error, len(pods))
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i := range pods {
		if pods[i].Status.Phase != corev1.PodRunning {
			continue
		}
		group.Go(func() error {
			answers[i], failures[i] = a.Numbers(ctx, m, &pods[i])
			return nil
		})
	}
	_ = group.Wait() // each has its own error
	numbers, why = map[string]*Numbers{}, map[string]error{}
	for i := range pods {
		switch {
		case failures[i] != nil:
			why[pods[i].Name] = failures[i]
		case answers[i] != nil:
			numbers[pods[i].Name] = answers[i]
		}
	}
	return numbers, why
}
