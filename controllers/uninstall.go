package controllers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/stsdrain"
	"example.com/memcached-operator/drainer/contract"
)

// UninstallOptions are the options of Uninstall.
type UninstallOptions struct {
	// Client reads from the API server, without a cache.
	Client client.Client
	// Namespaces are those that the operator watches; empty for all.
	Namespaces []string
	// Deployment is the operator's, which is scaled to zero; empty if the caller stops the
	// operator.
	Deployment client.ObjectKey
	// Lease is the name of the operator's lease. With the lease and the Deployment, the name of the removed
	// installation is known, and objects of another installation don't change. Without them all objects count
	// as this installation's.
	Lease string
	// DeleteClusters deletes every Memcached and every StatefulSetDrain first. Otherwise they stay, and
	// the Memcacheds' members continue to serve.
	DeleteClusters bool
	// Timeout bounds each of two waits: for the operator to finish its work, and for its pods to
	// end.
	Timeout time.Duration
	// Interval is the time between two reads while waiting; a second by default.
	Interval time.Duration
	// Out gets a line for each step.
	Out io.Writer

	// installation is the name of the installation that is removed; empty if it is not known.
	installation string
}

// uninstallPage is the page size of lists, which also have other owners' claims.
const uninstallPage = 500

// Uninstall removes the operator and all its finalizers from a Kubernetes cluster. First the running operator has a
// bounded time to finish its work. Then Uninstall stops the operator, and removes the remaining finalizers. An error
// says what is left; Uninstall may be called again.
func Uninstall(ctx context.Context, o UninstallOptions) error {
	if len(o.Namespaces) == 0 {
		o.Namespaces = []string{metav1.NamespaceAll}
	}
	if o.Interval == 0 {
		o.Interval = time.Second
	}
	if err := o.findInstallation(ctx); err != nil {
		return fmt.Errorf("read the operator's Deployment %s: %w", o.Deployment, err)
	}
	if o.DeleteClusters {
		if err := o.deleteOwners(ctx); err != nil {
			return fmt.Errorf("delete the Memcacheds and StatefulSetDrains: %w", err)
		}
	}
	if err := o.awaitOperator(ctx); err != nil {
		return err
	}
	if err := o.stopOperator(ctx); err != nil {
		return fmt.Errorf("stop the operator, Deployment %s: %w", o.Deployment, err)
	}
	if err := o.openPartitions(ctx); err != nil {
		return fmt.Errorf("let all members be replaced: %w", err)
	}
	if err := o.removeFinalizers(ctx); err != nil {
		return fmt.Errorf("remove the finalizers: %w", err)
	}
	return o.sayWhatStays(ctx)
}

// sayWhatStays names what other installations manage.
func (o *UninstallOptions) sayWhatStays(ctx context.Context) error {
	all, err := o.allOwners(ctx)
	if err != nil {
		return err
	}
	others := false
	for _, owner := range all {
		if by := o.managedByOther(owner); by != "" {
			others = true
			o.say("%s stays, with its claims: installation %s of the operator manages it. "+
				"If that is gone, run manager uninstall without --deployment.", owner, by)
		}
	}
	if !others {
		o.say("No object has a finalizer of the operator any more.")
	}
	return nil
}

// leaseNamespace is the manager's flag for the namespace of the lease.
const leaseNamespace = "--leader-election-namespace"

// findInstallation finds the name of the installation that is removed (package installation), by the
// operator's Deployment and its arguments.
func (o *UninstallOptions) findInstallation(ctx context.Context) error {
	if o.Deployment.Name == "" || o.Lease == "" {
		return nil
	}
	deployment := &appsv1.Deployment{}
	if err := o.Client.Get(ctx, o.Deployment, deployment); client.IgnoreNotFound(err) != nil {
		return err
	}
	namespace := o.Deployment.Namespace
	for i := range deployment.Spec.Template.Spec.Containers {
		c := &deployment.Spec.Template.Spec.Containers[i]
		args := slices.Concat(c.Command, c.Args)
		for j, a := range args {
			if given, is := strings.CutPrefix(a, leaseNamespace+"="); is && given != "" {
				namespace = given
			}
			if a == leaseNamespace && j+1 < len(args) {
				namespace = args[j+1]
			}
		}
	}
	o.installation = namespace + "/" + o.Lease
	return nil
}

