package read

import (
	"context"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/identity"
	"example.com/memcached-operator/controllers/internal/trim"
)

// The owner's objects are found without reading other owners' objects in its namespace. The API
// server selects those that have the owner's label. The names of the others are known: claims have
// their members' names, the cache had them before they lost their label, and a pod names its Job.

var (
	kindClaims = corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim")
	kindJobs   = batchv1.SchemeGroupVersion.WithKind("Job")
)

const (
	// page is how many objects are read at once. Any client may have created them, with any size.
	page = 32
	// mostByName bounds how many objects are read by their names. For more names, all objects of the
	// namespace are read, in pages.
	mostByName = 16
)

// LiveClaims are the claims of members, present and past. Unlabelled are claims that the cache can't
// see: they came back from a snapshot, another chart left them, or they lost their label. Others are
// claims with a member's name that another owner controls.
type LiveClaims struct {
	Claims             []claims.Claim
	Unlabelled, Others []corev1.PersistentVolumeClaim
	// there has the names of all these claims, and of claims that were looked for and don't exist.
	there map[string]bool
}

// LiveClaims reads the owner's claims live: those with its label and, by their names, those that a
// watch has seen without the label and those that the caller names. LiveClaims reads no objects of
// other owners in the namespace, so their number doesn't matter.
func (r *Reader) LiveClaims(ctx context.Context, names ...string) (*LiveClaims, error) {
	found := &LiveClaims{}
	list := &corev1.PersistentVolumeClaimList{}
	err := eachPage(ctx, r.Live, list, func() {
		for i := range list.Items {
			found.add(r.Owner, &list.Items[i])
		}
	}, r.find()...)
	if err != nil {
		return nil, fmt.Errorf("list the claims of %s: %w", r.is(), err)
	}
	known, err := r.knownNames(ctx, &corev1.PersistentVolumeClaimList{}, kindClaims)
	if err != nil {
		return nil, err
	}
	return found, r.LookFor(ctx, found, slices.Concat(known, names)...)
}

// Everywhere reads all claims of the namespace, and keeps those of members that the caller has not read from the
// cache.
func (r *Reader) Everywhere(ctx context.Context, cached []corev1.PersistentVolumeClaim) (*LiveClaims, error) {
	found, list := &LiveClaims{}, &corev1.PersistentVolumeClaimList{}
	err := eachPage(ctx, r.Live, list, func() {
		for i := range list.Items {
			if c := &list.Items[i]; !slices.ContainsFunc(cached, func(k corev1.PersistentVolumeClaim) bool { return k.UID == c.UID }) {
				found.add(r.Owner, c)
			}
		}
	}, client.InNamespace(r.Object.GetNamespace()))
	if err != nil {
		return nil, fmt.Errorf("list the claims of the namespace: %w", err)
	}
	return found, nil
}

// LookFor adds the claims with these names to found.
func (r *Reader) LookFor(ctx context.Context, found *LiveClaims, names ...string) error {
	names = slices.DeleteFunc(slices.Compact(slices.Sorted(slices.Values(names))), func(name string) bool { return found.there[name] })
	for _, name := range names {
		found.note(name)
	}
	return readNamed(ctx, r, kindClaims, &corev1.PersistentVolumeClaimList{}, names, func(claim *corev1.PersistentVolumeClaim) { found.add(r.Owner, claim) })
}

// note notes that a claim of this name was looked for.
func (l *LiveClaims) note(name string) {
	if l.there == nil {
		l.there = map[string]bool{}
	}
	l.there[name] = true
}

// add adds a claim to the list it belongs to, if its name is that of a member's claim.
func (l *LiveClaims) add(o *Owner, claim *corev1.PersistentVolumeClaim) {
	if !o.Named(claim.Name) {
		return
	}
	_, _ = trim.Claim(claim) // trim.Claim never fails
	l.note(claim.Name)
	if !o.Owns(claim) {
		l.Others = append(l.Others, *claim)
		return
	}
	if !o.finds(claim) {
		l.Unlabelled = append(l.Unlabelled, *claim)
	}
	if c, ok := o.Claim(claim); ok {
		l.Claims = append(l.Claims, c)
	}
}

