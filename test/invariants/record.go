package invariants

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// Recorder records every change of the objects that the invariants need, from the API server's watches. All
// kinds are in one etcd, whose revisions order their changes. So every state is replayed, even if watches are
// slow.
type Recorder struct {
	client client.WithWatch
	cancel context.CancelFunc
	ended  sync.WaitGroup

	mu      sync.Mutex
	base    uint64 // the revision at which the recording began
	changes map[string][]change
	// volumes has the namespace of each volume that was bound.
	volumes map[string]string
	// news has a channel for each namespace in which a test waits for the next change.
	news map[string]chan struct{}
	err  error
}

// change is one of an object. gone is set if it is the object's deletion.
type change struct {
	revision uint64
	key      string
	object   client.Object
	gone     bool
}

func recorded() []client.ObjectList {
	return []client.ObjectList{
		&corev1.NamespaceList{}, &cachev1alpha1.MemcachedList{}, &cachev1alpha1.StatefulSetDrainList{}, &appsv1.StatefulSetList{}, &corev1.PodList{},
		&corev1.PersistentVolumeClaimList{}, &batchv1.JobList{}, &corev1.PersistentVolumeList{}, &corev1.ConfigMapList{},
	}
}

// Record begins to record, in all namespaces, until Stop.
func Record(ctx context.Context, c client.WithWatch) (*Recorder, error) {
	ctx, cancel := context.WithCancel(ctx)
	r := &Recorder{client: c, cancel: cancel, changes: map[string][]change{}, volumes: map[string]string{}, news: map[string]chan struct{}{}}
	for _, list := range recorded() {
		if err := c.List(ctx, list); err != nil {
			cancel()
			return nil, fmt.Errorf("list %T: %w", list, err)
		}
		revision, err := strconv.ParseUint(list.GetResourceVersion(), 10, 64)
		if err != nil {
			cancel()
			return nil, fmt.Errorf("the version of %T is no revision: %w", list, err)
		}
		r.base = max(r.base, revision)
		objects, err := meta.ExtractList(list)
		if err != nil {
			cancel()
			return nil, err
		}
		for _, object := range objects {
			r.note(object.(client.Object), false)
		}
		r.ended.Add(1)
		go r.follow(ctx, list, revision)
	}
	return r, nil
}

// Stop ends the recording, and keeps the recorded changes.
func (r *Recorder) Stop() {
	r.cancel()
	r.ended.Wait()
}

// follow notes the changes of one kind after a revision.
func (r *Recorder) follow(ctx context.Context, list client.ObjectList, revision uint64) {
	defer r.ended.Done()
	for ctx.Err() == nil {
		last, err := r.watch(ctx, list, revision)
		revision = last
		if err != nil && ctx.Err() == nil {
			if apierrors.IsGone(err) || apierrors.IsResourceExpired(err) {
				r.fail(fmt.Errorf("changes of %T were missed: %w", list, err))
				return
			}
			time.Sleep(100 * time.Millisecond) // the API server is away
		}
	}
}

func (r *Recorder) watch(ctx context.Context, list client.ObjectList, revision uint64) (uint64, error) {
	watcher, err := r.client.Watch(ctx, list, &client.ListOptions{
		Raw: &metav1.ListOptions{ResourceVersion: strconv.FormatUint(revision, 10)},
	})
	if err != nil {
		return revision, err
	}
	defer watcher.Stop()
	for event := range watcher.ResultChan() {
		if event.Type == watch.Error {
			return revision, apierrors.FromObject(event.Object)
		}
		object, ok := event.Object.(client.Object)
		if !ok || event.Type == watch.Bookmark {
			continue
		}
		revision = max(revision, r.note(object, event.Type == watch.Deleted))
	}
	return revision, nil
}

func (r *Recorder) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = errors.Join(r.err, err)
}

// note records a change, and returns its revision.
func (r *Recorder) note(object client.Object, gone bool) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	revision, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	if err != nil {
		r.err = errors.Join(r.err, fmt.Errorf("%T %s: %w", object, object.GetName(), err))
	}
	namespace := object.GetNamespace()
	switch o := object.(type) {
	case *corev1.Namespace:
		namespace = o.Name
	case *corev1.PersistentVolume:
		if o.Spec.ClaimRef != nil {
			r.volumes[o.Name] = o.Spec.ClaimRef.Namespace
		}
		namespace = r.volumes[o.Name]
	}
	object.SetManagedFields(nil)
	r.changes[namespace] = append(r.changes[namespace], change{
		revision: revision, key: keyOf(object, object.GetName()), object: object, gone: gone,
	})
	if news, awaited := r.news[namespace]; awaited {
		close(news)
		delete(r.news, namespace)
	}
	return revision
}

// News is closed when the next change of the namespace is recorded.
func (r *Recorder) News(namespace string) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.news[namespace] == nil {
		r.news[namespace] = make(chan struct{})
	}
	return r.news[namespace]
}

// Step is one change of a namespace, and the states that it is between.
type Step struct {
	Revision      uint64
	What          string
	Before, After *State
}

