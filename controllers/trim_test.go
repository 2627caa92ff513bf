package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/identity"
	"example.com/memcached-operator/controllers/internal/observe"
	"example.com/memcached-operator/controllers/internal/ring"
	"example.com/memcached-operator/controllers/internal/rollout"
)

// cached is a copy of the object as the cache has it.
func cached[T client.Object](t *testing.T, object T) T {
	t.Helper()
	for kind, options := range CacheOptions().ByObject {
		if identity.KindOf(kind) != identity.KindOf(object) {
			continue
		}
		out, err := options.Transform(object.DeepCopyObject())
		if err != nil {
			t.Fatal(err)
		}
		return out.(T)
	}
	t.Fatalf("the cache has no %T", object)
	return object
}

func TestTrimmedPodWithManyLabelsStillBelongsToItsCluster(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "cache-0", Labels: build.Labels(testCluster(), cachev1alpha1.ComponentMember)}}
	for i := range 40 {
		pod.Labels[fmt.Sprintf("a%02d", i)] = "x"
	}
	got := cached(t, pod)
	if of := identity.ClusterName(got); len(of) != 1 || of[0] != "cache" {
		t.Errorf("it belongs to %v", of)
	}
	if component := got.Labels[cachev1alpha1.LabelComponent]; component != cachev1alpha1.ComponentMember || !identity.Selector(got).Matches(labels.Set(got.Labels)) {
		t.Errorf("it is no member any more: %v", got.Labels)
	}
}

// TestTrimmedAnnotationsReadAsTheWhole: a value that the cache has cut must mean the same
// as in a live read. A missing value is not the same as a damaged one.
func TestTrimmedAnnotationsReadAsTheWhole(t *testing.T) {
	const pad = 20 << 10
	values := []string{"", strings.Repeat("x", pad)}
	for _, value := range []string{
		"1", "2/uid", "1-x", "retry", "skip", "true", "2030-01-01T00:00:00Z", `{"version":1}`, `{"serial":3,"ring":{"client":"dalli","port":1,"size":2}}`,
		`{"generation":1,"spec":"a"}`,
	} {
		values = append(values, value, value+strings.Repeat(" ", pad), strings.Repeat(" ", pad)+value,
			strings.Repeat("0", pad)+value, strings.Replace(value, "00Z", "00."+strings.Repeat("0", pad)+"Z", 1))
	}
	for _, key := range []string{
		cachev1alpha1.AnnotationLeaving, cachev1alpha1.AnnotationNeverStarted, cachev1alpha1.AnnotationUnmoved, cachev1alpha1.AnnotationReceipt,
		cachev1alpha1.AnnotationDrain, cachev1alpha1.AnnotationMoved, cachev1alpha1.AnnotationMove, cachev1alpha1.AnnotationAttempts,
		cachev1alpha1.AnnotationAdopted, cachev1alpha1.AnnotationRing, cachev1alpha1.AnnotationClaimUID, cachev1alpha1.AnnotationSurvivors, cachev1alpha1.AnnotationTarget,
		cachev1alpha1.AnnotationBegin, cachev1alpha1.AnnotationTemplate,
	} {
		for _, value := range values {
			if diff := cmp.Diff(readAll(t, key, value, false), readAll(t, key, value, true)); diff != "" {
				t.Errorf("%s: %.40q of %d bytes: -whole +cut:\n%s", key, value, len(value), diff)
			}
		}
	}
}

