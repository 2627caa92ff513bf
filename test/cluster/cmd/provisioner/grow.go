package main

import (
	"context"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// growVolumes makes volumes as large as their claims ask for, until the context ends, as the resizer of a
// storage driver does. A directory has no size of its own, so nothing else is to be done. The kubelet then
// updates the claim.
func growVolumes(ctx context.Context, client kubernetes.Interface, name string) error {
	factory := informers.NewSharedInformerFactory(client, 10*time.Second)
	_, err := factory.Core().V1().PersistentVolumeClaims().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(_, object any) {
			if claim, ok := object.(*corev1.PersistentVolumeClaim); ok && mustGrow(claim) {
				if err := grow(ctx, client, name, claim); err != nil {
					fmt.Fprintf(os.Stderr, "provisioner: grow the volume of claim %s/%s: %v\n", claim.Namespace, claim.Name, err)
				}
			}
		},
	})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	return nil
}

func mustGrow(claim *corev1.PersistentVolumeClaim) bool {
	return claim.Status.Phase == corev1.ClaimBound &&
		claim.Spec.Resources.Requests.Storage().Cmp(*claim.Status.Capacity.Storage()) > 0
}

func grow(ctx context.Context, client kubernetes.Interface, name string, claim *corev1.PersistentVolumeClaim) error {
	volumes := client.CoreV1().PersistentVolumes()
	volume, err := volumes.Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	asked := claim.Spec.Resources.Requests.Storage()
	if volume.Annotations["pv.kubernetes.io/provisioned-by"] != name || volume.Spec.Capacity.Storage().Cmp(*asked) >= 0 {
		return nil
	}
	patch := fmt.Sprintf(`{"spec":{"capacity":{"storage":%q}}}`, asked)
	_, err = volumes.Patch(ctx, volume.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}