func (o *UninstallOptions) say(format string, args ...any) { fmt.Fprintf(o.Out, format+"\n", args...) }

func (o *UninstallOptions) deleteOwners(ctx context.Context) error {
	owners, err := o.owners(ctx)
	if err != nil {
		return err
	}
	for _, owner := range owners {
		if owner.GetDeletionTimestamp() != nil {
			continue
		}
		if err := o.Client.Delete(ctx, owner.Object); client.IgnoreNotFound(err) != nil {
			return err
		}
		o.say("Deleted %s.", owner)
	}
	return nil
}

// awaitOperator waits until the operator has released what is being deleted, and has ended its
// drains, because only a running operator does that without loss. Exceeding the timeout is no
// error, because the operator may not be running.
func (o *UninstallOptions) awaitOperator(ctx context.Context) error {
	var left []string
	finished, err := o.await(ctx, func() (bool, error) {
		var err error
		left, err = o.underWay(ctx)
		return len(left) == 0, err
	})
	if err != nil {
		return fmt.Errorf("find out what the operator still does: %w", err)
	}
	if !finished {
		o.say("The operator has not finished within %s: %s.", o.Timeout, enumerate(left))
	}
	return nil
}

// enumerate lists the first few names.
func enumerate(names []string) string {
	const most = 10
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s, and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}

// underWay names the objects that the operator has yet to release. underWay never releases a claim that
// belongs to no Memcached and no StatefulSetDrain.
func (o *UninstallOptions) underWay(ctx context.Context) ([]string, error) {
	var names []string
	owners, err := o.owners(ctx)
	if err != nil {
		return nil, err
	}
	for _, owner := range owners {
		if owner.GetDeletionTimestamp() != nil && controllerutil.ContainsFinalizer(owner, cachev1alpha1.OwnerFinalizer) {
			names = append(names, owner.String())
		}
	}
	claims, err := o.claims(ctx)
	if err != nil {
		return nil, err
	}
	all, err := o.allOwners(ctx) // after the claims, so that the owner of each claim is known
	for i := range claims {
		c := &claims[i]
		if _, drains := ownerOf(all, c); drains && (o.DeleteClusters || awaitsDrain(c)) {
			names = append(names, "claim "+client.ObjectKeyFromObject(c).String())
		}
	}
	return names, err
}

// awaitsDrain tells whether a claim has to be drained, and no person holds it.
func awaitsDrain(claim *metav1.PartialObjectMetadata) bool {
	_, departed := claim.Annotations[cachev1alpha1.AnnotationLeaving]
	return (departed || claim.DeletionTimestamp != nil) &&
		claim.Annotations[cachev1alpha1.AnnotationDrain] != cachev1alpha1.DrainHold
}

// stopOperator scales the operator's Deployment to zero and waits for its pods to end, so that they
// add no more finalizers. A pod on a lost node never ends, but writes nothing either.
func (o *UninstallOptions) stopOperator(ctx context.Context) error {
	if o.Deployment.Name == "" {
		return nil
	}
	deployment := &appsv1.Deployment{}
	if err := o.Client.Get(ctx, o.Deployment, deployment); err != nil {
		return client.IgnoreNotFound(err)
	}
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":0}}`))
	if err := o.Client.Patch(ctx, deployment, patch); err != nil {
		return client.IgnoreNotFound(err)
	}
	o.say("Scaled the operator, Deployment %s, to zero.", o.Deployment)
	selector, err := metav1.LabelSelectorAsSelector(deployment.Spec.Selector)
	if err != nil {
		return err
	}
	var pods corev1.PodList
	ended, err := o.await(ctx, func() (bool, error) {
		err := o.Client.List(ctx, &pods, client.InNamespace(o.Deployment.Namespace), client.MatchingLabelsSelector{Selector: selector})
		running := slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool {
			return p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
		})
		return !running, err
	})
	if err == nil && !ended {
		o.say("%d pods of the operator have not ended within %s.", len(pods.Items), o.Timeout)
	}
	return err
}