// readAll returns the results of all readers for objects with this annotation.
func readAll(t *testing.T, key, value string, cut bool) []string {
	t.Helper()
	m := metav1.ObjectMeta{Name: "data-cache-1", UID: "uid", Annotations: map[string]string{
		cachev1alpha1.AnnotationClaimUID: "uid", cachev1alpha1.AnnotationSurvivors: "1", cachev1alpha1.AnnotationTarget: "1-x", key: value,
	}}
	claim, list, members := &corev1.PersistentVolumeClaim{ObjectMeta: m}, &corev1.ConfigMap{ObjectMeta: m}, &appsv1.StatefulSet{ObjectMeta: m}
	job := &batchv1.Job{ObjectMeta: m}
	if cut {
		claim, list, members, job = cached(t, claim), cached(t, list), cached(t, members), cached(t, job)
	}
	c, _ := observe.PlanClaim("cache", claim)
	receipt := c.Receipt
	c.Receipt = nil
	o := &outcome{State: &observe.State{Cluster: testCluster(), Claims: []corev1.PersistentVolumeClaim{*claim}}}
	read := []any{c, receipt, read.MarkedAt(claim), c.NeverStarted}
	o.ServerList = list
	read = append(read, o.Input().Record, rollout.Parse(members.Annotations[cachev1alpha1.AnnotationTemplate]))
	for _, component := range []string{cachev1alpha1.ComponentDrainer, cachev1alpha1.ComponentMove} {
		job.Labels = map[string]string{cachev1alpha1.LabelComponent: component}
		read = append(read, identity.DutyOf(job))
	}
	var all []string
	for _, r := range read {
		all = append(all, fmt.Sprintf("%+v", r))
	}
	return all
}

// typed is the object that an apply configuration makes.
func typed[T any](t *testing.T, applied any) *T {
	t.Helper()
	object := new(T)
	b, err := json.Marshal(applied)
	if err == nil {
		err = json.Unmarshal(b, object)
	}
	if err != nil {
		t.Fatal(err)
	}
	return object
}

// TestTrimmedObjectsKeepWhatTheOperatorApplies, and nothing of the content of one that no
// Memcached controls.
func TestTrimmedObjectsKeepWhatTheOperatorApplies(t *testing.T) {
	cluster := testCluster()
	cluster.UID, cluster.Spec.Size = "memcached", ptr.To[int32](cachev1alpha1.MaxSize)
	cluster.Name, cluster.Namespace = strings.Repeat("n", 52), strings.Repeat("s", 63)
	cluster.Spec.NetworkPolicy, cluster.Spec.Discovery = &cachev1alpha1.NetworkPolicySpec{}, &cachev1alpha1.DiscoverySpec{Port: 11212}
	var options Options
	servers := build.Servers(cluster, nil, cachev1alpha1.MaxSize)
	for _, object := range []client.Object{
		typed[corev1.Service](t, build.Service(cluster)),
		typed[corev1.Service](t, build.ListService(cluster)),
		typed[corev1.Service](t, build.Discovery(cluster)),
		typed[discoveryv1.EndpointSlice](t, build.ListSlice(cluster, build.ListPorts{Port: 11211}, everyEndpoint(cluster), discoveryv1.AddressTypeIPv6, 1, true)),
		typed[corev1.ConfigMap](t, build.ServersConfigMap(cluster, servers, ring.Record{})),
		typed[networkingv1.NetworkPolicy](t, build.NetworkPolicy(cluster, build.Options{}, nil)),
		typed[policyv1.PodDisruptionBudget](t, build.DisruptionBudget(cluster, false)),
		typed[appsv1.StatefulSet](t, build.StatefulSet(cluster, options, 3)),
		typed[appsv1.Deployment](t, build.Deployment(cluster, options)),
	} {
		ours := metav1.ManagedFieldsEntry{Manager: cachev1alpha1.ManagedBy, Operation: metav1.ManagedFieldsOperationApply}
		object.SetManagedFields([]metav1.ManagedFieldsEntry{ours})
		if diff := cmp.Diff(object, cached(t, object)); diff != "" {
			t.Errorf("%s: -applied +kept:\n%s", identity.KindOf(object), diff)
		}
		object.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "kubectl"}, {Manager: cachev1alpha1.ManagedBy, Subresource: "status"}, ours})
		if got := cached(t, object).GetManagedFields(); len(got) != 1 || got[0] != ours {
			t.Errorf("%s: managed fields %v", identity.KindOf(object), got)
		}
		owner := object.GetOwnerReferences()[0]
		for what, refs := range map[string][]metav1.OwnerReference{
			"none":                  nil,
			"a Deployment":          {{APIVersion: "apps/v1", Kind: "Deployment", Name: cluster.Name, UID: "1", Controller: ptr.To(true)}},
			"a Memcached of others": {{APIVersion: "people.io/v1", Kind: "Memcached", Name: cluster.Name, UID: "1", Controller: ptr.To(true)}},
			"another Memcached":     {{APIVersion: owner.APIVersion, Kind: owner.Kind, Name: "other", UID: owner.UID, Controller: ptr.To(true)}},
			"an owner only":         {{APIVersion: owner.APIVersion, Kind: owner.Kind, Name: owner.Name, UID: owner.UID}},
		} {
			object.SetOwnerReferences(refs)
			got := reflect.ValueOf(cached(t, object)).Elem()
			for _, part := range []string{"Spec", "Data", "Endpoints", "Ports", "ManagedFields"} {
				if field := got.FieldByName(part); field.IsValid() && !field.IsZero() {
					t.Errorf("%s controlled by %s: %s is kept", identity.KindOf(object), what, part)
				}
			}
		}
	}
}

