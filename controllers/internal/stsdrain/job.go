package stsdrain

import (
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/build"
)

// Departed is a departed member, whose volumes are to be drained. The template of its Job stays JSON, because
// the API server may know fields that this release does not.
type Departed struct {
	Owner *cachev1alpha1.StatefulSetDrain
	// Set is the StatefulSet: its name, selector, Service and volumeClaimTemplates count.
	Set *appsv1.StatefulSet
	// Leads is the member's first claim, whose UID is the unit's. UIDs are those of all the member's claims.
	Leads action.ClaimRef
	UIDs  []types.UID
	// Claims has the claim of each of the member's volumes, by the volumeClaimTemplate's name.
	Claims map[string]string
	// Start and Replicas are the ordinals of the members that stay.
	Start, Replicas int32
}

// Job returns the Job. An error says in one sentence what has to be changed in the template.
func Job(d *Departed) (*unstructured.Unstructured, error) {
	pod, err := parseTemplate(d.Owner)
	if err != nil {
		return nil, err
	}
	if err := d.noProbeEnds(pod); err != nil {
		return nil, err
	}
	if err := d.addVolumes(pod); err != nil {
		return nil, err
	}
	d.addEnvironment(pod)
	container := text(drainer(pod)["name"])
	metadata := &d.Owner.Spec.Template.Metadata
	given := merged(metadata.Labels, map[string]string{
		cachev1alpha1.LabelStatefulSetDrain: d.Owner.Name,
		cachev1alpha1.LabelComponent:        cachev1alpha1.ComponentDrainer,
		cachev1alpha1.LabelManagedBy:        cachev1alpha1.ManagedBy,
	})
	if err := noMember(d.Set, given); err != nil {
		return nil, err
	}
	notes := merged(metadata.Annotations, map[string]string{
		cachev1alpha1.AnnotationClaimUID:  string(d.Leads.UID),
		cachev1alpha1.AnnotationClaims:    ClaimsValue(d.UIDs...),
		cachev1alpha1.AnnotationSurvivors: SurvivorsValue(d.Start, d.Replicas),
		cachev1alpha1.AnnotationContainer: container,
	})
	setDefault(pod, "restartPolicy", string(corev1.RestartPolicyNever))
	setDefault(pod, "activeDeadlineSeconds", deadline(d.Owner))
	spec := map[string]any{
		"backoffLimit":            int64(ptr.Deref(d.Owner.Spec.BackoffLimit, defaultBackoffLimit)),
		"podReplacementPolicy":    string(batchv1.Failed),
		"ttlSecondsAfterFinished": int64(build.JobTTL),
		"template": map[string]any{
			"metadata": map[string]any{"labels": values(given), "annotations": values(notes)},
			"spec":     pod,
		},
	}
	if pod["restartPolicy"] == string(corev1.RestartPolicyNever) {
		spec["podFailurePolicy"] = evictionsAreNoFailures()
	}
	job := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	job.SetGroupVersionKind(batchv1.SchemeGroupVersion.WithKind("Job"))
	job.SetNamespace(d.Owner.Namespace)
	job.SetName(build.DrainName(d.Leads.Name, d.Leads.UID))
	job.SetLabels(given)
	job.SetAnnotations(merged(notes, map[string]string{
		cachev1alpha1.AnnotationDrainer: TemplateHash(d.Owner), cachev1alpha1.AnnotationStatefulSet: SetVersion(d.Set),
	}))
	job.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(d.Owner, cachev1alpha1.GroupVersion.WithKind("StatefulSetDrain"))})
	return job, nil
}

const (
	defaultBackoffLimit    = 6
	defaultDeadlineSeconds = 3600
)

// SetVersion tells one state of a StatefulSet from another: each change of its replicas makes another one.
func SetVersion(set *appsv1.StatefulSet) string {
	return fmt.Sprintf("%s/%d", set.UID, set.Generation)
}

// SampleJob returns a Job like those that will drain members of the StatefulSet, for a dry run.
func SampleJob(owner *cachev1alpha1.StatefulSetDrain, set *appsv1.StatefulSet) (*unstructured.Unstructured, error) {
	ordinal := start(set)
	d := &Departed{Owner: owner, Set: set, Claims: map[string]string{}, Start: ordinal, Replicas: 1}
	for _, template := range set.Spec.VolumeClaimTemplates {
		d.Claims[template.Name] = fmt.Sprintf("%s-%s-%d", template.Name, set.Name, ordinal)
	}
	d.Leads = action.ClaimRef{Name: "dry-run-" + owner.Name, UID: owner.UID, Ordinal: ordinal}
	job, err := Job(d)
	if err == nil {
		unstructured.RemoveNestedField(job.Object, "metadata", "annotations", cachev1alpha1.AnnotationStatefulSet) // no dry run for each change
	}
	return job, err
}

