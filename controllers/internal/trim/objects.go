package trim

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/drainer/contract"
)

// Claim keeps a claim's volume, the sizes that it asks for and has, and its phase.
func Claim(object any) (any, error) {
	if claim, ok := object.(*corev1.PersistentVolumeClaim); ok {
		metadata(&claim.ObjectMeta, ofClaims)
		claim.Spec = corev1.PersistentVolumeClaimSpec{
			VolumeName: name(claim.Spec.VolumeName),
			Resources:  corev1.VolumeResourceRequirements{Requests: storage(claim.Spec.Resources.Requests)},
		}
		claim.Status = corev1.PersistentVolumeClaimStatus{
			Phase: corev1.PersistentVolumeClaimPhase(name(string(claim.Status.Phase))), Capacity: storage(claim.Status.Capacity),
		}
	}
	return object, nil
}

func storage(all corev1.ResourceList) corev1.ResourceList {
	if size, is := all[corev1.ResourceStorage]; is {
		return corev1.ResourceList{corev1.ResourceStorage: size}
	}
	return nil
}

// Job keeps the state of the Job; its annotations say what it does.
func Job(object any) (any, error) {
	if job, ok := object.(*batchv1.Job); ok {
		metadata(&job.ObjectMeta, ofJobs)
		job.Spec = batchv1.JobSpec{}
		job.Status = batchv1.JobStatus{StartTime: job.Status.StartTime, Failed: job.Status.Failed, Conditions: jobConditions(job.Status.Conditions)}
	}
	return object, nil
}

// jobConditions keeps how the Job ended, and whether it is suspended, the first condition of each kind.
func jobConditions(all []batchv1.JobCondition) []batchv1.JobCondition {
	var kept []batchv1.JobCondition
	seen := map[batchv1.JobConditionType]bool{}
	for _, c := range all {
		if c.Type != batchv1.JobComplete && c.Type != batchv1.JobFailed && c.Type != batchv1.JobSuspended || c.Status != corev1.ConditionTrue || seen[c.Type] {
			continue
		}
		seen[c.Type] = true
		c.Reason, c.Message = cut(c.Reason, maxReason), cut(c.Message, maxMessage)
		kept = append(kept, c)
	}
	return kept
}

// droppedMark is an annotation on cached objects whose content was dropped. On a live object it has
// the same effect, which does no harm.
const droppedMark = cachev1alpha1.Group + "/content-dropped"

// maxContent bounds the spec that is kept of an object, and the list of fields that the operator
// has set, in encoded bytes. Larger objects are read live.
const maxContent = 64 << 10

// Whole tells whether the cache has the object's content. If not, a reconcile reads it
// live.
func Whole(o metav1.Object) bool {
	_, dropped := o.GetAnnotations()[droppedMark]
	return !dropped
}

// named tells whether a Memcached controls the object, and it has the name that the operator gives
// it. A cluster has one to three such objects of each kind, and a Service for each member, while
// clients may create any number of others.
func named(o metav1.Object) bool {
	ref := metav1.GetControllerOfNoCopy(o)
	if ref == nil || !build.IsMemcached(ref) {
		return false
	}
	switch o.(type) {
	case *corev1.ConfigMap:
		return o.GetName() == build.ServersName(ref.Name) || o.GetName() == build.RouterName(ref.Name)
	case *discoveryv1.EndpointSlice:
		return o.GetName() == build.ListName(ref.Name)
	case *corev1.Service:
		_, member := build.MemberServiceOrdinal(ref.Name, o.GetName())
		return member || slices.Contains([]string{ref.Name, build.ListName(ref.Name), build.DiscoveryName(ref.Name), build.RouterName(ref.Name)}, o.GetName())
	case *appsv1.StatefulSet:
		return o.GetName() == ref.Name
	}
	return o.GetName() == ref.Name || o.GetName() == build.RouterName(ref.Name)
}

