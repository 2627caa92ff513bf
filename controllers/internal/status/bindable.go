package status

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// Binding is the state of the Secret that spec.binding asks for.
type Binding struct {
	// Name of the Secret; empty if it doesn't exist.
	Name string
	// Reason and Message of the condition Bindable.
	Reason, Message string
}

// setBinding puts the Secret's name, and no more of it, where servicebinding.io looks.
func setBinding(in *Input, s *cachev1alpha1.MemcachedStatus) {
	if in.Binding == nil {
		return // it was not read: keep what is there
	}
	s.Binding = nil
	if in.Binding.Name != "" {
		s.Binding = &cachev1alpha1.BindingStatus{Name: in.Binding.Name}
	}
}

// bindable is nil if the spec asks for no binding.
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

// reasonNotRequested is the reason of earlier operators for what the spec doesn't ask
// for.
const reasonNotRequested = "NotRequested"
