package stsdrain

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
)

const podSpec = `
initContainers: [{name: wait, image: busybox}]
containers:
- {name: move, image: drainer, volumeMounts: [{name: data, mountPath: /data}], env: [{name: TO, value: $(STATEFULSET_NAME)-0}, {name: REPLICAS, value: "7"}]}
- {name: log, image: shipper, aFieldOfALaterKubernetes: {a: 1}}
volumes: [{name: own, emptyDir: {}}]
`

func aDrain(t *testing.T, change ...func(*Departed)) *Departed {
	t.Helper()
	d := &Departed{
		Owner: &cachev1alpha1.StatefulSetDrain{
			ObjectMeta: metav1.ObjectMeta{Name: "q", Namespace: "shop", UID: "owner"},
			Spec: cachev1alpha1.StatefulSetDrainSpec{
				StatefulSetName: "queue", BackoffLimit: ptr.To[int32](2), ActiveDeadline: &metav1.Duration{Duration: 90 * time.Second},
				Template: cachev1alpha1.DrainTemplate{
					Metadata: cachev1alpha1.DrainTemplateMetadata{Labels: map[string]string{"team": "a", cachev1alpha1.LabelComponent: "mine"}, Annotations: map[string]string{"note": "b"}},
					Spec:     raw(t, podSpec),
				},
			},
		},
		Set: &appsv1.StatefulSet{
			ObjectMeta: metav1.ObjectMeta{Name: "queue", Namespace: "shop", UID: "set", Generation: 4},
			Spec: appsv1.StatefulSetSpec{
				ServiceName: "queues", Ordinals: &appsv1.StatefulSetOrdinals{Start: 5},
				Selector:             &metav1.LabelSelector{MatchLabels: map[string]string{"app": "queue"}},
				VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "wal"}}, {ObjectMeta: metav1.ObjectMeta{Name: "data"}}},
			},
		},
		Leads:  action.ClaimRef{Name: "aside-1", UID: "claim", Ordinal: 7},
		UIDs:   []types.UID{"claim", "second"},
		Claims: map[string]string{"data": "aside-1"},
		Start:  5, Replicas: 2,
	}
	for _, c := range change {
		c(d)
	}
	return d
}

func raw(t *testing.T, text string) runtime.RawExtension {
	t.Helper()
	object, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return runtime.RawExtension{Raw: object}
}

func template(text string) func(*Departed) {
	return func(d *Departed) {
		object, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			panic(err)
		}
		d.Owner.Spec.Template.Spec = runtime.RawExtension{Raw: object}
	}
}

// typed is the Job without the fields that this release doesn't know.
func typed(t *testing.T, o *unstructured.Unstructured) *batchv1.Job {
	t.Helper()
	job := &batchv1.Job{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, job); err != nil {
		t.Fatal(err)
	}
	return job
}

func job(t *testing.T, d *Departed) *batchv1.Job {
	t.Helper()
	o, err := Job(d)
	if err != nil {
		t.Fatal(err)
	}
	return typed(t, o)
}

func TestADrainerHasTheMembersVolumesUnderTheirTemplatesNames(t *testing.T) {
	claim := func(name string) corev1.VolumeSource {
		return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}
	}
	empty := corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
	for what, test := range map[string]struct {
		change func(*Departed)
		want   []corev1.Volume
	}{
		"one that was never bound is empty": {func(*Departed) {}, []corev1.Volume{{Name: "own", VolumeSource: empty}, {Name: "data", VolumeSource: claim("aside-1")}, {Name: "wal", VolumeSource: empty}}},
		"both": {func(d *Departed) { d.Claims["wal"] = "aside-2" },
			[]corev1.Volume{{Name: "own", VolumeSource: empty}, {Name: "data", VolumeSource: claim("aside-1")}, {Name: "wal", VolumeSource: claim("aside-2")}}},
		"one of an earlier template": {func(d *Departed) { d.Claims["old"] = "aside-3"; d.Set.Spec.VolumeClaimTemplates = nil },
			[]corev1.Volume{{Name: "own", VolumeSource: empty}, {Name: "data", VolumeSource: claim("aside-1")}, {Name: "old", VolumeSource: claim("aside-3")}}},
		"no volumes of its own": {template("containers: [{name: move}]"),
			[]corev1.Volume{{Name: "data", VolumeSource: claim("aside-1")}, {Name: "wal", VolumeSource: empty}}},
	} {
		if diff := cmp.Diff(test.want, job(t, aDrain(t, test.change)).Spec.Template.Spec.Volumes); diff != "" {
			t.Errorf("%s: -want +got:\n%s", what, diff)
		}
	}
}