// everyEndpoint returns the endpoints of the largest cluster, with long addresses.
func everyEndpoint(c *cachev1alpha1.Memcached) []build.Endpoint {
	endpoints := make([]build.Endpoint, cachev1alpha1.MaxSize)
	for i := range endpoints {
		endpoints[i] = build.Endpoint{Name: build.PodName(c.Name, int32(i)), Address: fmt.Sprintf("fd00:1111:2222:3333:4444:5555:6666:%x", 0x1000+i)}
	}
	return endpoints
}

// statefulSets is a reader of one StatefulSet.
type statefulSets struct {
	client.Client
	object *appsv1.StatefulSet
	reads  int
}

func (s *statefulSets) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	s.reads++
	if s.object == nil {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	s.object.DeepCopyInto(object.(*appsv1.StatefulSet))
	return nil
}

// TestTrimmedObjectIsReadLiveBeforeItIsAdopted, because the cache doesn't have its number of
// members.
func TestTrimmedObjectIsReadLiveBeforeItIsAdopted(t *testing.T) {
	cluster := testCluster()
	cluster.UID = "memcached"
	five := typed[appsv1.StatefulSet](t, build.StatefulSet(cluster, Options{}, 5))
	ofCluster := func(change func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
		s := five.DeepCopy()
		change(s)
		return s
	}
	unlabelled := func(s *appsv1.StatefulSet) {
		delete(s.Labels, cachev1alpha1.LabelCluster)
		s.OwnerReferences = nil
	}
	for name, test := range map[string]struct {
		object *appsv1.StatefulSet
		live   bool
		want   int32
	}{
		"its own":                                 {five, false, 5},
		"one that was left":                       {ofCluster(func(s *appsv1.StatefulSet) { s.OwnerReferences = nil }), true, 5},
		"one that was left, without its label":    {ofCluster(unlabelled), false, 0},
		"its own, under another Memcached's name": {ofCluster(func(s *appsv1.StatefulSet) { s.OwnerReferences[0].Name = "x" }), true, 5},
		"its own, with many sidecars": {ofCluster(func(s *appsv1.StatefulSet) {
			for i := range 1000 {
				sidecar := corev1.Container{Name: fmt.Sprint("sidecar-", i), Image: strings.Repeat("x", 100)}
				s.Spec.Template.Spec.Containers = append(s.Spec.Template.Spec.Containers, sidecar)
			}
		}), true, 5},
		"another Memcached's": {ofCluster(func(s *appsv1.StatefulSet) { s.OwnerReferences[0].UID = "x" }), false, 0},
		"a copy":              {ofCluster(func(s *appsv1.StatefulSet) { s.OwnerReferences, s.Labels[cachev1alpha1.LabelCluster] = nil, "x" }), false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			live := &statefulSets{object: test.object}
			r := &MemcachedReconciler{Client: &statefulSets{object: cached(t, test.object)}, Live: live}
			got, err := observe.Own[appsv1.StatefulSet](t.Context(), r.reader(), cluster, "cache")
			if err != nil {
				t.Fatal(err)
			}
			n := int32(0)
			if got != nil {
				n = *got.Spec.Replicas
			}
			if n != test.want || (live.reads > 0) != test.live {
				t.Errorf("%d members, %d live reads", n, live.reads)
			}
		})
	}
}
