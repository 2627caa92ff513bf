package observe

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/identity"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/controllers/internal/ring"
	"example.com/memcached-operator/controllers/internal/status"
)

// OwnerOf says how the claims, Jobs and drainers' pods of a Memcached are read.
func OwnerOf(cluster *cachev1alpha1.Memcached) *read.Owner {
	name := cluster.Name
	return &read.Owner{
		Object: cluster, Kind: "Memcached",
		Label: cachev1alpha1.LabelCluster, Cached: client.MatchingFields{clusterIndex: name},
		Pods: []client.ListOption{
			client.MatchingLabelsSelector{Selector: identity.Selector(&corev1.Pod{})}, client.MatchingLabels{cachev1alpha1.LabelInstance: name},
		},
		PodName: func(ordinal int32) string { return build.PodName(name, ordinal) },
		Named: func(claim string) bool {
			of, is := build.ClaimCluster(claim)
			return is && of == name
		},
		Owns:       func(c *corev1.PersistentVolumeClaim) bool { return identity.OwnClaim(name, c) },
		Claim:      func(c *corev1.PersistentVolumeClaim) (claims.Claim, bool) { return PlanClaim(name, c) },
		OwnsJob:    func(job *batchv1.Job) bool { return identity.OwnJob(cluster, job) },
		Receipt:    receiptOf,
		Grace:      status.DrainerGrace(cluster),
		MoreMemory: claims.MoreMemory(cluster.Spec.Drain.Resources.Limits, "spec.drain.resources"),
	}
}

// For returns the reader of the claims, Jobs and drainers' pods of a cluster.
func (r *Reader) For(cluster *cachev1alpha1.Memcached) *read.Reader {
	return &read.Reader{Owner: OwnerOf(cluster), Cache: r.Cache, Live: r.Live, Clock: r.Clock, Unlabelled: r.Unlabelled, Seen: r.Seen}
}

// receiptOf is the receipt of a drainer of ours.
func receiptOf(_ *batchv1.Job, ended *corev1.Pod) (*action.Receipt, error) {
	return plan.ParseReceipt(read.Drainer(ended).Terminated.Message)
}

// PlanJob translates the Job, with its receipt, for the plan.
func PlanJob(job *batchv1.Job, pods []corev1.Pod) claims.Job {
	out := (&read.Owner{Receipt: receiptOf}).Job(job, pods)
	out.Answers = job.Annotations[cachev1alpha1.AnnotationWarm]
	return out
}

// holders returns the members' pods as holders of their items, for the plan.
func holders(cluster string, pods []corev1.Pod) (all []claims.Claim) {
	for i := range pods {
		if ordinal, ok := build.PodOrdinal(cluster, pods[i].Name); ok {
			all = append(all, read.Pod(&pods[i], ordinal))
		}
	}
	return all
}

// PlanClaim translates the claim for the plan; false if it is not a member's.
func PlanClaim(cluster string, c *corev1.PersistentVolumeClaim) (claims.Claim, bool) {
	ordinal, ok := build.ClaimOrdinal(cluster, c.Name)
	aside := false
	if !ok {
		ordinal, aside = build.AsideOrdinal(cluster, c.Name)
	}
	if !ok && !aside {
		return claims.Claim{}, false
	}
	out := read.Claim(c, ordinal, aside, build.AsideName(cluster, ordinal, c.UID))
	out.Moved = ring.ParseSerial(c.Annotations[cachev1alpha1.AnnotationMoved])
	out.MoveRequest = read.Request(c.Annotations[cachev1alpha1.AnnotationMove], claims.Skip, claims.Retry)
	if r, err := plan.ParseReceipt(c.Annotations[cachev1alpha1.AnnotationReceipt]); err == nil {
		out.Receipt = r
	}
	return out, true
}