// Steps returns the changes so far of the cluster and its namespace, in order. The first one has all objects
// that existed when the recording began.
func (r *Recorder) Steps(namespace, cluster string) ([]Step, error) {
	r.mu.Lock()
	changes, base, err := slices.Clone(r.changes[namespace]), r.base, r.err
	r.mu.Unlock()
	slices.SortStableFunc(changes, func(a, b change) int { return cmp.Compare(a.revision, b.revision) })
	objects := map[string]client.Object{}
	before := &State{}
	var steps []Step
	for i, c := range changes {
		verb := "is written"
		if objects[c.key] = c.object; c.gone {
			delete(objects, c.key)
			verb = "is gone"
		}
		if c.revision <= base && i+1 < len(changes) {
			continue
		}
		after := Of(cluster, slices.Collect(values(objects)))
		after.Remember(before)
		if before.Versions == nil {
			before = after
		}
		steps = append(steps, Step{c.revision, c.key + " " + verb, before, after})
		before = after
	}
	return steps, err
}

// values iterates over a map's values, in the order of its keys.
func values(objects map[string]client.Object) func(func(client.Object) bool) {
	keys := make([]string, 0, len(objects))
	for key := range objects {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return func(yield func(client.Object) bool) {
		for _, key := range keys {
			if !yield(objects[key]) {
				return
			}
		}
	}
}

// Check replays the cluster's history, checks every invariant for every step, and returns the violations and
// the number of steps. Call CaughtUp before Check.
func (r *Recorder) Check(namespace, cluster string) (broken []string, steps int, err error) {
	history, err := r.Steps(namespace, cluster)
	for _, step := range history {
		for _, violation := range Check(step.Before, step.After) {
			broken = append(broken, fmt.Sprintf("%s (when %s, revision %d)", violation, step.What, step.Revision))
		}
	}
	return broken, len(history), err
}

// Objects returns each object of a namespace as it was after each of its changes.
func (r *Recorder) Objects(namespace string) (all []client.Object) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.changes[namespace] {
		all = append(all, c.object)
	}
	return all
}

// Forget removes the record of a namespace.
func (r *Recorder) Forget(namespace string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.changes, namespace)
}

// Last returns the state after the last change, with the invariants' memory.
func (r *Recorder) Last(namespace, cluster string) (*State, error) {
	steps, err := r.Steps(namespace, cluster)
	if err != nil || len(steps) == 0 {
		return nil, errors.Join(err, fmt.Errorf("namespace %s has no record", namespace))
	}
	return steps[len(steps)-1].After, nil
}

// Now returns the state after the last change, without the invariants' memory.
func (r *Recorder) Now(namespace, cluster string) *State {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := map[string]change{}
	for _, c := range r.changes[namespace] {
		if c.revision >= last[c.key].revision {
			last[c.key] = c
		}
	}
	var objects []client.Object
	for _, c := range last {
		if !c.gone {
			objects = append(objects, c.object)
		}
	}
	return Of(cluster, objects)
}

// Latest returns the last recorded state of an object; nil if its end was recorded last, or nothing. kind is
// an object of its type.
func (r *Recorder) Latest(namespace string, kind client.Object, name string) client.Object {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last := r.lastChange(namespace, keyOf(kind, name)); !last.gone {
		return last.object
	}
	return nil
}

// keyOf an object of that type.
func keyOf(kind client.Object, name string) string { return fmt.Sprintf("%T %s", kind, name) }

// CaughtUp waits until the record has all changes of namespaced objects that the API
// server had when it was called.
func (r *Recorder) CaughtUp(ctx context.Context, namespace string) error {
	for _, list := range recorded() {
		switch list.(type) {
		case *corev1.NamespaceList, *corev1.PersistentVolumeList:
			continue
		}
		if err := r.client.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return fmt.Errorf("list %T: %w", list, err)
		}
		for err := r.lacks(namespace, list); err != nil; err = r.lacks(namespace, list) {
			select {
			case <-ctx.Done():
				return errors.Join(ctx.Err(), err)
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	return nil
}

// lacks returns an error if the list has a change that the record doesn't have yet.
func (r *Recorder) lacks(namespace string, list client.ObjectList) error {
	objects, err := meta.ExtractList(list)
	if err != nil {
		return err
	}
	there := map[string]bool{}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range objects {
		object := o.(client.Object)
		key := keyOf(object, object.GetName())
		there[key] = true
		revision, _ := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
		if last := r.lastChange(namespace, key); last.revision < revision {
			return fmt.Errorf("%s: revision %d is not recorded", key, revision)
		}
	}
	revision, _ := strconv.ParseUint(list.GetResourceVersion(), 10, 64)
	kind := strings.TrimSuffix(fmt.Sprintf("%T", list), "List") + " "
	for _, c := range r.changes[namespace] {
		if last := r.lastChange(namespace, c.key); strings.HasPrefix(c.key, kind) && !there[c.key] && !last.gone && last.revision <= revision {
			return fmt.Errorf("%s: its deletion is not recorded", c.key)
		}
	}
	return nil
}

// lastChange returns the last known change of an object; r.mu is held.
func (r *Recorder) lastChange(namespace, key string) change {
	var last change
	for _, c := range r.changes[namespace] {
		if c.key == key && c.revision >= last.revision {
			last = c
		}
	}
	return last
}