// readNamed reads the objects with these names.
func readNamed[T any, P interface {
	*T
	client.Object
}](ctx context.Context, r *Reader, kind schema.GroupVersionKind, list client.ObjectList, names []string, each func(P)) error {
	word, namespace := words[kind], r.Object.GetNamespace()
	if len(names) > mostByName {
		err := eachPage(ctx, r.Live, list, func() {
			_ = meta.EachListItem(list, func(o runtime.Object) error { // each never fails
				object := o.(P)
				if at := slices.Index(names, object.GetName()); at >= 0 {
					each(object)
					names = slices.Delete(names, at, at+1)
				}
				return nil
			})
		}, client.InNamespace(namespace))
		if err != nil {
			return fmt.Errorf("list the %ss of the namespace: %w", word, err)
		}
		r.gone(kind, names...)
		return nil
	}
	for _, name := range names {
		object, err := Get[T, P](ctx, r.Live, client.ObjectKey{Namespace: namespace, Name: name})
		if err != nil {
			return fmt.Errorf("get %s %s: %w", word, name, err)
		}
		if object == nil {
			r.gone(kind, name)
			continue
		}
		each(object)
	}
	return nil
}

var words = map[schema.GroupVersionKind]string{kindClaims: "claim", kindJobs: "Job"}

// eachPage reads one page of a list at a time.
func eachPage(ctx context.Context, reader client.Reader, list client.ObjectList, each func(), options ...client.ListOption) error {
	for more := true; more; more = list.GetContinue() != "" {
		if err := reader.List(ctx, list, append(slices.Clone(options), client.Limit(page), client.Continue(list.GetContinue()))...); err != nil {
			return err
		}
		each()
	}
	return nil
}

// cached fills the list with the owner's objects from the cache.
func (r *Reader) cached(ctx context.Context, list client.ObjectList) error {
	return r.Cache.List(ctx, list, client.InNamespace(r.Object.GetNamespace()), r.Cached)
}

// Claims reads the claims that the cache finds for the owner; some may be another owner's.
func (r *Reader) Claims(ctx context.Context) ([]corev1.PersistentVolumeClaim, error) {
	var list corev1.PersistentVolumeClaimList
	if err := r.cached(ctx, &list); err != nil {
		return nil, err
	}
	r.see(kindClaims, namesOf(list.Items, r.Owns))
	return list.Items, nil
}

// see remembers the names of the owner's objects that the cache has now. There may be any number of
// other owners' objects with its label.
func (r *Reader) see(kind schema.GroupVersionKind, own []string) {
	r.Seen.Note(r.key(), kind.Kind, own)
}

// Remember remembers claims that no cache finds for the owner: a live read looks for them by their names until they
// are gone.
func (r *Reader) Remember(unlabelled []corev1.PersistentVolumeClaim) {
	r.see(kindClaims, namesOf(unlabelled, r.Owns))
}

// gone forgets names that no object has.
func (r *Reader) gone(kind schema.GroupVersionKind, names ...string) {
	r.Seen.Gone(r.key(), kind.Kind, names...)
}

func namesOf[T any, P interface {
	*T
	client.Object
}](items []T, owns func(P) bool) []string {
	var names []string
	for i := range items {
		if object := P(&items[i]); owns(object) {
			names = append(names, object.GetName())
		}
	}
	return names
}

// knownNames are the names of the owner's objects that the cache has or had, and of claims without
// the label. An object that has just lost its label is in no cache, so the names that the cache had
// count, too. Some of these objects may be gone.
func (r *Reader) knownNames(ctx context.Context, list client.ObjectList, kind schema.GroupVersionKind) ([]string, error) {
	if r.Cache == nil {
		return nil, nil
	}
	var names, own []string
	err := r.cached(ctx, list)
	if err != nil {
		return nil, err
	}
	err = meta.EachListItem(list, func(o runtime.Object) error {
		object := o.(client.Object)
		if names = append(names, object.GetName()); r.owns(object) {
			own = append(own, object.GetName())
		}
		return nil
	})
	r.see(kind, own)
	names = append(names, r.Seen.Known(r.key(), kind.Kind)...)
	if err != nil || kind != kindClaims || r.Label != cachev1alpha1.LabelCluster {
		return names, err
	}
	unlabelled, err := r.Unlabelled.names(ctx, r.Object.GetNamespace(), byOwner, r.Object.GetName())
	return append(names, unlabelled...), err
}

// owns tells whether the claim or Job is the owner's.
func (r *Reader) owns(object client.Object) bool {
	switch o := object.(type) {
	case *batchv1.Job:
		return r.OwnsJob(o)
	case *corev1.PersistentVolumeClaim:
		return r.Owns(o)
	}
	return false
}

