// Package kube reads and writes objects in the cluster of a person's kubeconfig, with that person's rights.
package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers"
)

// Session is a connection to an API server, and the namespace that names are in.
type Session struct {
	client.Client
	// Config is for port-forwards, which have bounds of their own.
	Config    *rest.Config
	Clients   kubernetes.Interface
	Namespace string
}

// Open connects by the flags of kubectl.
func Open(flags genericclioptions.RESTClientGetter) (*Session, error) {
	config, err := flags.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = 50, 100
	s := &Session{Config: config}
	config = bound(config)
	if s.Namespace, _, err = flags.ToRawKubeConfigLoader().Namespace(); err != nil {
		return nil, err
	}
	if s.Client, err = client.New(config, client.Options{Scheme: controllers.NewScheme()}); err != nil {
		return nil, err
	}
	s.Clients, err = kubernetes.NewForConfig(config)
	return s, err
}

// Kinds of objects, as people may write them before a name: mc/NAME.
var (
	memcacheds = []string{"mc", "mcd", "memcached", "memcacheds"}
	drains     = []string{"stsdrain", "statefulsetdrain", "statefulsetdrains"}
)

// Find returns the Memcached or the StatefulSetDrain of this name. A name may have its kind before it:
// mc/NAME, stsdrain/NAME. Without a kind, a Memcached comes first.
func (s *Session) Find(ctx context.Context, name string) (client.Object, error) {
	kind, rest, given := strings.Cut(name, "/")
	if given {
		name = rest
	}
	isDrain := given && slices.Contains(drains, kind)
	if given && !isDrain && !slices.Contains(memcacheds, kind) {
		return nil, fmt.Errorf("%s is no kind that the operator has: write mc/%s or stsdrain/%s", kind, name, name)
	}
	key := client.ObjectKey{Namespace: s.Namespace, Name: name}
	if !isDrain {
		m := &cachev1alpha1.Memcached{}
		err := s.Get(ctx, key, m)
		if err == nil || given || !apierrors.IsNotFound(err) {
			return m, err
		}
	}
	d := &cachev1alpha1.StatefulSetDrain{}
	err := s.Get(ctx, key, d)
	if apierrors.IsNotFound(err) && !given {
		return nil, fmt.Errorf("there is no Memcached and no StatefulSetDrain %s in namespace %s", name, s.Namespace)
	}
	return d, err
}

// Memcached returns the Memcached of this name.
func (s *Session) Memcached(ctx context.Context, name string) (*cachev1alpha1.Memcached, error) {
	object, err := s.Find(ctx, name)
	if err != nil {
		return nil, err
	}
	m, is := object.(*cachev1alpha1.Memcached)
	if !is {
		return nil, fmt.Errorf("%s is a StatefulSetDrain: this is for a Memcached", name)
	}
	return m, nil
}

// Memcacheds returns all of the namespace, or of all namespaces, by their names.
func (s *Session) Memcacheds(ctx context.Context, everywhere bool) ([]cachev1alpha1.Memcached, error) {
	var list cachev1alpha1.MemcachedList
	err := s.List(ctx, &list, s.within(everywhere)...)
	return list.Items, err
}

// StatefulSetDrains returns all of the namespace, or of all namespaces, by their names.
func (s *Session) StatefulSetDrains(ctx context.Context, everywhere bool) ([]cachev1alpha1.StatefulSetDrain, error) {
	var list cachev1alpha1.StatefulSetDrainList
	err := s.List(ctx, &list, s.within(everywhere)...)
	return list.Items, err
}

func (s *Session) within(everywhere bool) []client.ListOption {
	if everywhere {
		return nil
	}
	return []client.ListOption{client.InNamespace(s.Namespace)}
}

