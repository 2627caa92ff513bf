package status

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// Binding is the state of the Secret that spec.binding asks for.
type Binding struct {
	// Name is the Secret's name; empty if the Secret doesn't exist.
	Name string
	// Reason and Message are those of the condition Bindable.
	Reason, Message string
}

// setBinding writes only the Secret's name, in the field that servicebinding.io defines.
func setBinding(in *Input, s *cachev1alpha1.MemcachedStatus) {
	if in.Binding == nil {
		return // the Secret was not read: keep the present name
	}
	s.Binding = nil
	if in.Binding.Name != "" {
		s.Binding = &cachev1alpha1.BindingStatus{Name: in.Binding.Name}
	}
}

// bindable is the condition Bindable; nil if the spec asks for no binding.
func bindable(in *Input) *metav1.Condition {
	const kind = cachev1alpha1.ConditionBindable
	if in.Cluster.Spec.Binding == nil {
		return nil
	}
	c := condition(kind, false, cachev1alpha1.ReasonBindingIncomplete, "Secret %s is not written yet", in.Cluster.Spec.Binding.SecretName)
	before := meta.FindStatusCondition(in.Cluster.Status.Conditions, kind)
	switch {
	case in.Binding != nil:
		c = condition(kind, in.Binding.Reason == cachev1alpha1.ReasonBindingWritten, in.Binding.Reason, "%s", in.Binding.Message)
	case before != nil && before.Reason != reasonNotRequested:
		c = *before
	}
	return &c
}

// reasonNotRequested is the reason that earlier operators gave for conditions that the spec doesn't
// ask for.
const reasonNotRequested = "NotRequested"