// LiveClaim reads the claim; nil if it is gone, or if another claim has its name.
func (r *Reader) LiveClaim(ctx context.Context, ref action.ClaimRef) (*corev1.PersistentVolumeClaim, error) {
	claim, err := Get[corev1.PersistentVolumeClaim](ctx, r.Live, client.ObjectKey{Namespace: r.Object.GetNamespace(), Name: ref.Name})
	if err != nil || claim == nil || claim.UID != ref.UID {
		return nil, err
	}
	return claim, nil
}

// LiveJobs reads the owner's Jobs live, with the receipts in their own pods: the Jobs with its label
// and, by their names, those that the cache has and those that the pods name, because a Job that
// lost its label still runs. LiveJobs reads the pods first, because a Job that a sidecar keeps
// running has ended if its drainer has.
func (r *Reader) LiveJobs(ctx context.Context) (*Jobs, error) {
	var pods corev1.PodList
	if err := r.Live.List(ctx, &pods, append([]client.ListOption{client.InNamespace(r.Object.GetNamespace())}, r.Pods...)...); err != nil {
		return nil, fmt.Errorf("list the pods of %s: %w", r.is(), err)
	}
	j := &Jobs{Pods: pods.Items, foreign: map[types.UID]bool{}, seen: map[types.UID]bool{}}
	list, there := &batchv1.JobList{}, map[string]bool{}
	err := eachPage(ctx, r.Live, list, func() {
		for i := range list.Items {
			there[list.Items[i].Name] = true
			j.add(r.Owner, &list.Items[i])
		}
	}, r.find()...)
	if err != nil {
		return nil, fmt.Errorf("list the Jobs of %s: %w", r.is(), err)
	}
	names, err := r.knownNames(ctx, &batchv1.JobList{}, kindJobs)
	if err != nil {
		return nil, err
	}
	for i := range j.Pods {
		if job := metav1.GetControllerOfNoCopy(&j.Pods[i]); identity.DrainerPod(&j.Pods[i]) && !j.seen[job.UID] {
			names = append(names, job.Name)
		}
	}
	return j, r.readByName(ctx, j, slices.DeleteFunc(names, func(name string) bool { return there[name] }))
}

// readByName reads the Jobs with these names.
func (r *Reader) readByName(ctx context.Context, j *Jobs, names []string) error {
	return readNamed(ctx, r, kindJobs, &batchv1.JobList{}, slices.Compact(slices.Sorted(slices.Values(names))), func(job *batchv1.Job) { j.add(r.Owner, job) })
}

// add adds a Job, unless it was read before.
func (j *Jobs) add(o *Owner, job *batchv1.Job) {
	if j.seen[job.UID] {
		return
	}
	j.seen[job.UID] = true
	switch {
	case !o.OwnsJob(job):
		j.foreign[job.UID] = true
		return
	case onlyKept(job, j.Pods):
		return
	}
	j.Jobs = append(j.Jobs, *job.DeepCopy())
	if job.Labels[o.Label] != o.Object.GetName() {
		j.Unlabelled = append(j.Unlabelled, job.DeepCopy())
	}
}

// Users returns the users of the claim's volume: the pod with the member's name, even without its labels, and
// the number of these pods. A pod that has ended uses no volume.
func (r *Reader) Users(ctx context.Context, pods []corev1.Pod, claim action.ClaimRef) (member bool, others int, err error) {
	pod, err := Get[corev1.Pod](ctx, r.Live, client.ObjectKey{Namespace: r.Object.GetNamespace(), Name: r.PodName(claim.Ordinal)})
	if err != nil {
		return false, 0, err
	}
	for i := range pods {
		if uses(&pods[i], claim.Name) {
			others++
		}
	}
	return pod != nil && uses(pod, claim.Name), others, nil
}

func uses(pod *corev1.Pod, claim string) bool {
	return !PodEnded(pod) && slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim
	})
}

// NamespaceTerminates tells whether the namespace is being deleted or gone.
func NamespaceTerminates(ctx context.Context, live client.Reader, name string) (bool, error) {
	var namespace corev1.Namespace
	switch err := live.Get(ctx, client.ObjectKey{Name: name}, &namespace); {
	case apierrors.IsNotFound(err):
		return true, nil
	case apierrors.IsForbidden(err):
		return false, nil // an operator of one namespace has no right to read it
	case err != nil:
		return false, fmt.Errorf("get namespace %s: %w", name, err)
	}
	return namespace.DeletionTimestamp != nil, nil
}
