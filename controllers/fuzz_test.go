package controllers

import (
	"encoding/json"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/identity"
	"example.com/memcached-operator/controllers/internal/observe"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/controllers/internal/status"
	"example.com/memcached-operator/controllers/internal/trim"
)

// No object, from any client, makes the operator panic or use memory beyond a bound (invariant 13).
// Each kind goes through the transforms of production, and is read as a reconcile reads it.

// maxAllocated is how much memory reading one object may allocate, in bytes.
const maxAllocated = 1 << 20

// reads fails if read allocates more than maxAllocated when it runs a second time.
func reads(t *testing.T, read func()) {
	t.Helper()
	read()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	read()
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > maxAllocated {
		t.Errorf("it took %d bytes", n)
	}
}

// decode makes an object from JSON, as the API server would send it; false if it is longer than
// etcd allows.
func decode[T any](text []byte) (*T, bool) {
	object := new(T)
	return object, len(text) < 64<<10 && json.Unmarshal(text, object) == nil
}

// asRead is the object as a reconcile reads it: from the cache, or live if the cache has
// only its metadata.
func asRead[T client.Object](t *testing.T, object T) T {
	t.Helper()
	if c := cached(t, object); trim.Whole(c) {
		return c
	}
	return object
}

func testCluster() *cachev1alpha1.Memcached {
	return apitest.MakeMemcached("cache").Storage("128Mi").Defaulted().Obj()
}

func seed(f *testing.F, objects ...any) {
	f.Helper()
	for _, o := range objects {
		text, err := json.Marshal(o)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
}

func FuzzClaim(f *testing.F) {
	for _, name := range []string{"data-cache-0", "data-cache-2147483646", "data-cache-511-aside-01234567", "data-cache--1"} {
		seed(f, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid", Annotations: map[string]string{
			cachev1alpha1.AnnotationMoved: "9223372036854775807", cachev1alpha1.AnnotationLeaving: "9999-12-31T23:59:59Z",
			cachev1alpha1.AnnotationReceipt:  `{"version":1,"source":"uid","complete":true,"found":-1,"added":-1}`,
			cachev1alpha1.AnnotationAttempts: "2147483647/uid", cachev1alpha1.AnnotationDrain: "retry",
		}}})
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		claim, ok := decode[corev1.PersistentVolumeClaim](text)
		if !ok {
			return
		}
		o := &outcome{State: &observe.State{Cluster: testCluster(), Claims: []corev1.PersistentVolumeClaim{*claim}, Now: time.Unix(1e9, 0)}}
		reads(t, func() {
			clusterOf(t.Context(), claim)
			identity.OwnClaim("cache", claim)
			if c, ours := observe.PlanClaim("cache", claim); ours && (c.Ordinal < 0 || c.Ordinal >= cachev1alpha1.MaxSize || c.Moved < 0) {
				t.Errorf("%+v", c)
			}
			if c, ours := observe.PlanClaim("cache", claim); ours && c.Receipt != nil && plan.ReceiptNumbers(c.Receipt).Added < 0 && c.Receipt.AddsUp(string(c.UID)) == nil {
				t.Errorf("a receipt of %d items adds up", plan.ReceiptNumbers(c.Receipt).Added)
			}
			if r := o.Input().Record; r.Ring.Size > cachev1alpha1.MaxSize || r.Serial < 0 {
				t.Errorf("%+v", r)
			}
			read.MarkedAt(claim)
		})
		kept, _ := observe.PlanClaim("cache", cached(t, claim))
		if whole, _ := observe.PlanClaim("cache", claim); len(whole.Volume) < 254 {
			same := cmp.Comparer(func(a, b error) bool { return fmt.Sprint(a) == fmt.Sprint(b) })
			if diff := cmp.Diff(whole, kept, same); diff != "" {
				t.Errorf("-live +cached:\n%s", diff)
			}
		}
	})
}

func FuzzJob(f *testing.F) {
	cluster := testCluster()
	for _, annotations := range []map[string]string{
		nil, {cachev1alpha1.AnnotationClaimUID: "uid"},
		{cachev1alpha1.AnnotationClaimUID: "uid", cachev1alpha1.AnnotationSurvivors: "2147483647", cachev1alpha1.AnnotationTarget: "1-x"},
		{cachev1alpha1.AnnotationClaimUID: "uid", cachev1alpha1.AnnotationTarget: "1-x", cachev1alpha1.AnnotationBegin: ""},
	} {
		for _, component := range []string{cachev1alpha1.ComponentDrainer, cachev1alpha1.ComponentMove, "x"} {
			seed(f, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
				Name: "data-cache-2-drain-01234567", UID: "job", Annotations: annotations, Labels: map[string]string{cachev1alpha1.LabelComponent: component},
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(cluster, cachev1alpha1.GroupVersion.WithKind("Memcached"))},
			}, Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: "True", Message: "gone"}}}})
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		job, ok := decode[batchv1.Job](text)
		if !ok {
			return
		}
		if whole, kept := identity.DutyOf(job), identity.DutyOf(cached(t, job)); whole != kept {
			t.Errorf("live %+v, cached %+v", whole, kept)
		}
		job = cached(t, job)
		reads(t, func() {
			clusterOf(t.Context(), job)
			if j := observe.PlanJob(job, nil); identity.OwnJob(cluster, job) && (j.ClaimUID == "" || j.Target == "" && (j.Survivors.Count < 1 || j.Survivors.Count > cachev1alpha1.MaxSize)) {
				t.Errorf("%+v", j)
			}
			o := &observe.State{Cluster: cluster, Jobs: []batchv1.Job{*job}}
			o.DrainerWaits(time.Unix(1e9, 0))
			o.Plan()
		})
	})
}