// Applied keeps the parts of an object that a reconcile compares: the content, and which fields the
// operator has set. If the object is not the operator's, or is large, only its metadata is kept,
// and it is not Whole.
func Applied(object any) (any, error) {
	o, ok := object.(interface {
		metav1.Object
		metav1.ObjectMetaAccessor
	})
	if !ok {
		return object, nil // the object is a tombstone
	}
	fields := appliedFields(o.GetManagedFields())
	whole := Whole(o) && named(o) && specSize(object)+size(fields) <= maxContent
	metadata(o.GetObjectMeta().(*metav1.ObjectMeta), ofApplied)
	if whole {
		o.SetManagedFields(fields)
	} else {
		o.SetAnnotations(with(o.GetAnnotations(), droppedMark, ""))
	}
	switch o := object.(type) {
	case *appsv1.StatefulSet:
		content(whole, &o.Spec)
		s := o.Status
		o.Status = appsv1.StatefulSetStatus{
			ObservedGeneration: s.ObservedGeneration, Replicas: s.Replicas, ReadyReplicas: s.ReadyReplicas, UpdatedReplicas: s.UpdatedReplicas,
			CurrentRevision: name(s.CurrentRevision), UpdateRevision: name(s.UpdateRevision),
		}
	case *appsv1.Deployment:
		content(whole, &o.Spec)
		s := o.Status
		o.Status = appsv1.DeploymentStatus{
			ObservedGeneration: s.ObservedGeneration, Replicas: s.Replicas, ReadyReplicas: s.ReadyReplicas, UpdatedReplicas: s.UpdatedReplicas,
			Conditions: replicaFailure(s.Conditions),
		}
	case *corev1.Service:
		content(whole, &o.Spec)
		content(false, &o.Status)
	case *corev1.ConfigMap:
		content(false, &o.BinaryData)
		o.Data = servers(whole, o.Data)
	case *discoveryv1.EndpointSlice:
		o.AddressType = discoveryv1.AddressType(name(string(o.AddressType)))
		content(whole, &o.Endpoints)
		content(whole, &o.Ports)
	case *networkingv1.NetworkPolicy:
		content(whole, &o.Spec)
	case *policyv1.PodDisruptionBudget:
		content(whole, &o.Spec)
		content(false, &o.Status)
	}
	return object, nil
}

// specSize is the encoded size of the object's spec, or of the endpoints and ports of an
// EndpointSlice. A ConfigMap has no spec; its data is cut instead.
func specSize(object any) int {
	switch o := object.(type) {
	case *appsv1.StatefulSet:
		return o.Spec.Size()
	case *appsv1.Deployment:
		return o.Spec.Size()
	case *corev1.Service:
		return o.Spec.Size()
	case *discoveryv1.EndpointSlice:
		return (&discoveryv1.EndpointSlice{Endpoints: o.Endpoints, Ports: o.Ports}).Size()
	case *networkingv1.NetworkPolicy:
		return o.Spec.Size()
	case *policyv1.PodDisruptionBudget:
		return o.Spec.Size()
	}
	return 0
}

func size(fields []metav1.ManagedFieldsEntry) int {
	n := 0
	for i := range fields {
		n += fields[i].Size()
	}
	return n
}

// content drops the content unless keep is true.
func content[T any](keep bool, of *T) {
	if !keep {
		*of = *new(T)
	}
}

// appliedFields keeps the entry with the fields that the operator has applied.
func appliedFields(all []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	for _, f := range all {
		if f.Manager == cachev1alpha1.ManagedBy && f.Operation == metav1.ManagedFieldsOperationApply && f.Subresource == "" {
			return []metav1.ManagedFieldsEntry{f}
		}
	}
	return nil
}

// replicaFailure keeps the condition that says why the Deployment's controller can't create pods.
func replicaFailure(all []appsv1.DeploymentCondition) []appsv1.DeploymentCondition {
	for _, c := range all {
		if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue {
			c.Reason, c.Message = cut(c.Reason, maxReason), cut(c.Message, maxMessage)
			return []appsv1.DeploymentCondition{c}
		}
	}
	return nil
}

// maxServers bounds each form of the clients' list: as many servers as a cluster can
// have, each with a port, quotes and a comma.
const maxServers = cachev1alpha1.MaxSize * (maxName + len(`"":65535,`))

// servers keeps the clients' list in each of its forms, and the routers' table.
func servers(keep bool, data map[string]string) map[string]string {
	var kept map[string]string
	for key, list := range data {
		if keep && build.IsServersKey(key) {
			kept = with(kept, key, cut(list, maxServers))
		} else if keep && key == build.RouterTableKey {
			kept = with(kept, key, cut(list, contract.MaxRingTable))
		}
	}
	return kept
}
