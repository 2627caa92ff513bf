package write

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/claims/read"
)

// AddFinalizer gives an owner of claims the finalizer, under an optimistic lock, which shows that the owner
// isn't deleted. The same write names the installation of the operator that manages the owner, unless
// installation is empty. added tells whether the finalizer is new. An owner that is gone by now is a refusal.
func AddFinalizer(ctx context.Context, c client.Client, owner client.Object, installation string) (added bool, err error) {
	if added, err = patchFinalizer(ctx, c, owner, controllerutil.AddFinalizer, installation); apierrors.IsNotFound(err) {
		err = read.RefusedBy(err)
	}
	return added, err
}

// RemoveFinalizer takes the finalizer from an owner of claims, under an optimistic lock.
func RemoveFinalizer(ctx context.Context, c client.Client, owner client.Object) error {
	_, err := patchFinalizer(ctx, c, owner, controllerutil.RemoveFinalizer, "")
	return err
}

// patchFinalizer changes the finalizers of an owner. If the write fails, owner stays unchanged, because later
// steps must not take the change for written.
func patchFinalizer(ctx context.Context, c client.Client, owner client.Object, change func(client.Object, string) bool, installation string) (changed bool, err error) {
	before := owner.DeepCopyObject().(client.Object)
	if !change(owner, cachev1alpha1.OwnerFinalizer) {
		return false, nil
	}
	if installation != "" {
		annotations := owner.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[cachev1alpha1.AnnotationOperator] = installation
		owner.SetAnnotations(annotations)
	}
	if err := c.Patch(ctx, owner, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		owner.SetFinalizers(before.GetFinalizers())
		owner.SetAnnotations(before.GetAnnotations())
		return false, err
	}
	return true, nil
}