func FuzzPod(f *testing.F) {
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: `{"version":1,"reason":"x"}`}}
	for _, name := range []string{"cache-0", "cache-2147483647", "cache-2-drain-x"} {
		seed(f, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, UID: "pod", Annotations: map[string]string{cachev1alpha1.AnnotationClaimUID: "uid", cachev1alpha1.AnnotationTarget: "1-x"},
				Labels:          map[string]string{cachev1alpha1.LabelComponent: cachev1alpha1.ComponentMove, cachev1alpha1.LabelInstance: "cache"},
				OwnerReferences: []metav1.OwnerReference{{Kind: "Job", Name: "job", UID: "job", Controller: ptr.To(true)}},
			},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "memcached", Command: []string{"memcached", "-m", "99999999999999999999"}}}},
			Status: corev1.PodStatus{
				Phase:                 corev1.PodFailed,
				ContainerStatuses:     []corev1.ContainerStatus{{Name: "drainer", State: ended}, {Name: "memcached", LastTerminationState: ended}},
				InitContainerStatuses: []corev1.ContainerStatus{{State: ended}},
			},
		})
	}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "job", UID: "job"}}
	f.Fuzz(func(t *testing.T, text []byte) {
		pod, ok := decode[corev1.Pod](text)
		if !ok {
			return
		}
		pod = cached(t, pod)
		o := &outcome{State: &observe.State{Cluster: testCluster(), Now: time.Unix(1e9, 0), Objects: observe.Objects{DrainerPods: []corev1.Pod{*pod}}, Jobs: []batchv1.Job{*job}}}
		if identity.MemberPod(o.Cluster, o.StatefulSet, pod) {
			o.Pods = []corev1.Pod{*pod}
		}
		reads(t, func() {
			clusterOf(t.Context(), pod)
			identity.DrainerPod(pod)
			in := o.Input()
			for _, ordinal := range in.Pods {
				if ordinal < 0 || ordinal >= cachev1alpha1.MaxSize {
					t.Errorf("member %d", ordinal)
				}
			}
			o.DrainerWaits(o.Now)
			status.Compute(o.statusInput(plan.Plan{}, nil, o.Now))
		})
	})
}

func FuzzClientsList(f *testing.F) {
	for _, record := range []string{
		"", "{", `{"serial":9223372036854775807,"ring":{"client":"dalli","port":-1,"size":2147483647}}`,
		`{"serial":3,"ring":{"client":"dalli","port":11211,"size":512},"from":{"client":"dskit","port":1,"size":512}}`,
	} {
		seed(f, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "cache-servers", Annotations: map[string]string{cachev1alpha1.AnnotationRing: record}},
			Data:       map[string]string{"servers": "a\nb\n", "theirs": "x"},
		})
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		list, ok := decode[corev1.ConfigMap](text)
		if !ok {
			return
		}
		list = asRead(t, list)
		o := &outcome{State: &observe.State{Cluster: testCluster(), Objects: observe.Objects{ServerList: list}, Now: time.Unix(1e9, 0)}}
		reads(t, func() {
			in := o.Input()
			if n, r := in.ListSize, in.Record; n < 0 || n > cachev1alpha1.MaxSize || r.Ring.Size < 0 || r.Ring.Size > cachev1alpha1.MaxSize {
				t.Errorf("%d listed, %+v", n, r)
			}
			o.Plan()
		})
	})
}

// FuzzStatefulSet varies the status and the annotations of the StatefulSet.
func FuzzStatefulSet(f *testing.F) {
	seed(f, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "cache", Annotations: map[string]string{"cache.example.com/x": "y"}},
		Spec:       appsv1.StatefulSetSpec{Replicas: ptr.To[int32](2147483647)},
	})
	f.Fuzz(func(t *testing.T, text []byte) {
		members, ok := decode[appsv1.StatefulSet](text)
		if !ok {
			return
		}
		members = asRead(t, members)
		o := &outcome{State: &observe.State{Cluster: testCluster(), Objects: observe.Objects{StatefulSet: members}, Now: time.Unix(1e9, 0)}}
		reads(t, func() {
			identity.OwnsOrAdopts(o.Cluster, client.Object(members))
			in := o.Input()
			p := plan.Next(&in)
			if p.Replicas < 0 || p.Replicas > cachev1alpha1.MaxSize {
				t.Errorf("%d replicas", p.Replicas)
			}
			status.Compute(o.statusInput(p, nil, o.Now))
		})
	})
}
