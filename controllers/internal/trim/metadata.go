package trim

import (
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/identity"
	"example.com/memcached-operator/controllers/internal/ring"
	"example.com/memcached-operator/controllers/internal/rollout"
	"example.com/memcached-operator/controllers/internal/stsdrain"
	"example.com/memcached-operator/drainer/contract"
)

// PVCProtection is the finalizer that Kubernetes removes from a claim that is being deleted when no
// pod on a node mounts it. After that, no pod with that claim is scheduled.
const PVCProtection = "kubernetes.io/pvc-protection"

// Limits of Kubernetes, in bytes.
const (
	maxName       = 253          // the name of an object
	maxKey        = 253 + 1 + 63 // the key of a label, or a finalizer
	maxLabelValue = 63
)

// maxOthers bounds how many labels, finalizers and owners that no reconcile reads are kept.
const maxOthers = 4

// knownLabels are the labels by which objects are selected, indexed and recognized.
var knownLabels = []string{
	cachev1alpha1.LabelCluster, cachev1alpha1.LabelStatefulSetDrain, cachev1alpha1.LabelName, cachev1alpha1.LabelInstance, cachev1alpha1.LabelComponent,
	cachev1alpha1.LabelManagedBy, appsv1.StatefulSetRevisionLabel, batchv1.JobNameLabel, discoveryv1.LabelServiceName, discoveryv1.LabelManagedBy,
}

// knownFinalizers are the finalizers that a reconcile reads, or that decide how an object is
// deleted.
var knownFinalizers = []string{
	cachev1alpha1.ClaimFinalizer, PVCProtection, metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents,
	batchv1.JobTrackingFinalizer,
}

// The annotations that a reconcile reads, each with the longest value, in bytes, that its
// reader accepts.
var (
	ofClaims = map[string]int{
		cachev1alpha1.AnnotationLeaving:      cachev1alpha1.MaxAnnotation,
		cachev1alpha1.AnnotationLeft:         cachev1alpha1.MaxAnnotation,
		cachev1alpha1.AnnotationPolicy:       cachev1alpha1.MaxAnnotation,
		cachev1alpha1.AnnotationNeverStarted: cachev1alpha1.MaxAnnotation,
		cachev1alpha1.AnnotationUnmoved:      cachev1alpha1.MaxAnnotation,
		cachev1alpha1.AnnotationAdopted:      cachev1alpha1.MaxAnnotation,
		cachev1alpha1.AnnotationProtected:    cachev1alpha1.MaxAnnotation,
		cachev1alpha1.AnnotationClaimUID:     cachev1alpha1.MaxAnnotation,
		cachev1alpha1.AnnotationReceipt:      max(contract.MaxReceiptBytes, stsdrain.MaxRecord),
		cachev1alpha1.AnnotationAsideOf:      cachev1alpha1.MaxAnnotation,
		cachev1alpha1.AnnotationDrain:        cachev1alpha1.MaxAnnotation,
		cachev1alpha1.AnnotationMoved:        cachev1alpha1.MaxAnnotation,
		cachev1alpha1.AnnotationMove:         cachev1alpha1.MaxAnnotation,
		cachev1alpha1.AnnotationAttempts:     cachev1alpha1.MaxAnnotation,
	}
	ofJobs = map[string]int{
		cachev1alpha1.AnnotationPorts:       cachev1alpha1.MaxAnnotation,
		cachev1alpha1.AnnotationWarm:        cachev1alpha1.MaxAnnotation,
		cachev1alpha1.AnnotationDrainer:     cachev1alpha1.MaxAnnotation,
		cachev1alpha1.AnnotationStatefulSet: cachev1alpha1.MaxAnnotation,
		cachev1alpha1.AnnotationClaimUID:    cachev1alpha1.MaxAnnotation,
		cachev1alpha1.AnnotationSurvivors:   cachev1alpha1.MaxAnnotation,
		cachev1alpha1.AnnotationTarget:      cachev1alpha1.MaxAnnotation,
		cachev1alpha1.AnnotationBegin:       cachev1alpha1.MaxAnnotation,
		cachev1alpha1.AnnotationContainer:   cachev1alpha1.MaxAnnotation,
		cachev1alpha1.AnnotationClaims:      identity.MaxClaims,
	}
	ofPods = map[string]int{
		cachev1alpha1.AnnotationClaimUID:    cachev1alpha1.MaxAnnotation,
		cachev1alpha1.AnnotationSurvivors:   cachev1alpha1.MaxAnnotation,
		cachev1alpha1.AnnotationTarget:      cachev1alpha1.MaxAnnotation,
		cachev1alpha1.AnnotationBegin:       cachev1alpha1.MaxAnnotation,
		cachev1alpha1.AnnotationListVersion: cachev1alpha1.MaxAnnotation,
		cachev1alpha1.AnnotationStepOut:     cachev1alpha1.MaxAnnotation,
		cachev1alpha1.AnnotationTable:       cachev1alpha1.MaxAnnotation,
		cachev1alpha1.AnnotationContainer:   cachev1alpha1.MaxAnnotation,
		cachev1alpha1.AnnotationClaims:      identity.MaxClaims,
		// Annotations of a member without a volume.
		cachev1alpha1.AnnotationLeaving:      cachev1alpha1.MaxAnnotation,
		cachev1alpha1.AnnotationLeft:         cachev1alpha1.MaxAnnotation,
		cachev1alpha1.AnnotationPolicy:       cachev1alpha1.MaxAnnotation,
		cachev1alpha1.AnnotationNeverStarted: cachev1alpha1.MaxAnnotation,
		cachev1alpha1.AnnotationUnmoved:      cachev1alpha1.MaxAnnotation,
		cachev1alpha1.AnnotationDrain:        cachev1alpha1.MaxAnnotation,
		cachev1alpha1.AnnotationMoved:        cachev1alpha1.MaxAnnotation,
		cachev1alpha1.AnnotationMove:         cachev1alpha1.MaxAnnotation,
		cachev1alpha1.AnnotationAttempts:     cachev1alpha1.MaxAnnotation,
	}
	ofTargets = map[string]int{
		cachev1alpha1.AnnotationWake: cachev1alpha1.MaxAnnotation,
	}
	ofApplied = map[string]int{
		cachev1alpha1.AnnotationListVersion: cachev1alpha1.MaxAnnotation,
		cachev1alpha1.AnnotationListPorts:   cachev1alpha1.MaxAnnotation,
		cachev1alpha1.AnnotationUnlisted:    cachev1alpha1.MaxAnnotation,
		cachev1alpha1.AnnotationRing:        ring.MaxRecord,
		cachev1alpha1.AnnotationTemplate:    rollout.MaxRecord,
		cachev1alpha1.AnnotationApplied:     cachev1alpha1.MaxAnnotation,
	}
)

