package build

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// Every setting that can keep a drainer's pod from starting is part of the hash on its Job; a
// setting that only matters when it runs is not.
func TestADrainersJobSaysHowItsPodsAreMade(t *testing.T) {
	base := func() *cachev1alpha1.Memcached { return &cachev1alpha1.Memcached{} }
	options := Options{OperatorImage: "operator:1"}
	was := DrainerTemplate(base(), options)
	job := DrainJob(base(), options, nil, "data-cache-2", "uid", 2, false)
	if got := job.Annotations[cachev1alpha1.AnnotationDrainer]; got != was {
		t.Errorf("its Job says %q, want %q", got, was)
	}
	if _, has := job.Spec.Template.Annotations[cachev1alpha1.AnnotationDrainer]; has {
		t.Error("its pods have the hash, too")
	}
	for what, test := range map[string]struct {
		change func(*cachev1alpha1.Memcached)
		same   bool
	}{
		"nothing":         {func(*cachev1alpha1.Memcached) {}, true},
		"size":            {func(c *cachev1alpha1.Memcached) { n := int32(7); c.Spec.Size = &n }, true},
		"nodeSelector":    {func(c *cachev1alpha1.Memcached) { c.Spec.PodTemplate.NodeSelector = map[string]string{"disk": "ssd"} }, false},
		"service account": {func(c *cachev1alpha1.Memcached) { c.Spec.Drain.PodTemplate.ServiceAccountName = "drainer" }, false},
		"annotations (of an injector)": {func(c *cachev1alpha1.Memcached) {
			c.Spec.Drain.PodTemplate.Annotations = map[string]string{"sidecar.istio.io/inject": "false"}
		}, false},
		"a sidecar": {func(c *cachev1alpha1.Memcached) {
			c.Spec.Drain.PodTemplate.Containers = []corev1.Container{{Name: "shipper"}}
		}, false},
		"a variable": {func(c *cachev1alpha1.Memcached) { c.Spec.Drain.PodTemplate.Env = []corev1.EnvVar{{Name: "TZ"}} }, false},
		"resources": {func(c *cachev1alpha1.Memcached) {
			c.Spec.Drain.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("900")}
		}, false},
	} {
		c := base()
		test.change(c)
		if same := DrainerTemplate(c, options) == was; same != test.same {
			t.Errorf("%s: the same: %v, want %v", what, same, test.same)
		}
	}
	if DrainerTemplate(base(), Options{OperatorImage: "operator:2"}) == was {
		t.Error("another image makes no difference")
	}
}
