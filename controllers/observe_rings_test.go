package controllers

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/controllers/internal/ring"
)

// ringed is a cluster of size members, with as many claims, whose list has that record.
func ringed(size int32, record ring.Record) *observed {
	o := &observed{cluster: testCluster(), now: time.Unix(1e9, 0), marked: map[types.UID]time.Time{}}
	o.cluster.Spec.Size = ptr.To(size)
	o.statefulSet = &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{Replicas: ptr.To(size)}}
	for i := range size {
		o.claims = append(o.claims, corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
			Name: build.ClaimName("cache", i), UID: types.UID(fmt.Sprint("uid-", i)), Annotations: map[string]string{},
			Finalizers: []string{cachev1alpha1.ClaimFinalizer},
		}})
	}
	o.serverList = &corev1.ConfigMap{}
	o.list(size, record.String())
	return o
}

// list writes the clients' list: as many servers, and a record.
func (o *observed) list(servers int32, record string) {
	o.serverList.Annotations = map[string]string{cachev1alpha1.AnnotationRing: record}
	o.serverList.Data = map[string]string{build.ServersKey: strings.Repeat("server\n", int(servers))}
}

func TestForgedListMakesNoMembers(t *testing.T) {
	honest := ring.Record{Serial: 3, Ring: build.RingOf(testCluster(), 3)}
	forged := ring.Record{Serial: 9, Ring: build.RingOf(testCluster(), 512), Due: 9, Holding: 3}
	for name, o := range map[string]*observed{
		"a ring":             ringed(3, forged),
		"servers":            ringed(3, honest),
		"servers, no record": ringed(3, honest),
	} {
		record := o.serverList.Annotations[cachev1alpha1.AnnotationRing]
		if o.list(512, record); name == "servers, no record" {
			o.serverList.Annotations = nil
		}
		o.record = o.recorded()
		p := o.plan()
		if p.Replicas != 3 || p.Listed != 3 || len(o.servers) != 3 || o.record.Ring.Size != 3 {
			t.Errorf("%s: %d members, %d may be listed, %d are, by %s", name, p.Replicas, p.Listed, len(o.servers), o.record)
		}
		if n := o.listed(); n != 3 {
			t.Errorf("%s: %d were listed", name, n)
		}
		if in := o.input(); name == "a ring" && plan.MaySetReplicas(&in, 512) == nil {
			t.Errorf("%s: 512 members may be", name)
		}
	}
}

func TestRecordIsBelievedWhereItCanBeTrue(t *testing.T) {
	record := ring.Record{Serial: 3, Ring: build.RingOf(testCluster(), 3), Due: 2, Holding: 2}
	for name, test := range map[string]struct {
		change func(o *observed)
		is     bool
	}{
		"at rest":                       {func(*observed) {}, true},
		"the claims are not seen yet":   {func(o *observed) { o.claims = nil }, true},
		"hibernating":                   {func(o *observed) { o.cluster.Spec.Size, o.statefulSet = ptr.To[int32](0), nil }, true},
		"made anew, and nothing is yet": {func(o *observed) { o.claims, o.statefulSet = nil, nil }, true},
		"a smaller one is wanted":       {func(o *observed) { o.cluster.Spec.Size = ptr.To[int32](1) }, true},
		"fewer are wanted, are there and have claims": {func(o *observed) {
			o.cluster.Spec.Size, o.statefulSet, o.claims = ptr.To[int32](2), nil, o.claims[:2]
		}, false},
		"a claim is of a later ring": {func(o *observed) { o.claims[0].Annotations[cachev1alpha1.AnnotationPlaced] = "4" }, false},
	} {
		o := ringed(3, record)
		test.change(o)
		if got := o.recorded(); (got == record) != test.is {
			t.Errorf("%s: %s", name, got)
		}
	}
}
