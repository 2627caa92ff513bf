package identity

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// Parsing a selector costs more than what a reconcile does with it.
var (
	ofCluster = mustSelect(cachev1alpha1.LabelCluster)
	ofSlices  = mustSelect(cachev1alpha1.LabelCluster, discoveryv1.LabelManagedBy+"="+cachev1alpha1.ManagedBy)
	ofPods    = mustSelect(cachev1alpha1.LabelName+"="+cachev1alpha1.AppName, fmt.Sprintf("%s in (%s,%s,%s,%s)", cachev1alpha1.LabelComponent,
		cachev1alpha1.ComponentMember, cachev1alpha1.ComponentDrainer, cachev1alpha1.ComponentMove, cachev1alpha1.ComponentRouter))
)

// Selector selects the operator's objects of this kind, in the cache and in live lists. Pods are
// selected by labels that are in the selectors of their StatefulSets and Deployments: a member
// without them has no controller any more. Kubernetes copies a Service's labels to the EndpointSlices that it
// creates for the Service, so the operator's own slices are selected by one label more.
func Selector(o metav1.Object) labels.Selector {
	switch o.(type) {
	case *discoveryv1.EndpointSlice:
		return ofSlices
	case *corev1.Pod:
		return ofPods
	}
	return ofCluster
}

func mustSelect(requirements ...string) labels.Selector {
	selector, err := labels.Parse(strings.Join(requirements, ","))
	utilruntime.Must(err) // the requirements are constants
	return selector
}
