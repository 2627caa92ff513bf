package trim

import (
	"encoding/json"
	"fmt"
	"reflect"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

const (
	// maxKept is how much of an object may stay, in bytes.
	maxKept = 16 << 10
	// filled is how many bytes a filler adds: so many that one object that keeps them is noticed
	// among many. etcd accepts three times as much.
	filled = 32 * maxKept
)

var large = strings.Repeat("x", filled)

// filler makes one place of an object large, with that text if it takes one.
type filler struct {
	where string
	fill  func(object reflect.Value, large string)
}

// fillers has one filler for each string, list and map of the type, except those that the
// API server bounds itself.
func fillers(of reflect.Type, where string, at func(reflect.Value) reflect.Value) []filler {
	add := func(how string, set func(v reflect.Value, large string)) filler {
		return filler{where + how, func(object reflect.Value, large string) { set(at(object), large) }}
	}
	switch of.Kind() {
	case reflect.String:
		return []filler{add("", func(v reflect.Value, large string) { v.SetString(large) })}
	case reflect.Pointer:
		return fillers(of.Elem(), where, func(object reflect.Value) reflect.Value {
			v := at(object)
			if v.IsNil() {
				v.Set(reflect.New(of.Elem()))
			}
			return v.Elem()
		})
	case reflect.Slice:
		return append(fillers(of.Elem(), where+"[0]", func(object reflect.Value) reflect.Value {
			v := at(object)
			if v.Len() == 0 {
				v.Set(reflect.MakeSlice(of, 1, 1))
			}
			return v.Index(0)
		}), add(", many", func(v reflect.Value, _ string) { many(v) }))
	case reflect.Map:
		return mapFillers(of, add)
	case reflect.Struct:
		var all []filler
		for i := range of.NumField() {
			if bounded(of, of.Field(i).Name) {
				continue
			}
			all = append(all, fillers(of.Field(i).Type, where+"."+of.Field(i).Name, func(object reflect.Value) reflect.Value { return at(object).Field(i) })...)
		}
		return all
	}
	return nil
}

func mapFillers(of reflect.Type, add func(string, func(reflect.Value, string)) filler) []filler {
	entry := func(v reflect.Value, key string) {
		if v.IsNil() {
			v.Set(reflect.MakeMap(of))
		}
		v.SetMapIndex(reflect.ValueOf(key).Convert(of.Key()), reflect.Zero(of.Elem()))
	}
	all := []filler{
		add(", a key", func(v reflect.Value, large string) { entry(v, large) }),
		add(", many", func(v reflect.Value, _ string) {
			for i := range filled / 256 {
				entry(v, fmt.Sprintf("cache.example.com/%0230d", i))
			}
		}),
	}
	if of.Elem().Kind() == reflect.String {
		all = append(all, add(", all values", func(v reflect.Value, large string) {
			for _, key := range v.MapKeys() {
				v.SetMapIndex(key, reflect.ValueOf(large).Convert(of.Elem()))
			}
		}))
	}
	return all
}

// many repeats the first element, if there is one.
func many(v reflect.Value) {
	first := reflect.Zero(v.Type().Elem())
	if v.Len() > 0 {
		first = v.Index(0)
	}
	n := filled / 256
	if first.Kind() == reflect.Uint8 {
		n = filled
	}
	list := reflect.MakeSlice(v.Type(), n, n)
	for i := range n {
		list.Index(i).Set(first)
	}
	v.Set(list)
}

// bounded are fields that the API server writes, or bounds to a name.
func bounded(of reflect.Type, field string) bool {
	switch of {
	case reflect.TypeFor[metav1.Time](), reflect.TypeFor[time.Time](), reflect.TypeFor[metav1.MicroTime](), reflect.TypeFor[resource.Quantity](), reflect.TypeFor[metav1.TypeMeta]():
		return true
	case reflect.TypeFor[metav1.ObjectMeta]():
		return slices.Contains([]string{"Name", "Namespace", "UID", "ResourceVersion"}, field)
	}
	return false
}

// full has a value in each field that is kept.
func full(controller metav1.OwnerReference) metav1.ObjectMeta {
	m := metav1.ObjectMeta{
		Name: "cache-0", Namespace: "shop", Labels: map[string]string{}, Annotations: map[string]string{},
		Finalizers: slices.Clone(knownFinalizers), OwnerReferences: []metav1.OwnerReference{controller, {Kind: "People"}},
	}
	for _, key := range knownLabels {
		m.Labels[key] = "cache"
	}
	for _, read := range []map[string]int{ofClaims, ofJobs, ofTargets, ofApplied} {
		for key := range read {
			m.Annotations[key] = "1"
		}
	}
	return m
}

// Little stays of a large object, in any of its fields: a client that may write an object that the operator
// watches must not be able to fill its memory.
func TestLittleStaysOfWhatIsLarge(t *testing.T) {
	theirs := full(metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "cache", UID: "1", Controller: ptr.To(true)})
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: strings.Repeat("r", 4096)}, Waiting: &corev1.ContainerStateWaiting{Message: "w"}}
	container := []corev1.ContainerStatus{{Name: "drainer", State: ended, LastTerminationState: ended}}
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	for _, test := range []struct {
		object    any
		transform cache.TransformFunc
	}{
		{corev1.Pod{
			ObjectMeta: theirs, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "memcached", Command: []string{"memcached", "-m", "64"}}}},
			Status: corev1.PodStatus{ContainerStatuses: container, InitContainerStatuses: container, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled}}},
		}, Pod},
		{corev1.PersistentVolumeClaim{
			ObjectMeta: theirs, Spec: corev1.PersistentVolumeClaimSpec{Resources: corev1.VolumeResourceRequirements{Requests: size}},
			Status: corev1.PersistentVolumeClaimStatus{Capacity: size},
		}, Claim},
		{batchv1.Job{ObjectMeta: theirs, Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: "True"}}}}, Job},
		{appsv1.StatefulSet{ObjectMeta: theirs}, Applied},
		{appsv1.StatefulSet{ObjectMeta: theirs, Spec: appsv1.StatefulSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "queue"}}, VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{}},
		}}, Target},
		{corev1.Pod{ObjectMeta: theirs, Spec: corev1.PodSpec{Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}}}}}, TargetPod},
		{appsv1.Deployment{ObjectMeta: theirs, Status: appsv1.DeploymentStatus{
			Conditions: []appsv1.DeploymentCondition{{Type: appsv1.DeploymentReplicaFailure, Status: "True"}},
		}}, Applied},
		{corev1.Service{ObjectMeta: theirs}, Applied},
		{corev1.ConfigMap{ObjectMeta: theirs, Data: map[string]string{"servers": "a\n"}}, Applied},
		{discoveryv1.EndpointSlice{ObjectMeta: theirs}, Applied},
		{networkingv1.NetworkPolicy{ObjectMeta: theirs}, Applied},
		{policyv1.PodDisruptionBudget{ObjectMeta: theirs}, Applied},
	} {
		kind := reflect.TypeOf(test.object)
		t.Run(kind.Name(), func(t *testing.T) {
			const together = filled/maxKept - 2 // a garbage collection takes long; among more objects, one that stays whole would not be noticed
			for some := range slices.Chunk(fillers(kind, "", func(v reflect.Value) reflect.Value { return v }), together) {
				littleStays(t, test.object, some, test.transform)
			}
		})
	}
}

