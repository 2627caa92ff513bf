// Package model explores what the operator does about one member of a StatefulSet that leaves and returns: every order
// of the events of the operator, of Kubernetes' controllers and of people, with a bounded number of people's actions
// (deeds), faults and races.
//
// The operator is the real one: stsdrain/observe reads, package stsdrain decides and stsdrain/apply writes, with the
// live checks before steps that can't be undone. Package model has the API server, Kubernetes' controllers and kubelets
// instead. Before and after each write of a reconcile another event may happen, the write may fail, and the operator may
// die. The caches are as old as the reconcile.
//
//	state_test.go        what a state is         server_test.go    the API server
//	kubernetes_test.go   controllers, kubelets   people_test.go    deeds and faults
//	operator_test.go     one reconcile           check_test.go     what has to hold
//	explore_test.go      all orders of events    model_test.go     the explorations
package model

import (
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/stsdrain"
)

const (
	namespace = "shop"
	name      = "queue"
)

// now is the time of all events; longAgo is before it.
var (
	now     = time.Unix(1_000_000, 0)
	longAgo = metav1.NewTime(now.Add(-2 * time.Hour))
	justNow = metav1.NewTime(now)
)

// state is a state of the cluster. Its objects are shared with other states, so they are replaced and never changed.
type state struct {
	objects map[string]client.Object
	// volumes has the history of each volume, by its name.
	volumes map[string]volume
	// awake: the StatefulSet's controller has something to look at. The controller watches no claims.
	awake bool
	// woken and obstructed are what the operator remembers.
	woken      []int32
	obstructed map[types.UID]claims.Obstruction
	budget     budget
}

// budget is how many deeds, faults and races may still happen.
type budget struct{ deeds, faults, races int8 }

// volume is the past of a volume.
type volume struct {
	// full: a member has written to it, and nothing has drained it since.
	full bool
	// member is the UID of the pod that used it last. The volumes of one member are drained together.
	member types.UID
	// begun: a drainer was at work on it.
	begun bool
	// kept: its claim has had our finalizer. given: a person, a policy or the end of an owner has given its data up since.
	kept, given bool
	// restored: a backup has brought its claim back, and no member has used it since. asked: a person has said retry or skip since.
	restored, asked bool
}

func (s *state) clone() *state {
	c := *s
	c.objects, c.volumes, c.obstructed = maps.Clone(s.objects), maps.Clone(s.volumes), maps.Clone(s.obstructed)
	return &c
}

// keyOf is the key of an object in a state.
func keyOf(o client.Object) string {
	switch o.(type) {
	case *cachev1alpha1.StatefulSetDrain:
		return "drain/" + o.GetName()
	case *appsv1.StatefulSet:
		return "set/" + o.GetName()
	case *corev1.PersistentVolumeClaim:
		return "claim/" + o.GetName()
	case *corev1.PersistentVolume:
		return "volume/" + o.GetName()
	case *corev1.Pod:
		return "pod/" + o.GetName()
	case *batchv1.Job:
		return "job/" + o.GetName()
	case *corev1.Namespace:
		return "namespace/" + o.GetName()
	}
	return fmt.Sprintf("%T/%s", o, o.GetName())
}

// of returns the objects of one kind, by name.
func of[T client.Object](s *state, kind string) (all []T) {
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		if strings.HasPrefix(key, kind+"/") {
			all = append(all, s.objects[key].(T))
		}
	}
	return all
}

func (s *state) claims() []*corev1.PersistentVolumeClaim {
	return of[*corev1.PersistentVolumeClaim](s, "claim")
}
func (s *state) pods() []*corev1.Pod      { return of[*corev1.Pod](s, "pod") }
func (s *state) jobs() []*batchv1.Job     { return of[*batchv1.Job](s, "job") }
func (s *state) set() *appsv1.StatefulSet { return find[*appsv1.StatefulSet](s, "set", name) }
func (s *state) drain() *cachev1alpha1.StatefulSetDrain {
	return find[*cachev1alpha1.StatefulSetDrain](s, "drain", name)
}
func (s *state) claim(name string) *corev1.PersistentVolumeClaim {
	return find[*corev1.PersistentVolumeClaim](s, "claim", name)
}
func (s *state) volume(name string) *corev1.PersistentVolume {
	return find[*corev1.PersistentVolume](s, "volume", name)
}

// find returns the object, or nil.
func find[T client.Object](s *state, kind, name string) (found T) {
	if o, is := s.objects[kind+"/"+name]; is {
		found = o.(T)
	}
	return found
}

