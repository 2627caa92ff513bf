package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/test/internal/deployed"
)

// spool is the name of the sample of a StatefulSetDrain, of its StatefulSet, and of its file.
const spool = "spool"

// createSpool creates the sample with so many members, and without data: its drainer's work is not measured.
func (b *bench) createSpool(ctx context.Context, sample string, members int) error {
	text, err := os.ReadFile(sample)
	if err != nil {
		return err
	}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			return fmt.Errorf("%s: %w", sample, err)
		}
		object.SetNamespace(b.namespace)
		if object.GetKind() == "StatefulSet" {
			if err := unstructured.SetNestedField(object.Object, int64(members), "spec", "replicas"); err != nil {
				return err
			}
		}
		if err := b.kube.Create(ctx, object); err != nil {
			return fmt.Errorf("create %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return b.settleSpool(members)(ctx)
}

// settleSpool waits until so many members are ready and protected, and all others are drained.
func (b *bench) settleSpool(members int) func(context.Context) error {
	return func(ctx context.Context) error {
		return deployed.Until(ctx, "the StatefulSet is as wanted", func() error {
			d := &cachev1alpha1.StatefulSetDrain{}
			if err := b.kube.Get(ctx, client.ObjectKey{Namespace: b.namespace, Name: spool}, d); err != nil {
				return err
			}
			s := &d.Status
			if s.ObservedGeneration == d.Generation && s.Replicas == int32(members) && s.Draining == 0 && meta.IsStatusConditionTrue(s.Conditions, cachev1alpha1.ConditionReady) {
				return nil
			}
			return fmt.Errorf("%d of %d members are ready, %d drains, conditions %+v", s.ReadyReplicas, s.Replicas, s.Draining, s.Conditions)
		})
	}
}

// scaleSpool scales the StatefulSet down, and notes when each event arrives. Its volumes are drained from
// claims of other names, which begin with the member's.
func (b *bench) scaleSpool(ctx context.Context, members int) (scaleDown, error) {
	set := &appsv1.StatefulSet{}
	if err := b.kube.Get(ctx, client.ObjectKey{Namespace: b.namespace, Name: spool}, set); err != nil {
		return scaleDown{}, err
	}
	aside := func(o client.Object) bool {
		return strings.HasPrefix(o.GetName(), fmt.Sprintf("data-%s-%d-aside-", spool, members))
	}
	l := leaving{pod: fmt.Sprintf("%s-%d", spool, members), drained: aside, drains: aside}
	return b.measure(ctx, set, members, l, b.settleSpool(members))
}
