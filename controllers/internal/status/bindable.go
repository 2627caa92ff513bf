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
	// Reason and Message of the condition Bindable; empty if the Secret is as wanted, or none is asked for.
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

// bindable is nil if the spec asks for no binding, or if it is written.
func bindable(in *Input) *metav1.Condition {
	const kind = cachev1alpha1.ConditionBindable
	wanted, is := in.Cluster.Spec.Binding, in.Cluster.Status.Binding
	before := meta.FindStatusCondition(in.Cluster.Status.Conditions, kind)
	switch {
	case wanted == nil:
		return nil
	case in.Binding != nil && in.Binding.Reason == "":
		return nil
	case in.Binding != nil:
		return says(kind, false, in.Binding.Reason, "%s", in.Binding.Message)
	case before != nil:
		return before
	case is != nil && is.Name == wanted.SecretName:
		return nil
	}
	return says(kind, false, cachev1alpha1.ReasonBindingIncomplete, "Secret %s is not written yet", wanted.SecretName)
}