// ending tells whether the namespace is being deleted.
func (s *state) ending() bool {
	return find[*corev1.Namespace](s, "namespace", namespace).DeletionTimestamp != nil
}

func (s *state) claimWith(uid types.UID) *corev1.PersistentVolumeClaim {
	for _, c := range s.claims() {
		if c.UID == uid {
			return c
		}
	}
	return nil
}

// claimOf returns the claim that the volume is bound to or waits for, or nil.
func (s *state) claimOf(v *corev1.PersistentVolume) *corev1.PersistentVolumeClaim {
	if ref := v.Spec.ClaimRef; ref.UID != "" {
		return s.claimWith(ref.UID)
	}
	return s.claim(v.Spec.ClaimRef.Name)
}

var versions atomic.Int64

// put stores an object. A deleted object without a finalizer is gone at once.
func (s *state) put(o client.Object) {
	if o.GetDeletionTimestamp() != nil && len(o.GetFinalizers()) == 0 && keyOf(o) != "pod/"+o.GetName() {
		delete(s.objects, keyOf(o))
		return
	}
	o.SetResourceVersion(fmt.Sprint(versions.Add(1)))
	s.objects[keyOf(o)] = o
}

// change stores a changed copy.
func change[T client.Object](s *state, o T, do func(T)) {
	c := o.DeepCopyObject().(T)
	do(c)
	s.put(c)
}

// remove deletes an object as a client does: a finalizer keeps it.
func (s *state) remove(o client.Object) {
	if o.GetDeletionTimestamp() != nil {
		return
	}
	c := o.DeepCopyObject().(client.Object)
	c.SetDeletionTimestamp(&justNow)
	s.put(c)
}

func (s *state) drop(o client.Object) { delete(s.objects, keyOf(o)) }

// nextUID is the first UID of a kind that nothing in the states names.
func nextUID(kind string, among ...*state) types.UID {
	text := &strings.Builder{}
	for _, s := range among {
		text.WriteString(s.text())
	}
	for n := 1; ; n++ {
		if uid := fmt.Sprintf("%s%02d", kind, n); !strings.Contains(text.String(), uid) {
			return types.UID(uid)
		}
	}
}

// text has everything that distinguishes a state from others.
func (s *state) text() string {
	b := &strings.Builder{}
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		o := s.objects[key]
		fmt.Fprintf(b, "%s %s %v %v", key, o.GetUID(), o.GetDeletionTimestamp() != nil, o.GetFinalizers())
		for _, labels := range []map[string]string{o.GetLabels(), o.GetAnnotations()} {
			for _, k := range slices.Sorted(maps.Keys(labels)) {
				if k != cachev1alpha1.AnnotationWake {
					b.WriteString(" " + k[strings.LastIndexByte(k, '/')+1:] + "=" + labels[k])
				}
			}
		}
		for _, ref := range o.GetOwnerReferences() {
			b.WriteString(" by " + ref.Name + string(ref.UID))
		}
		switch o := o.(type) {
		case *cachev1alpha1.StatefulSetDrain:
			fmt.Fprint(b, stsdrain.TemplateHash(o), o.Spec.Policy)
		case *appsv1.StatefulSet:
			fmt.Fprint(b, *o.Spec.Replicas)
		case *corev1.PersistentVolumeClaim:
			fmt.Fprint(b, " ", o.Spec.VolumeName, o.Status.Phase, o.CreationTimestamp.Equal(&justNow))
		case *corev1.PersistentVolume:
			if ref := o.Spec.ClaimRef; ref != nil {
				fmt.Fprint(b, " ", ref.Name, ref.UID)
			}
		case *corev1.Pod:
			fmt.Fprint(b, " ", o.Status.Phase)
			for _, c := range o.Status.ContainerStatuses {
				if c.State.Terminated != nil {
					fmt.Fprint(b, c.State.Terminated.ExitCode, c.State.Terminated.Message)
				}
			}
		case *batchv1.Job:
			for _, c := range o.Status.Conditions {
				fmt.Fprint(b, c.Type, c.LastTransitionTime.Unix())
			}
		}
		b.WriteByte('\n')
	}
	for _, v := range slices.Sorted(maps.Keys(s.volumes)) {
		fmt.Fprintln(b, v, s.volumes[v])
	}
	fmt.Fprintln(b, s.awake, s.woken, s.budget)
	for _, uid := range slices.Sorted(maps.Keys(s.obstructed)) {
		fmt.Fprintln(b, uid, s.obstructed[uid].Taken)
	}
	return b.String()
}

var seed = maphash.MakeSeed()

func (s *state) hash() uint64 { return maphash.String(seed, s.text()) }
