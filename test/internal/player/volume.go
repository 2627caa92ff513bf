package player

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// claim provisions a volume for a pending claim; the controller manager binds the two. claim makes the volume
// of a bound claim as large as the claim asks.
func (p *Player) claim(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var claim corev1.PersistentVolumeClaim
	if err := p.client.Get(ctx, req.NamespacedName, &claim); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	class := ptr.Deref(claim.Spec.StorageClassName, "")
	if claim.DeletionTimestamp != nil || class != StorageClass && class != FixedClass && class != LateClass {
		return ctrl.Result{}, nil
	}
	if class == LateClass && claim.Spec.VolumeName == "" && claim.Annotations[selectedNode] == "" {
		return ctrl.Result{}, nil
	}
	if claim.Spec.VolumeName != "" {
		return p.grow(ctx, &claim)
	}
	err := p.client.Create(ctx, volumeFor(&claim))
	if apierrors.IsAlreadyExists(err) {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, err
}

// selectedNode is a scheduler's annotation on a claim whose volume is to be made now.
const selectedNode = "volume.kubernetes.io/selected-node"

// selectNode asks for the claim's volume, because a pod that uses it gets a node.
func (p *Player) selectNode(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	if ptr.Deref(claim.Spec.StorageClassName, "") != LateClass || claim.Spec.VolumeName != "" || claim.Annotations[selectedNode] != "" {
		return nil
	}
	before := claim.DeepCopy()
	metav1.SetMetaDataAnnotation(&claim.ObjectMeta, selectedNode, NodeName)
	return client.IgnoreNotFound(p.client.Patch(ctx, claim, client.MergeFrom(before)))
}

// grow acts as an external resizer and a kubelet: first the volume, then the claim's status.
func (p *Player) grow(ctx context.Context, claim *corev1.PersistentVolumeClaim) (ctrl.Result, error) {
	asked := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if claim.Status.Phase != corev1.ClaimBound || asked.Cmp(claim.Status.Capacity[corev1.ResourceStorage]) <= 0 {
		return ctrl.Result{}, nil
	}
	if p.fixes(claim.Namespace) {
		return ctrl.Result{RequeueAfter: lookInterval}, nil
	}
	volume := &corev1.PersistentVolume{}
	if err := p.client.Get(ctx, client.ObjectKey{Name: claim.Spec.VolumeName}, volume); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	before := volume.DeepCopy()
	volume.Spec.Capacity[corev1.ResourceStorage] = asked
	if err := p.client.Patch(ctx, volume, client.MergeFrom(before)); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	was := claim.DeepCopy()
	claim.Status.Capacity[corev1.ResourceStorage] = asked
	return ctrl.Result{}, client.IgnoreNotFound(p.client.Status().Patch(ctx, claim, client.MergeFrom(was)))
}

func (p *Player) fixes(namespace string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stage(namespace).fixed
}

func volumeFor(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "pvc-" + string(claim.UID),
			Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": provisioner},
		},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName:              *claim.Spec.StorageClassName,
			AccessModes:                   claim.Spec.AccessModes,
			VolumeMode:                    claim.Spec.VolumeMode,
			Capacity:                      claim.Spec.Resources.Requests,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim",
				Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: "player.example.com", VolumeHandle: string(claim.UID)},
			},
		},
	}
}

// volume deletes a departed member's volume, as the provisioner of its class would.
func (p *Player) volume(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var v corev1.PersistentVolume
	if err := p.client.Get(ctx, req.NamespacedName, &v); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if v.Status.Phase != corev1.VolumeReleased || v.DeletionTimestamp != nil ||
		v.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, client.IgnoreNotFound(p.client.Delete(ctx, &v, client.Preconditions{UID: &v.UID}))
}