// Nothing empty can stand for a device, so the pod is valid only without it.
func TestADeviceThatWasNeverBoundIsLeftOut(t *testing.T) {
	d := aDrain(t, template(`{initContainers: [{name: look, volumeDevices: [{name: wal, devicePath: /dev/wal}]}],
		containers: [{name: move, volumeMounts: [{name: data, mountPath: /data}], volumeDevices: [{name: wal, devicePath: /dev/wal}, {name: raw, devicePath: /dev/raw}]}]}`),
		func(d *Departed) {
			for i := range d.Set.Spec.VolumeClaimTemplates {
				if is := &d.Set.Spec.VolumeClaimTemplates[i]; is.Name == "wal" {
					is.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock)
				}
			}
		})
	pod := job(t, d).Spec.Template.Spec
	if len(pod.Volumes) != 1 || pod.Volumes[0].Name != "data" {
		t.Errorf("volumes %+v", pod.Volumes)
	}
	if got := pod.InitContainers[0].VolumeDevices; len(got) != 0 {
		t.Errorf("the first container's devices are %+v", got)
	}
	if diff := cmp.Diff([]corev1.VolumeDevice{{Name: "raw", DevicePath: "/dev/raw"}}, pod.Containers[0].VolumeDevices); diff != "" {
		t.Errorf("the drainer's devices: -want +got:\n%s", diff)
	}
	d.Claims["wal"] = "aside-2"
	if pod = job(t, d).Spec.Template.Spec; len(pod.Volumes) != 2 || len(pod.Containers[0].VolumeDevices) != 2 {
		t.Errorf("a device that was bound is left out: %+v", pod)
	}
}

