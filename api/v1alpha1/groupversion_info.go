// Package v1alpha1 is the API of the operator: the types Memcached and
// StatefulSetDrain, the reasons of their conditions, and the keys that the
// operator puts on the objects it manages.
//
// +kubebuilder:object:generate=true
// +groupName=cache.example.com
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group is the API group. The keys of labels, annotations and finalizers begin with it, too.
// docs/development.md says how to build with another group.
const Group = "cache.example.com"

// GroupVersion of this package's types.
var GroupVersion = schema.GroupVersion{Group: Group, Version: "v1alpha1"}

var schemeBuilder = runtime.NewSchemeBuilder(func(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &Memcached{}, &MemcachedList{}, &StatefulSetDrain{}, &StatefulSetDrainList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
})

// AddToScheme registers the types of this package.
var AddToScheme = schemeBuilder.AddToScheme
