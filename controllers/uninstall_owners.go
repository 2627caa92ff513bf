package controllers

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/installation"
	"example.com/memcached-operator/controllers/internal/stsdrain"
	"example.com/memcached-operator/controllers/internal/stsdrain/observe"
)

// owner is an object whose claims have our finalizer: a Memcached or a StatefulSetDrain.
type owner struct {
	client.Object
	kind string
}

// memcachedKind is the kind of owners that have a StatefulSet of their own.
const memcachedKind = "Memcached"

func (o owner) String() string { return o.kind + " " + client.ObjectKeyFromObject(o.Object).String() }

// allOwners returns all Memcacheds and StatefulSetDrains, Memcacheds first; none of a kind that doesn't exist
// any more.
func (o *UninstallOptions) allOwners(ctx context.Context) ([]owner, error) {
	var all []owner
	for _, of := range []struct {
		kind string
		list client.ObjectList
	}{{memcachedKind, &cachev1alpha1.MemcachedList{}}, {"StatefulSetDrain", &cachev1alpha1.StatefulSetDrainList{}}} {
		for _, namespace := range o.Namespaces {
			list := of.list.DeepCopyObject().(client.ObjectList)
			err := o.Client.List(ctx, list, client.InNamespace(namespace))
			if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
				break
			}
			if err != nil {
				return nil, err
			}
			_ = meta.EachListItem(list, func(object runtime.Object) error { // it never fails
				all = append(all, owner{object.(client.Object), of.kind})
				return nil
			})
		}
	}
	return all, nil
}

// owners returns the owners that no other installation manages.
func (o *UninstallOptions) owners(ctx context.Context) ([]owner, error) {
	all, err := o.allOwners(ctx)
	return slices.DeleteFunc(all, func(owner owner) bool { return o.managedByOther(owner) != "" }), err
}

// managedByOther is the name of another installation that manages the object; empty if there is none.
func (o *UninstallOptions) managedByOther(object client.Object) string {
	if by := installation.See(object, 0).Operator; o.installation != "" && by != o.installation {
		return by
	}
	return ""
}

// claims returns the claims with our finalizer, with any labels, except those of owners that another
// installation manages.
func (o *UninstallOptions) claims(ctx context.Context) ([]metav1.PartialObjectMetadata, error) {
	held, err := o.claimsWithFinalizer(ctx)
	if err != nil || o.installation == "" {
		return held, err
	}
	// The owners are read after the claims, so that the owner of each claim is known.
	all, err := o.allOwners(ctx)
	return slices.DeleteFunc(held, func(c metav1.PartialObjectMetadata) bool {
		of, is := ownerOf(all, &c)
		return is && o.managedByOther(of) != ""
	}), err
}

// ownerOf returns the owner of the claim; false if the owner is gone. An annotation that a StatefulSetDrain
// has written on the claim proves its owner; otherwise the claim's name decides, which may fit both a
// Memcached and a StatefulSet with a shorter name.
func ownerOf(all []owner, claim *metav1.PartialObjectMetadata) (of owner, is bool) {
	for _, o := range all {
		if o.GetNamespace() != claim.Namespace {
			continue
		}
		named := false
		switch object := o.Object.(type) {
		case *cachev1alpha1.Memcached:
			cluster, member := build.ClaimCluster(claim.Name)
			named = member && cluster == object.Name
		case *cachev1alpha1.StatefulSetDrain:
			if observe.Ours(object, claim) {
				return o, true
			}
			_, named = stsdrain.ParseClaimName(object.Spec.StatefulSetName, claim.Name)
		}
		if named && !is {
			of, is = o, true
		}
	}
	return of, is
}
