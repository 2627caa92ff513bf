package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// storageClass is that of the benchmark's volumes.
const storageClass = "scale"

const provisioner = "scale.example.com/volumes"

// volumes makes a volume for each claim, and deletes released volumes. The controller manager binds volumes and
// claims.
type volumes struct{ client.Client }

func (v volumes) setUp(mgr ctrl.Manager) error {
	parts := map[client.Object]reconcile.Func{
		&corev1.PersistentVolumeClaim{}: v.provision,
		&corev1.PersistentVolume{}:      v.remove,
	}
	for object, f := range parts {
		err := ctrl.NewControllerManagedBy(mgr).For(object).
			WithOptions(controller.Options{MaxConcurrentReconciles: 8, SkipNameValidation: ptr.To(true)}).Complete(f)
		if err != nil {
			return fmt.Errorf("set up volumes: %w", err)
		}
	}
	return nil
}

func class() *storagev1.StorageClass {
	return &storagev1.StorageClass{
		ObjectMeta:        metav1.ObjectMeta{Name: storageClass},
		Provisioner:       provisioner,
		ReclaimPolicy:     ptr.To(corev1.PersistentVolumeReclaimDelete),
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingImmediate),
	}
}

func (v volumes) provision(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var claim corev1.PersistentVolumeClaim
	if err := v.Get(ctx, req.NamespacedName, &claim); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if claim.Spec.VolumeName != "" || claim.DeletionTimestamp != nil || ptr.Deref(claim.Spec.StorageClassName, "") != storageClass {
		return ctrl.Result{}, nil
	}
	err := v.Create(ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "pvc-" + string(claim.UID),
			Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": provisioner},
		},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName:              storageClass,
			AccessModes:                   claim.Spec.AccessModes,
			Capacity:                      claim.Spec.Resources.Requests,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim",
				Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: "scale.example.com", VolumeHandle: string(claim.UID)},
			},
		},
	})
	if apierrors.IsAlreadyExists(err) {
		return ctrl.Result{}, nil // the cache is behind
	}
	return ctrl.Result{}, err
}

func (v volumes) remove(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var volume corev1.PersistentVolume
	if err := v.Get(ctx, req.NamespacedName, &volume); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if volume.Status.Phase != corev1.VolumeReleased || volume.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, client.IgnoreNotFound(v.Delete(ctx, &volume))
}