func start(set *appsv1.StatefulSet) int32 {
	if set.Spec.Ordinals == nil {
		return 0
	}
	return set.Spec.Ordinals.Start
}

// ClaimsValue is the value of AnnotationClaims.
func ClaimsValue(uids ...types.UID) string {
	all := make([]string, len(uids))
	for i := range uids {
		all[i] = string(uids[i])
	}
	return strings.Join(all, ",")
}

// SurvivorsValue is the value of AnnotationSurvivors.
func SurvivorsValue(start, replicas int32) string {
	if start == 0 {
		return strconv.Itoa(int(replicas))
	}
	return fmt.Sprintf("%d+%d", start, replicas)
}

// TemplateHash is a hash of everything in the spec that decides whether a drainer's pod can be created and
// can start.
func TemplateHash(owner *cachev1alpha1.StatefulSetDrain) string {
	var raw any
	_ = json.Unmarshal(owner.Spec.Template.Spec.Raw, &raw) // what isn't JSON makes no Job either
	text, _ := json.Marshal(map[string]any{
		"metadata": owner.Spec.Template.Metadata, "spec": raw, "deadline": deadline(owner), "backoffLimit": ptr.Deref(owner.Spec.BackoffLimit, defaultBackoffLimit),
	})
	h := fnv.New32a()
	_, _ = h.Write(text)
	return fmt.Sprintf("%08x", h.Sum32())
}

func deadline(owner *cachev1alpha1.StatefulSetDrain) int64 {
	if owner.Spec.ActiveDeadline == nil {
		return defaultDeadlineSeconds
	}
	return max(1, int64(owner.Spec.ActiveDeadline.Seconds()))
}

// parseTemplate returns the template's spec as an object of its own.
func parseTemplate(owner *cachev1alpha1.StatefulSetDrain) (map[string]any, error) {
	pod := map[string]any{}
	if err := json.Unmarshal(owner.Spec.Template.Spec.Raw, &pod); err != nil {
		return nil, fmt.Errorf("template.spec is no object: %w", err)
	}
	if pod == nil {
		return nil, errors.New("template.spec is empty: it needs the drainer's container")
	}
	return pod, nil
}