// Holder returns the object of this name that holds a member's items, the member's claim or, without volumes,
// its pod. owner is the Memcached or the StatefulSetDrain that decides about the holder; nil for none.
func (s *Session) Holder(ctx context.Context, name string) (holder, owner client.Object, err error) {
	claim, missing := s.Claim(ctx, name)
	if missing == nil {
		owner, err = s.OwnerOf(ctx, claim)
		return claim, owner, err
	}
	if !apierrors.IsNotFound(missing) {
		return nil, nil, missing
	}
	var pods corev1.PodList // a list, because the right to read one pod is needed for nothing else
	if err := s.List(ctx, &pods, client.InNamespace(s.Namespace), client.MatchingFields{"metadata.name": name}); err != nil {
		return nil, nil, errors.Join(missing, err)
	}
	for _, pod := range Members(pods.Items) {
		m := &cachev1alpha1.Memcached{}
		if err := s.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: pod.Labels[cachev1alpha1.LabelInstance]}, m); err != nil {
			return nil, nil, err
		}
		if m.Spec.InPods() {
			return &pod, m, nil
		}
		if m.Spec.HasVolumes() {
			return nil, nil, fmt.Errorf("the items of pod %s are on a volume: say its claim, data-%s", name, name)
		}
	}
	return nil, nil, missing
}

// Pods returns the members' pods of a Memcached.
func (s *Session) Pods(ctx context.Context, m *cachev1alpha1.Memcached) ([]corev1.Pod, error) {
	all, err := s.OwnPods(ctx, m)
	return Members(all), err
}

// Members are those of the pods that are members', in order.
func Members(pods []corev1.Pod) []corev1.Pod {
	pods = slices.DeleteFunc(slices.Clone(pods), func(p corev1.Pod) bool {
		return p.Labels[cachev1alpha1.LabelComponent] != cachev1alpha1.ComponentMember
	})
	slices.SortFunc(pods, func(a, b corev1.Pod) int {
		if n := len(a.Name) - len(b.Name); n != 0 {
			return n // cache-10 comes after cache-9
		}
		return strings.Compare(a.Name, b.Name)
	})
	return pods
}

// Claim returns the claim of this name. If it was deleted, and another claim has taken over its volume, Claim returns that one.
func (s *Session) Claim(ctx context.Context, name string) (*corev1.PersistentVolumeClaim, error) {
	claim := &corev1.PersistentVolumeClaim{}
	missing := s.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: name}, claim)
	if !apierrors.IsNotFound(missing) {
		return claim, missing
	}
	claims := &corev1.PersistentVolumeClaimList{}
	if err := s.List(ctx, claims, client.InNamespace(s.Namespace)); err != nil {
		return nil, err
	}
	var aside []string
	for i := range claims.Items {
		c := &claims.Items[i]
		if c.Annotations[cachev1alpha1.AnnotationAsideOf] != "" && strings.HasPrefix(c.Name, name+"-aside-") {
			claim = c
			aside = append(aside, c.Name)
		}
	}
	switch len(aside) {
	case 0:
		return nil, missing
	case 1:
		return claim, nil
	}
	return nil, fmt.Errorf("volumes of several claims of the name %s are set aside: say which of %s", name, strings.Join(aside, ", "))
}

// OwnerOf returns the Memcached or the StatefulSetDrain that decides about the claim; nil if there is none.
func (s *Session) OwnerOf(ctx context.Context, claim *corev1.PersistentVolumeClaim) (client.Object, error) {
	for label, owner := range map[string]client.Object{
		cachev1alpha1.LabelCluster: &cachev1alpha1.Memcached{}, cachev1alpha1.LabelStatefulSetDrain: &cachev1alpha1.StatefulSetDrain{},
	} {
		name := claim.Labels[label]
		if name == "" {
			continue
		}
		err := s.Get(ctx, client.ObjectKey{Namespace: claim.Namespace, Name: name}, owner)
		if err == nil || !apierrors.IsNotFound(err) {
			return owner, err
		}
	}
	return nil, nil
}