// metadata keeps names, times, the annotations that are read, and the fields that tell the owner. Managed
// fields are dropped.
func metadata(m *metav1.ObjectMeta, read map[string]int) {
	*m = metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion, Generation: m.Generation,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp, DeletionGracePeriodSeconds: m.DeletionGracePeriodSeconds,
		Labels: labels(m.Labels), Annotations: annotations(m.Annotations, read),
		OwnerReferences: owners(m.OwnerReferences), Finalizers: finalizers(m.Finalizers),
	}
}

// few returns a function that tells whether to keep a key: every known key, and the first
// few others.
func few(known []string) func(key string) bool {
	others := 0
	return func(key string) bool {
		if slices.Contains(known, key) {
			return true
		}
		others++
		return others <= maxOthers && len(key) <= maxKey
	}
}

// labels keeps the known labels, and the first few others, sorted by name.
func labels(all map[string]string) map[string]string {
	var kept map[string]string
	keep := few(knownLabels)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if value := all[key]; keep(key) && len(value) <= maxLabelValue {
			kept = with(kept, key, value)
		}
	}
	return kept
}

// annotations keeps the annotations that are read.
func annotations(all map[string]string, read map[string]int) map[string]string {
	var kept map[string]string
	for key, most := range read {
		if value, is := all[key]; is {
			kept = with(kept, key, unacceptable(value, most))
		}
	}
	return kept
}

func with(entries map[string]string, key, value string) map[string]string {
	if entries == nil {
		entries = map[string]string{}
	}
	entries[key] = value
	return entries
}

func finalizers(all []string) []string {
	var kept []string
	keep := few(knownFinalizers)
	for _, f := range all {
		if !slices.Contains(kept, f) && keep(f) {
			kept = append(kept, f)
		}
	}
	return kept
}

// owners keeps the controller, and the first few others.
func owners(all []metav1.OwnerReference) []metav1.OwnerReference {
	var kept []metav1.OwnerReference
	controlled, others := false, 0
	for _, ref := range all {
		switch {
		case ptr.Deref(ref.Controller, false) && !controlled:
			controlled = true
		case others < maxOthers && max(len(ref.APIVersion), len(ref.Kind), len(ref.Name), len(ref.UID)) <= maxKey:
			others++
		default:
			continue
		}
		ref.APIVersion, ref.Kind = unacceptable(ref.APIVersion, maxKey), name(ref.Kind)
		ref.Name, ref.UID = name(ref.Name), types.UID(name(string(ref.UID)))
		kept = append(kept, ref)
	}
	return kept
}

// name bounds a string that is compared with names of objects. A name that is too long equals no
// other, before and after the cut.
func name(s string) string { return unacceptable(s, maxName) }

// unacceptable cuts a value that is longer than its reader accepts. The rest is still too long, so
// the reader still refuses it.
func unacceptable(s string, accepted int) string {
	if len(s) <= accepted {
		return s
	}
	return strings.Clone(strings.ToValidUTF8(s[:accepted+1], "\uFFFD"))
}

// cut returns the first most bytes at most, without half a character, as a copy that doesn't keep
// the whole string in memory.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.Clone(strings.ToValidUTF8(s[:most], ""))
}