// openPartitions removes the partitions behind which members wait for their turn to be replaced: without the
// operator, their turn would never come.
func (o *UninstallOptions) openPartitions(ctx context.Context) error {
	owners, err := o.owners(ctx)
	if err != nil {
		return err
	}
	for _, owner := range owners {
		set := &appsv1.StatefulSet{}
		if owner.kind != memcachedKind {
			continue
		}
		if err := o.openBudget(ctx, owner.Object); err != nil {
			return err
		}
		if err := o.Client.Get(ctx, client.ObjectKeyFromObject(owner), set); err != nil {
			if err = client.IgnoreNotFound(err); err != nil {
				return err
			}
			continue
		}
		rolling := set.Spec.UpdateStrategy.RollingUpdate
		if !metav1.IsControlledBy(set, owner) || rolling == nil || ptr.Deref(rolling.Partition, 0) == 0 {
			continue
		}
		if err := client.IgnoreNotFound(o.Client.Patch(ctx, set, client.RawPatch(types.MergePatchType, []byte(build.NoPartition)))); err != nil {
			return err
		}
		o.say("The remaining members of StatefulSet %s are replaced where they are.", client.ObjectKeyFromObject(set))
	}
	return nil
}

// openBudget lets the members be evicted, because no operator lets them step out of the ring first any more.
func (o *UninstallOptions) openBudget(ctx context.Context, owner client.Object) error {
	budget := &policyv1.PodDisruptionBudget{}
	if err := o.Client.Get(ctx, client.ObjectKeyFromObject(owner), budget); err != nil {
		return client.IgnoreNotFound(err)
	}
	if !metav1.IsControlledBy(budget, owner) || !build.EvictsNone(budget) {
		return nil
	}
	if err := o.Client.Patch(ctx, budget, client.RawPatch(types.MergePatchType, []byte(build.EvictOne))); err != nil {
		return client.IgnoreNotFound(err)
	}
	o.say("The members of PodDisruptionBudget %s may be evicted with their items.", client.ObjectKeyFromObject(budget))
	return nil
}

// removeFinalizers removes the finalizers in passes, until two passes find none, because a
// StatefulSet may be about to create a claim. If finalizers come back again and again, an operator
// is still running.
func (o *UninstallOptions) removeFinalizers(ctx context.Context) error {
	const enough = 5 // passes, no matter how long each takes
	end := time.Now().Add(o.Timeout)
	for pass, clean := 1, 0; clean < 2; pass++ {
		n, err := o.removeFinalizersOnce(ctx)
		if err != nil {
			return err
		}
		if clean++; n > 0 {
			clean = 0
		}
		if clean == 0 && pass >= enough && time.Now().After(end) {
			return fmt.Errorf("%d finalizers have come back for %s: another operator runs", n, o.Timeout)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(o.Interval):
		}
	}
	return nil
}

// await checks the condition until it is true, and tells whether it became true. The timeout limits
// how often it is checked, and cancels no request.
func (o *UninstallOptions) await(ctx context.Context, condition func() (bool, error)) (bool, error) {
	err := wait.PollUntilContextTimeout(ctx, o.Interval, o.Timeout, true, func(context.Context) (bool, error) { return condition() })
	if wait.Interrupted(err) && ctx.Err() == nil {
		return false, nil
	}
	return err == nil, err
}

func (o *UninstallOptions) removeFinalizersOnce(ctx context.Context) (int, error) {
	owners, err := o.owners(ctx)
	if err != nil {
		return 0, err
	}
	n := 0
	var failed error
	for _, owner := range owners {
		if !controllerutil.ContainsFinalizer(owner, cachev1alpha1.OwnerFinalizer) {
			continue
		}
		n++
		failed = errors.Join(failed, o.removeFinalizer(ctx, owner.kind, owner.Object, cachev1alpha1.OwnerFinalizer))
	}
	claims, err := o.claims(ctx)
	if err != nil {
		return n, errors.Join(failed, err)
	}
	done := drained(claims)
	for i := range claims {
		n++
		failed = errors.Join(failed, o.releaseClaim(ctx, &claims[i], done))
	}
	return n, failed
}

func (o *UninstallOptions) releaseClaim(ctx context.Context, claim *metav1.PartialObjectMetadata, drained map[types.UID]bool) error {
	if !drained[claim.UID] {
		if err := o.keepVolume(ctx, claim); err != nil {
			return fmt.Errorf("keep the volume of claim %s: %w", client.ObjectKeyFromObject(claim), err)
		}
	}
	return o.removeFinalizer(ctx, "claim", claim, cachev1alpha1.ClaimFinalizer)
}