// A variable of the template may refer to ours, and has precedence.
func TestEachContainerIsToldWhatItDrains(t *testing.T) {
	pod := job(t, aDrain(t)).Spec.Template.Spec
	ours := []corev1.EnvVar{
		{Name: "STATEFULSET_NAME", Value: "queue"}, {Name: "NAMESPACE", Value: "shop"}, {Name: "SERVICE_NAME", Value: "queues"}, {Name: "POD_NAME", Value: "queue-7"},
		{Name: "ORDINAL", Value: "7"}, {Name: "ORDINAL_START", Value: "5"}, {Name: "REPLICAS", Value: "2"},
	}
	for name, got := range map[string][]corev1.EnvVar{"init": pod.InitContainers[0].Env, "second": pod.Containers[1].Env} {
		if diff := cmp.Diff(ours, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
	want := append(ours[:6:6], corev1.EnvVar{Name: "TO", Value: "$(STATEFULSET_NAME)-0"}, corev1.EnvVar{Name: "REPLICAS", Value: "7"})
	if diff := cmp.Diff(want, pod.Containers[0].Env); diff != "" {
		t.Errorf("the drainer: -want +got:\n%s", diff)
	}
}

func TestAJobSaysWhatItDrainsAndWhoseItIs(t *testing.T) {
	j := job(t, aDrain(t))
	labels := map[string]string{"team": "a", "cache.example.com/statefulsetdrain": "q", "app.kubernetes.io/component": "drainer", "app.kubernetes.io/managed-by": "memcached-operator"}
	notes := map[string]string{"note": "b", "cache.example.com/claim-uid": "claim", "cache.example.com/claims": "claim,second", "cache.example.com/survivors": "5+2", "cache.example.com/container": "move"}
	pod := j.Spec.Template
	if diff := cmp.Diff([]map[string]string{labels, labels, notes}, []map[string]string{j.Labels, pod.Labels, pod.Annotations}); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	notes["cache.example.com/drainer"], notes["cache.example.com/statefulset"] = TemplateHash(aDrain(t).Owner), "set/4"
	if diff := cmp.Diff(notes, j.Annotations); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if ref := metav1.GetControllerOf(j); ref == nil || ref.Kind != "StatefulSetDrain" || ref.UID != "owner" {
		t.Errorf("its controller is %v", ref)
	}
	if !strings.HasPrefix(j.Name, "aside-1-drain-") || j.Namespace != "shop" {
		t.Errorf("it is named %s/%s", j.Namespace, j.Name)
	}
	if ttl := j.Spec.TTLSecondsAfterFinished; ttl == nil || *ttl != math.MaxInt32 {
		t.Errorf("it goes after %v s", ttl)
	}
	if got := SurvivorsValue(0, 3); got != "3" {
		t.Errorf("three survivors from 0 on are %q", got)
	}
}

func TestAPodHasTheStatefulSetDrainsDeadlineAndRestartsUnlessItsTemplateSaysOtherwise(t *testing.T) {
	j := job(t, aDrain(t))
	pod := j.Spec.Template.Spec
	if *pod.ActiveDeadlineSeconds != 90 || pod.RestartPolicy != "Never" || *j.Spec.BackoffLimit != 2 || j.Spec.ActiveDeadlineSeconds != nil {
		t.Errorf("deadline %d, restarts %s, backoffLimit %d", *pod.ActiveDeadlineSeconds, pod.RestartPolicy, *j.Spec.BackoffLimit)
	}
	if j.Spec.PodFailurePolicy == nil || j.Spec.PodFailurePolicy.Rules[0].Action != batchv1.PodFailurePolicyActionIgnore || *j.Spec.PodReplacementPolicy != batchv1.Failed {
		t.Errorf("an eviction counts as a failure: %v", j.Spec.PodFailurePolicy)
	}
	j = job(t, aDrain(t, template(`{activeDeadlineSeconds: 30, restartPolicy: OnFailure, containers: [{name: move}]}`)))
	pod = j.Spec.Template.Spec
	if *pod.ActiveDeadlineSeconds != 30 || pod.RestartPolicy != "OnFailure" || j.Spec.PodFailurePolicy != nil {
		t.Errorf("deadline %d, restarts %s, policy %v", *pod.ActiveDeadlineSeconds, pod.RestartPolicy, j.Spec.PodFailurePolicy)
	}
	j = job(t, aDrain(t, func(d *Departed) { d.Owner.Spec.ActiveDeadline, d.Owner.Spec.BackoffLimit = nil, nil }))
	if *j.Spec.Template.Spec.ActiveDeadlineSeconds != 3600 || *j.Spec.BackoffLimit != 6 {
		t.Errorf("by default: deadline %d, backoffLimit %d", *j.Spec.Template.Spec.ActiveDeadlineSeconds, *j.Spec.BackoffLimit)
	}
}

func TestAFieldOfALaterKubernetesReachesTheAPIServer(t *testing.T) {
	o, err := Job(aDrain(t))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(o)
	if err != nil || !strings.Contains(string(text), `"aFieldOfALaterKubernetes":{"a":1}`) {
		t.Errorf("%v: %s", err, text)
	}
	again, err := Job(aDrain(t))
	if diff := cmp.Diff(o, again); diff != "" || err != nil {
		t.Errorf("%v; -first +second:\n%s", err, diff)
	}
}

func TestATemplateThatCannotWorkIsRefusedWithASentence(t *testing.T) {
	for what, test := range map[string]struct {
		change func(*Departed)
		want   string
	}{
		"the name of a member's volume": {template(`{containers: [{name: move}], volumes: [{name: data, emptyDir: {}}]}`),
			"template.spec.volumes has the name data of one of the StatefulSet's volumeClaimTemplates: give it another name"},
		"a member's labels": {func(d *Departed) { d.Owner.Spec.Template.Metadata.Labels = map[string]string{"app": "queue"} },
			"template.metadata.labels are those of the members: the selector of StatefulSet queue, app=queue, matches them"},
		"a selector that matches ours": {func(d *Departed) {
			d.Set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{cachev1alpha1.LabelManagedBy: cachev1alpha1.ManagedBy}}
		}, "template.metadata.labels are those of the members"},
		"a selector that can't be read": {func(d *Departed) {
			d.Set.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Is"}}}
		}, "the selector of StatefulSet queue can't be read"},
		"a probe that ends the drainer": {template(`{containers: [{name: move, livenessProbe: {exec: {command: [ok]}}}]}`),
			"the drainer's container in template.spec has a livenessProbe"},
		"a startup probe": {template(`{containers: [{name: move, startupProbe: {exec: {command: [ok]}}}]}`),
			"the drainer's container in template.spec has a startupProbe"},
		"no object":       {template(`[]`), "template.spec is no object"},
		"nothing":         {template(`null`), "template.spec is empty"},
		"volumes no list": {template(`{containers: [{name: move}], volumes: {name: data}}`), "template.spec.volumes is no list"},
	} {
		if _, err := Job(aDrain(t, test.change)); err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%s: want %q, got %v", what, test.want, err)
		}
	}
}