// littleStays makes a copy of the object for each filler, and checks how much of it stays as JSON,
// and of all copies in memory.
func littleStays(t *testing.T, object any, fillers []filler, transform cache.TransformFunc) {
	t.Helper()
	original := reflect.New(reflect.TypeOf(object))
	original.Elem().Set(reflect.ValueOf(object))
	all := make([]any, len(fillers))
	text := strings.Clone(large) // one object that keeps it is noticed
	for i, f := range fillers {
		filled := original.MethodByName("DeepCopy").Call(nil)[0]
		f.fill(filled.Elem(), text)
		out, err := transform(filled.Interface())
		if err != nil {
			t.Fatal(err)
		}
		if b, err := json.Marshal(out); err != nil || len(b) > maxKept {
			t.Errorf("%s: %d bytes stay, want %d at most (%v)", f.where, len(b), maxKept, err)
		}
		all[i] = out
	}
	before := heap()
	clear(all)
	if memory := before - heap(); memory > int64(len(fillers)*maxKept) {
		t.Errorf("%s to %s: %d bytes of memory stay, want %d at most for each", fillers[0].where, fillers[len(fillers)-1].where, memory, maxKept)
	}
}

func heap() int64 {
	for range 2 { // a pool frees its objects at the second collection
		goruntime.GC()
	}
	var m goruntime.MemStats
	goruntime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestContentOfTheOperatorsObjectsIsBounded, because other clients may add fields to them.
func TestContentOfTheOperatorsObjectsIsBounded(t *testing.T) {
	ours := full(metav1.OwnerReference{APIVersion: "cache.example.com/v1alpha1", Kind: "Memcached", Name: "cache", UID: "1", Controller: ptr.To(true)})
	lists := ours
	dns := ours
	ours.Name, lists.Name, dns.Name = "cache", "cache-servers", "cache-list"
	sidecars := make([]corev1.Container, 1000)
	for i := range sidecars {
		sidecars[i] = corev1.Container{Name: fmt.Sprint("sidecar-", i), Image: strings.Repeat("i", 100)}
	}
	pods := corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: sidecars}}
	tooMany := []metav1.ManagedFieldsEntry{{Manager: "memcached-operator", Operation: "Apply", FieldsV1: metav1.NewFieldsV1(large)}}
	withFields := lists
	withFields.ManagedFields = tooMany
	data := map[string]string{"servers": large, "servers.json": large, "MEMCACHE_SERVERS": large, "theirs": large}
	for name, test := range map[string]struct {
		object interface {
			metav1.Object
			runtime.Object
		}
		whole bool
		most  int
	}{
		"StatefulSet":        {&appsv1.StatefulSet{ObjectMeta: ours, Spec: appsv1.StatefulSetSpec{Template: pods}}, false, maxKept},
		"Deployment":         {&appsv1.Deployment{ObjectMeta: ours, Spec: appsv1.DeploymentSpec{Template: pods}}, false, maxKept},
		"Service":            {&corev1.Service{ObjectMeta: ours, Spec: corev1.ServiceSpec{ExternalName: large}}, false, maxKept},
		"NetworkPolicy":      {&networkingv1.NetworkPolicy{ObjectMeta: ours, Spec: networkingv1.NetworkPolicySpec{Egress: make([]networkingv1.NetworkPolicyEgressRule, 1e5)}}, false, maxKept},
		"EndpointSlice":      {&discoveryv1.EndpointSlice{ObjectMeta: dns, Endpoints: make([]discoveryv1.Endpoint, 1e5)}, false, maxKept},
		"the servers":        {&corev1.ConfigMap{ObjectMeta: lists, Data: data}, true, 3*maxServers + maxKept},
		"who set the fields": {&corev1.ConfigMap{ObjectMeta: withFields, Data: data}, false, maxKept},
	} {
		if _, err := Applied(test.object); err != nil {
			t.Fatal(err)
		}
		if b, err := json.Marshal(test.object); err != nil || len(b) > test.most || Whole(test.object) != test.whole {
			t.Errorf("%s: %d bytes stay, want %d at most; whole: %v (%v)", name, len(b), test.most, Whole(test.object), err)
		}
		// An informer may transform an object twice.
		once := test.object.DeepCopyObject()
		if _, err := Applied(test.object); err != nil || !reflect.DeepEqual(once, test.object) {
			t.Errorf("%s: transformed twice, it is another (%v)", name, err)
		}
	}
}
