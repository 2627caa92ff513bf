package model

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"example.com/memcached-operator/controllers/internal/trim"
)

// failure is how a write fails.
type failure int8

const (
	denied  failure = iota + 1 // as it would be the next time
	broken                     // for a moment
	unknown                    // it was done, and the answer was lost
	dead                       // the operator dies before it
	failures
)

func (f failure) String() string {
	return [...]string{"", "is denied", "fails", "is done, and its answer is lost", "is not done: the operator dies"}[f]
}

// fault is what happens at one write of a reconcile: the write fails, or another event happens before it, or after it.
type fault struct {
	at      int
	failure failure
	event   func(*state)
	after   bool
}

// server is the API server as one reconcile uses it.
type server struct {
	live *state
	// before is the state in which the reconcile began; no UID that it names is used again.
	before *state
	// volumes: the operator may read and change volumes.
	volumes bool
	fault   fault
	writes  int
	dead    bool
	// unlocked are writes that would have replaced another client's.
	unlocked []string
	// wrote is called after each write, and after each other event, with the state before it. raced: it is another
	// event, or another event came after the last check of the write.
	wrote func(before *state, raced bool)
}

// view reads a state. A view is the cache, and the API server's side that reads.
type view struct {
	state   *state
	server  *server
	volumes bool
}

func groupResource(o runtime.Object) schema.GroupResource {
	return schema.GroupResource{Resource: strings.ToLower(reflect.TypeOf(o).Elem().Name()) + "s"}
}

func (v view) at() *state {
	if v.server != nil {
		return v.server.live
	}
	return v.state
}

// Get implements client.Reader.
func (v view) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	into.SetName(key.Name)
	if _, is := into.(*corev1.PersistentVolume); is && !v.volumes {
		return apierrors.NewForbidden(groupResource(into), key.Name, errors.New("a Role can't grant it"))
	}
	found, is := v.at().objects[keyOf(into)]
	if !is {
		return apierrors.NewNotFound(groupResource(into), key.Name)
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(found.DeepCopyObject()).Elem())
	return nil
}

// List implements client.Reader.
func (v view) List(_ context.Context, into client.ObjectList, options ...client.ListOption) error {
	var all client.ListOptions
	all.ApplyOptions(options)
	kind := strings.TrimSuffix(reflect.TypeOf(into).Elem().Name(), "List")
	short := map[string]string{"PersistentVolumeClaim": "claim", "Pod": "pod", "Job": "job", "StatefulSetDrain": "drain", "Event": "event"}[kind]
	if short == "" {
		panic("the model lists no " + kind)
	}
	var items []runtime.Object
	for _, o := range of[client.Object](v.at(), short) {
		if all.LabelSelector == nil || all.LabelSelector.Matches(labels.Set(o.GetLabels())) {
			items = append(items, o.DeepCopyObject())
		}
	}
	into.SetContinue("")
	return meta.SetList(into, items)
}

// writer is the client of the operator: it reads the cache.
type writer struct {
	client.Client // nil: a call of another method panics
	view
	server *server
}

func (w writer) Get(ctx context.Context, key client.ObjectKey, into client.Object, o ...client.GetOption) error {
	return w.view.Get(ctx, key, into, o...)
}

func (w writer) List(ctx context.Context, into client.ObjectList, o ...client.ListOption) error {
	return w.view.List(ctx, into, o...)
}

var errDead = errors.New("the operator is dead")

// write does one write.
func (s *server) write(o client.Object, do func() error) error {
	if s.dead {
		return errDead
	}
	s.writes++
	mine := s.fault.at == s.writes
	switch {
	case mine && s.fault.failure == dead:
		s.dead = true
		return errDead
	case mine && s.fault.failure == denied:
		return apierrors.NewForbidden(groupResource(o), o.GetName(), errors.New("an admission policy denies it"))
	case mine && s.fault.failure == broken:
		return apierrors.NewInternalError(errors.New("etcd has no leader"))
	case mine && s.fault.event != nil && !s.fault.after:
		s.race()
	}
	was := s.live.clone()
	err := do()
	if err != nil {
		return err
	}
	s.wrote(was, mine && s.fault.event != nil && !s.fault.after)
	switch {
	case mine && s.fault.failure == unknown:
		return apierrors.NewTimeoutError("the answer was lost", 1)
	case mine && s.fault.event != nil && s.fault.after:
		s.race()
	}
	return nil
}

// race lets another event happen in the middle of the reconcile.
func (s *server) race() {
	was := s.live.clone()
	s.fault.event(s.live)
	s.wrote(was, true)
}

