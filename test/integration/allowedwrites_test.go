package integration

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/test/internal/operator"
)

// allowedPatches has, by resource, the fields that a patch for a StatefulSetDrain may have. A field that ends in a
// dot stands for all keys of the operator in that map.
var allowedPatches = map[string][]string{
	"statefulsets":             {"metadata.annotations." + cachev1alpha1.AnnotationWake},
	"persistentvolumes":        {"spec.claimRef"},
	"persistentvolumeclaims":   {"metadata.finalizers", "metadata.labels.", "metadata.annotations."},
	"jobs":                     {"metadata.labels."},
	"statefulsetdrains":        {"metadata.finalizers", "metadata.annotations."},
	"statefulsetdrains/status": {"status"},
}

// strayWrites returns the operator's writes that are not for StatefulSetDrains; nil if there are Memcacheds,
// too.
func strayWrites(writes []operator.Write) (stray []string) {
	of := func(kind string) bool {
		return slices.ContainsFunc(writes, func(w operator.Write) bool { return strings.HasPrefix(w.Resource, kind) })
	}
	if !of("statefulsetdrains") || of("memcacheds") {
		return nil
	}
	for _, w := range writes {
		switch {
		case w.Verb == "patch" && allowedPatches[w.Resource] != nil:
			for _, field := range fieldsOf(w) {
				if !slices.ContainsFunc(allowedPatches[w.Resource], func(allowed string) bool { return covers(allowed, field) }) {
					stray = append(stray, fmt.Sprintf("%s: %s", w, field))
				}
			}
		case w.Verb == "create" && w.Resource == "persistentvolumeclaims" && strings.Contains(w.Body, "-aside-"):
		case (w.Verb == "create" || w.Verb == "delete") && w.Resource == "jobs":
		case w.Verb == "delete" && w.Resource == "persistentvolumeclaims":
		default:
			stray = append(stray, w.String())
		}
	}
	return stray
}

// covers tells whether the field is allowed.
func covers(allowed, field string) bool {
	key, isMap := strings.CutPrefix(field, allowed)
	if strings.HasSuffix(allowed, ".") {
		return isMap && (strings.HasPrefix(key, cachev1alpha1.Group+"/") || key == cachev1alpha1.LabelManagedBy)
	}
	return isMap && (key == "" || strings.HasPrefix(key, "."))
}

// fieldsOf are the fields of a merge patch, without the optimistic lock.
func fieldsOf(w operator.Write) (fields []string) {
	var patch map[string]any
	if err := json.Unmarshal([]byte(w.Body), &patch); err != nil {
		return []string{err.Error()}
	}
	var walk func(prefix string, value any)
	walk = func(prefix string, value any) {
		object, is := value.(map[string]any)
		if !is || len(object) == 0 {
			fields = append(fields, prefix)
			return
		}
		for key, v := range object {
			walk(prefix+"."+key, v)
		}
	}
	for key, v := range patch {
		walk(key, v)
	}
	return slices.DeleteFunc(fields, func(f string) bool { return f == "metadata.resourceVersion" })
}

func TestWritesThatAreNoneOfAStatefulSetDrains(t *testing.T) {
	status := operator.Write{Verb: "patch", Resource: "statefulsetdrains/status", Name: "queue", Body: `{"metadata":{"resourceVersion":"1"},"status":{"replicas":1}}`}
	for name, test := range map[string]struct {
		write operator.Write
		stray bool
	}{
		"a StatefulSet is woken":       {operator.Write{Verb: "patch", Resource: "statefulsets", Body: `{"metadata":{"annotations":{"cache.example.com/wake":"2"},"resourceVersion":"1"}}`}, false},
		"a StatefulSet is scaled":      {operator.Write{Verb: "patch", Resource: "statefulsets", Body: `{"spec":{"replicas":2}}`}, true},
		"a StatefulSet is annotated":   {operator.Write{Verb: "patch", Resource: "statefulsets", Body: `{"metadata":{"annotations":{"a":"2"}}}`}, true},
		"a volume is reserved":         {operator.Write{Verb: "patch", Resource: "persistentvolumes", Body: `{"spec":{"claimRef":{"name":"a","uid":null}}}`}, false},
		"a volume is retained":         {operator.Write{Verb: "patch", Resource: "persistentvolumes", Body: `{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}`}, true},
		"a claim is marked":            {operator.Write{Verb: "patch", Resource: "persistentvolumeclaims", Body: `{"metadata":{"annotations":{"cache.example.com/left":"1"},"finalizers":["a"]}}`}, false},
		"a claim gets another's label": {operator.Write{Verb: "patch", Resource: "persistentvolumeclaims", Body: `{"metadata":{"labels":{"app":"queue"}}}`}, true},
		"a claim grows":                {operator.Write{Verb: "patch", Resource: "persistentvolumeclaims", Body: `{"spec":{"resources":{}}}`}, true},
		"a claim for a new volume":     {operator.Write{Verb: "create", Resource: "persistentvolumeclaims", Body: `{"metadata":{"name":"data-queue-1"}}`}, true},
		"a pod is deleted":             {operator.Write{Verb: "delete", Resource: "pods", Name: "queue-1"}, true},
	} {
		if stray := strayWrites([]operator.Write{status, test.write}); len(stray) > 0 != test.stray {
			t.Errorf("%s: %v", name, stray)
		}
	}
}