// A rule tells success from an end by a probe. No other probe ends a drainer.
func TestAProbeThatProvesNoSuccessIsTaken(t *testing.T) {
	for what, change := range map[string]func(*Departed){
		"with a rule": func(d *Departed) {
			template(`{containers: [{name: move, livenessProbe: {exec: {command: [ok]}}}]}`)(d)
			d.Owner.Spec.Receipt = "receipt.moved == 3"
		},
		"of another container": template(`{containers: [{name: move}, {name: log, livenessProbe: {exec: {command: [ok]}}}]}`),
		"that ends nothing":    template(`{containers: [{name: move, readinessProbe: {exec: {command: [ok]}}}]}`),
	} {
		if _, err := Job(aDrain(t, change)); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// The API server says what is wrong with these templates, which must not stop the operator.
func TestATemplateOfAnyShapeMakesAJobOrAnError(t *testing.T) {
	for _, spec := range []string{
		`{}`, `{containers: a}`, `{containers: [a, 1, null]}`, `{containers: [{name: 1, env: a}]}`, `{containers: [{env: [a, null, {name: 1}]}]}`,
		`{initContainers: {a: 1}, containers: [{name: move, env: null}]}`, `{volumes: [a, null], containers: []}`, `{restartPolicy: 1, activeDeadlineSeconds: a}`,
	} {
		if o, err := Job(aDrain(t, template(spec))); err == nil {
			if _, err := json.Marshal(o.DeepCopy()); err != nil {
				t.Errorf("%s: %v", spec, err)
			}
		}
	}
}

func TestAJobIsOutdatedWhenItsPodsWouldDiffer(t *testing.T) {
	base := TemplateHash(aDrain(t).Owner)
	for what, test := range map[string]struct {
		change func(*Departed)
		same   bool
	}{
		"another order of fields": {func(d *Departed) {
			var o any
			_ = json.Unmarshal(d.Owner.Spec.Template.Spec.Raw, &o)
			d.Owner.Spec.Template.Spec.Raw, _ = json.MarshalIndent(o, "", " ")
		}, true},
		"parallelism":  {func(d *Departed) { d.Owner.Spec.Parallelism = 3 }, true},
		"receipt":      {func(d *Departed) { d.Owner.Spec.Receipt = "receipt.ok" }, true},
		"image":        {template(strings.Replace(podSpec, "image: drainer", "image: other", 1)), false},
		"labels":       {func(d *Departed) { d.Owner.Spec.Template.Metadata.Labels = nil }, false},
		"deadline":     {func(d *Departed) { d.Owner.Spec.ActiveDeadline = nil }, false},
		"backoffLimit": {func(d *Departed) { d.Owner.Spec.BackoffLimit = nil }, false},
	} {
		if got := TemplateHash(aDrain(t, test.change).Owner); (got == base) != test.same {
			t.Errorf("%s: before %s, after %s", what, base, got)
		}
	}
}

func TestTheSampleForADryRunHasEachVolume(t *testing.T) {
	d := aDrain(t)
	o, err := SampleJob(d.Owner, d.Set)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"data", "wal"} {
		want := fmt.Sprintf("%s-queue-5", name)
		found := false
		for _, v := range typed(t, o).Spec.Template.Spec.Volumes {
			found = found || v.Name == name && v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == want
		}
		if !found {
			t.Errorf("it lacks claim %s", want)
		}
	}
	if strings.HasPrefix(o.GetName(), "aside-") || len(o.GetName()) > 63 {
		t.Errorf("it is named %s", o.GetName())
	}
}