// addVolumes adds the member's volumes. A volume that was never bound is empty; a device that was never bound is left out.
func (d *Departed) addVolumes(pod map[string]any) error {
	given, isList := pod["volumes"].([]any)
	if !isList && pod["volumes"] != nil {
		return errors.New("template.spec.volumes is no list")
	}
	names, devices := make([]string, 0, len(d.Set.Spec.VolumeClaimTemplates)), map[string]bool{}
	for i := range d.Set.Spec.VolumeClaimTemplates {
		t := &d.Set.Spec.VolumeClaimTemplates[i]
		names = append(names, t.Name)
		devices[t.Name] = ptr.Deref(t.Spec.VolumeMode, "") == corev1.PersistentVolumeBlock
	}
	for name := range d.Claims {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, volume := range given {
		if v, is := volume.(map[string]any); is && slices.Contains(names, text(v["name"])) {
			return fmt.Errorf("template.spec.volumes has the name %s of one of the StatefulSet's volumeClaimTemplates: give it another name; "+
				"the departed member's volume is added by this one", text(v["name"]))
		}
	}
	volumes := slices.Clone(given)
	for _, name := range names {
		volume := map[string]any{"name": name}
		switch claim := d.Claims[name]; {
		case claim != "":
			volume["persistentVolumeClaim"] = map[string]any{"claimName": claim}
		case devices[name]:
			dropDevice(pod, name)
			continue
		default:
			volume["emptyDir"] = map[string]any{}
		}
		volumes = append(volumes, volume)
	}
	if len(volumes) > 0 {
		pod["volumes"] = volumes
	}
	return nil
}

// dropDevice drops a device from the containers: nothing empty can stand for it.
func dropDevice(pod map[string]any, name string) {
	for _, container := range containers(pod) {
		if given, isList := container["volumeDevices"].([]any); isList {
			container["volumeDevices"] = slices.DeleteFunc(given, func(v any) bool { device, _ := v.(map[string]any); return text(device["name"]) == name })
		}
	}
}

// containers are those of the pod that are objects; the API server refuses others.
func containers(pod map[string]any) (all []map[string]any) {
	for _, field := range []string{"initContainers", "containers"} {
		list, _ := pod[field].([]any)
		for _, c := range list {
			if container, is := c.(map[string]any); is {
				all = append(all, container)
			}
		}
	}
	return all
}

// addEnvironment tells each container its work. A variable of the template's own has precedence, and may
// refer to ours, which come first.
func (d *Departed) addEnvironment(pod map[string]any) {
	ours := []struct{ name, value string }{
		{"STATEFULSET_NAME", d.Set.Name},
		{"NAMESPACE", d.Owner.Namespace},
		{"SERVICE_NAME", d.Set.Spec.ServiceName},
		{"POD_NAME", fmt.Sprintf("%s-%d", d.Set.Name, d.Leads.Ordinal)},
		{"ORDINAL", strconv.Itoa(int(d.Leads.Ordinal))},
		{"ORDINAL_START", strconv.Itoa(int(d.Start))},
		{"REPLICAS", strconv.Itoa(int(d.Replicas))},
	}
	for _, container := range containers(pod) {
		given, isList := container["env"].([]any)
		if !isList && container["env"] != nil {
			continue // the API server refuses it, in its own words
		}
		var env []any
		for _, o := range ours {
			if !slices.ContainsFunc(given, func(v any) bool { g, _ := v.(map[string]any); return text(g["name"]) == o.name }) {
				env = append(env, map[string]any{"name": o.name, "value": o.value})
			}
		}
		container["env"] = append(env, given...)
	}
}

// drainer is the first container; nil if the API server will refuse the pod.
func drainer(pod map[string]any) map[string]any {
	containers, _ := pod["containers"].([]any)
	if len(containers) == 0 {
		return nil
	}
	first, _ := containers[0].(map[string]any)
	return first
}

// noProbeEnds refuses a drainer with a probe that may end it, unless a rule says what the drainer has done:
// the pod's status doesn't tell such an end, with exit code 0, from success.
func (d *Departed) noProbeEnds(pod map[string]any) error {
	for _, probe := range []string{"livenessProbe", "startupProbe"} {
		if d.Owner.Spec.Receipt == "" && drainer(pod)[probe] != nil {
			return fmt.Errorf("the drainer's container in template.spec has a %s: the kubelet ends the drainer when it fails, "+
				"and exit code 0 looks like success then: set spec.receipt, or leave the probe out", probe)
		}
	}
	return nil
}

// noMember refuses labels that the StatefulSet's selector matches: its controller would adopt the pod,
// and count it as a member.
func noMember(set *appsv1.StatefulSet, given map[string]string) error {
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		return fmt.Errorf("the selector of StatefulSet %s can't be read: %w", set.Name, err)
	}
	if set.Spec.Selector == nil || !selector.Matches(labels.Set(given)) {
		return nil
	}
	return fmt.Errorf("template.metadata.labels are those of the members: the selector of StatefulSet %s, %s, matches them; "+
		"a drainer must not be taken for a member", set.Name, metav1.FormatLabelSelector(set.Spec.Selector))
}

// evictionsAreNoFailures is the policy for pods of drainers: an eviction doesn't count towards the
// backoffLimit.
func evictionsAreNoFailures() map[string]any {
	return map[string]any{"rules": []any{map[string]any{
		"action": string(batchv1.PodFailurePolicyActionIgnore),
		"onPodConditions": []any{map[string]any{
			"type": string(corev1.DisruptionTarget), "status": string(corev1.ConditionTrue),
		}},
	}}}
}

func setDefault(object map[string]any, field string, value any) {
	if object[field] == nil {
		object[field] = value
	}
}

func text(value any) string {
	s, _ := value.(string)
	return s
}

// merged has both maps; ours win.
func merged(given, ours map[string]string) map[string]string {
	all := maps.Clone(given)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, ours)
	return all
}

func values(of map[string]string) map[string]any {
	all := make(map[string]any, len(of))
	for key, value := range of {
		all[key] = value
	}
	return all
}