// drained has the claims that a receipt for exactly these claims covers, and that adds up. Any client may
// have written the annotation, or restored it from a backup of another claim.
func drained(claims []metav1.PartialObjectMetadata) map[types.UID]bool {
	done := map[types.UID]bool{}
	for i := range claims {
		c := &claims[i]
		text := c.Annotations[cachev1alpha1.AnnotationReceipt]
		if r, err := contract.ParseReceipt(text); err == nil && r.AddsUp(string(c.UID)) == nil {
			done[c.UID] = true
		}
		// A StatefulSetDrain's receipt is for all claims of a member, and on one of them.
		r, err := stsdrain.ParseRecord(text)
		if err != nil || r.AddsUp(string(c.UID)) != nil {
			continue
		}
		for of := range strings.SplitSeq(r.Claims, ",") {
			done[types.UID(of)] = true
		}
	}
	return done
}

// keepVolume makes the volume outlive a claim that was not drained and is deleted with its finalizer,
// unless a person has given its items up.
func (o *UninstallOptions) keepVolume(ctx context.Context, claim *metav1.PartialObjectMetadata) error {
	givenUp := claim.Annotations[cachev1alpha1.AnnotationDrain] == cachev1alpha1.DrainSkip && !read.MarksOfAnother(claim)
	if claim.DeletionTimestamp == nil || givenUp {
		return nil
	}
	whole := &corev1.PersistentVolumeClaim{}
	if err := o.Client.Get(ctx, client.ObjectKeyFromObject(claim), whole); err != nil {
		return client.IgnoreNotFound(err)
	}
	if len(validation.IsDNS1123Subdomain(whole.Spec.VolumeName)) > 0 {
		return nil // the claim has no volume, or the name of no possible volume
	}
	volume := &corev1.PersistentVolume{}
	err := o.Client.Get(ctx, client.ObjectKey{Name: whole.Spec.VolumeName}, volume)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if apierrors.IsForbidden(err) {
		o.say("Claim %s was deleted before it was drained. There is no right to volumes: the reclaim policy of volume %s decides what happens to it.",
			client.ObjectKeyFromObject(claim), whole.Spec.VolumeName)
		return nil
	}
	if err != nil || volume.Spec.ClaimRef == nil || volume.Spec.ClaimRef.UID != whole.UID ||
		volume.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain {
		return err
	}
	before := volume.DeepCopy()
	volume.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	if err := o.Client.Patch(ctx, volume, client.MergeFrom(before)); err != nil {
		return err
	}
	o.say("Claim %s was deleted before it was drained: its volume %s stays, with reclaim policy Retain.",
		client.ObjectKeyFromObject(claim), volume.Name)
	return nil
}

// removeFinalizer removes one finalizer from the object, and changes nothing else.
func (o *UninstallOptions) removeFinalizer(ctx context.Context, kind string, object client.Object, finalizer string) error {
	key := client.ObjectKeyFromObject(object)
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		before := object.DeepCopyObject().(client.Object)
		if !controllerutil.RemoveFinalizer(object, finalizer) {
			return nil
		}
		err := o.Client.Patch(ctx, object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		if apierrors.IsConflict(err) {
			if err := o.Client.Get(ctx, key, object); err != nil {
				return err
			}
		}
		return err
	})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("%s %s: %w", kind, key, err)
	}
	o.say("Removed the finalizer %s from %s %s.", finalizer, kind, key)
	return nil
}

// claimsWithFinalizer returns all claims with our finalizer, with any labels.
func (o *UninstallOptions) claimsWithFinalizer(ctx context.Context) ([]metav1.PartialObjectMetadata, error) {
	var held []metav1.PartialObjectMetadata
	for _, namespace := range o.Namespaces {
		for next := ""; ; {
			list := &metav1.PartialObjectMetadataList{}
			list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaimList"))
			if err := o.Client.List(ctx, list, client.InNamespace(namespace), client.Limit(uninstallPage), client.Continue(next)); err != nil {
				return nil, err
			}
			for i := range list.Items {
				if slices.Contains(list.Items[i].Finalizers, cachev1alpha1.ClaimFinalizer) {
					list.Items[i].SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"))
					held = append(held, list.Items[i])
				}
			}
			if next = list.Continue; next == "" {
				break
			}
		}
	}
	return held, nil
}