func (w writer) Create(_ context.Context, o client.Object, options ...client.CreateOption) error {
	var all client.CreateOptions
	all.ApplyOptions(options)
	made := o
	if raw, is := o.(*unstructured.Unstructured); is {
		job := &batchv1.Job{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw.Object, job); err != nil {
			return err
		}
		made = job
	}
	made = made.DeepCopyObject().(client.Object)
	return w.server.write(made, func() error {
		if _, is := w.server.live.objects[keyOf(made)]; is {
			return apierrors.NewAlreadyExists(groupResource(made), made.GetName())
		}
		if w.server.live.ending() {
			return apierrors.NewForbidden(groupResource(made), made.GetName(), errors.New("the namespace is being terminated"))
		}
		made.SetCreationTimestamp(longAgo)
		switch made := made.(type) {
		case *corev1.PersistentVolumeClaim:
			made.UID, made.Status.Phase = nextUID("c", w.server.before, w.server.live), corev1.ClaimPending
			made.Finalizers = append(made.Finalizers, trim.PVCProtection)
		case *batchv1.Job:
			made.UID = nextUID("j", w.server.before, w.server.live)
		}
		w.server.live.put(made)
		return nil
	})
}

func (w writer) Delete(_ context.Context, o client.Object, options ...client.DeleteOption) error {
	var all client.DeleteOptions
	all.ApplyOptions(options)
	return w.server.write(o, func() error {
		live, is := w.server.live.objects[keyOf(o)]
		if !is {
			return apierrors.NewNotFound(groupResource(o), o.GetName())
		}
		p := all.Preconditions
		if p == nil || p.UID == nil {
			w.server.unlocked = append(w.server.unlocked, "delete "+keyOf(o))
		} else if *p.UID != live.GetUID() || p.ResourceVersion != nil && *p.ResourceVersion != live.GetResourceVersion() {
			return apierrors.NewConflict(groupResource(o), o.GetName(), errors.New("it has changed"))
		}
		w.server.live.remove(live)
		return nil
	})
}

func (w writer) Patch(_ context.Context, o client.Object, patch client.Patch, _ ...client.PatchOption) error {
	data, err := patch.Data(o)
	if err != nil {
		return err
	}
	if _, is := o.(*corev1.PersistentVolume); is && !w.volumes {
		return apierrors.NewForbidden(groupResource(o), o.GetName(), errors.New("a Role can't grant it"))
	}
	return w.server.write(o, func() error {
		live, found := w.server.live.objects[keyOf(o)]
		if !found {
			return apierrors.NewNotFound(groupResource(o), o.GetName())
		}
		var says struct {
			Metadata struct{ ResourceVersion string }
		}
		if err := json.Unmarshal(data, &says); err != nil {
			return err
		}
		switch version := says.Metadata.ResourceVersion; {
		case version == "":
			w.server.unlocked = append(w.server.unlocked, fmt.Sprintf("patch %s: %s", keyOf(o), data))
		case version != live.GetResourceVersion():
			return apierrors.NewConflict(groupResource(o), o.GetName(), errors.New("it has changed"))
		}
		is, err := runtime.DefaultUnstructuredConverter.ToUnstructured(live)
		if err != nil {
			return err
		}
		var change map[string]any
		if err := json.Unmarshal(data, &change); err != nil {
			return err
		}
		after := reflect.New(reflect.TypeOf(live).Elem()).Interface().(client.Object)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(merge(is, change), after); err != nil {
			return err
		}
		if live.GetDeletionTimestamp() != nil && slices.ContainsFunc(after.GetFinalizers(), func(f string) bool { return !slices.Contains(live.GetFinalizers(), f) }) {
			return apierrors.NewInvalid(schema.GroupKind{}, o.GetName(), nil)
		}
		if after.GetUID() != live.GetUID() {
			return apierrors.NewConflict(groupResource(o), o.GetName(), errors.New("it is another object"))
		}
		if key := keyOf(after); strings.HasPrefix(key, "set/") {
			w.server.live.awake = true
		}
		w.server.live.put(after)
		return nil
	})
}

// merge applies a JSON merge patch (RFC 7386).
func merge(into, patch map[string]any) map[string]any {
	for key, value := range patch {
		change, both := value.(map[string]any)
		is, object := into[key].(map[string]any)
		switch {
		case value == nil:
			delete(into, key)
		case both && object:
			into[key] = merge(is, change)
		case both:
			into[key] = merge(map[string]any{}, change)
		default:
			into[key] = value
		}
	}
	return into
}
