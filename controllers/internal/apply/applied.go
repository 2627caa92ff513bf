package apply

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// Admission may change an applied object: a webhook raises a request, GKE Autopilot rounds it. The
// result counts as written, although it differs from the wanted configuration. So each object has a
// hash of the configuration that was sent, and all fields of that configuration must still be ours.
// Another client that changes one of our values takes over the field's ownership, while admission
// does not.

// hashOf is the hash of a configuration that is sent.
func hashOf(desired any) string {
	b, _ := json.Marshal(desired) // an apply configuration can always be marshalled
	const length = 8
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:length])
}

// asSent tells whether the object is the result of a write with this hash.
func asSent(live metav1.Object, hash string, desired any) bool {
	return live.GetAnnotations()[cachev1alpha1.AnnotationApplied] == hash && ownsAll(live, desired)
}

// ownsAll tells whether all fields of the configuration are ours, except for those within the path.
func ownsAll(live metav1.Object, desired any, path ...string) bool {
	fields := appliedFields(live)
	for _, name := range path {
		fields, _ = fields["f:"+name].(map[string]any)
	}
	b, err := json.Marshal(desired)
	var value map[string]any
	if err != nil || fields == nil || json.Unmarshal(b, &value) != nil {
		return false
	}
	if len(path) == 0 { // these fields identify the object
		delete(value, "apiVersion")
		delete(value, "kind")
		if meta, ok := value["metadata"].(map[string]any); ok {
			delete(meta, "name")
			delete(meta, "namespace")
		}
	}
	return owns(fields, value)
}

// appliedFields are the managed fields of our applies.
func appliedFields(live metav1.Object) map[string]any {
	for _, entry := range live.GetManagedFields() {
		if entry.Manager != cachev1alpha1.ManagedBy || entry.Operation != metav1.ManagedFieldsOperationApply || entry.Subresource != "" || entry.FieldsV1 == nil {
			continue
		}
		var fields map[string]any
		if json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) == nil {
			return fields
		}
	}
	return nil
}

// owns tells whether the managed fields contain all of the value. A field without subfields is
// owned as a whole.
func owns(fields map[string]any, value any) bool {
	if len(fields) == 0 {
		return true
	}
	switch value := value.(type) {
	case map[string]any:
		for name, inner := range value {
			of, ok := fields["f:"+name].(map[string]any)
			if !ok || !owns(of, inner) {
				return false
			}
		}
	case []any:
		renamed := keyed(fields) // an element that was sent under the key that admission gave it (renamed)
		missing := 0
		for _, element := range value {
			of, ok := elementOf(fields, element)
			if !ok {
				missing++
				continue
			}
			renamed--
			if !owns(of, element) {
				return false
			}
		}
		return missing == 0 || missing == renamed
	}
	return true
}

// keyed is how many elements with keys the managed fields of a list have.
func keyed(fields map[string]any) (n int) {
	for name := range fields {
		if strings.HasPrefix(name, "k:") {
			n++
		}
	}
	return n
}

// elementOf finds the fields of a list's element: by its keys, or by its value.
func elementOf(fields map[string]any, element any) (map[string]any, bool) {
	for name, of := range fields {
		inner, _ := of.(map[string]any)
		if text, ok := strings.CutPrefix(name, "v:"); ok {
			var value any
			if json.Unmarshal([]byte(text), &value) == nil && equality.Semantic.DeepEqual(value, element) {
				return inner, true
			}
		}
		if text, ok := strings.CutPrefix(name, "k:"); ok && hasKeys(text, element) {
			return inner, true
		}
	}
	return nil, false
}

func hasKeys(text string, element any) bool {
	var keys map[string]any
	value, ok := element.(map[string]any)
	if !ok || json.Unmarshal([]byte(text), &keys) != nil {
		return false
	}
	for name, key := range keys {
		if given, is := value[name]; is && !equality.Semantic.DeepEqual(given, key) || !is && name != "protocol" {
			return false
		}
	}
	return true
}

// configuration is a generated apply configuration.
type configuration[T any] interface {
	runtime.ApplyConfiguration
	WithAnnotations(entries map[string]string) *T
	WithResourceVersion(version string) *T
}

// extracted returns the part of an object that we have applied. Extracting takes most of the time of a
// comparison, so it is done when the part is first needed.
func extracted[P, AC any](extract func(P, string) (AC, error), object P) func() (AC, error) {
	return sync.OnceValues(func() (AC, error) { return extract(object, cachev1alpha1.ManagedBy) })
}

// asWanted tells whether no write is needed. The annotation with the hash of the last write doesn't
// count as a difference, because asWanted adds it to the configuration.
func asWanted[AC interface {
	*T
	configuration[T]
}, T any](desired AC, applied func() (AC, error), live metav1.Object, hash string) (bool, error) {
	if asSent(live, hash, desired) {
		return true, nil
	}
	current, err := applied()
	if err != nil {
		return false, err
	}
	if before, ok := live.GetAnnotations()[cachev1alpha1.AnnotationApplied]; ok {
		desired.WithAnnotations(map[string]string{cachev1alpha1.AnnotationApplied: before})
	}
	return equality.Semantic.DeepEqual(desired, current), nil
}

// renamed returns the configuration with those list elements whose keys admission has changed as
// they are in the live object. For example, a hook makes all topology spread constraints hard. The
// managed fields still have the operator's element under the key that was sent. The element under
// the live key has no owner. If the operator sent its element as before, the API server would add it
// a second time. Admission would then give both elements one key, and the API server refuses that.
func renamed[AC interface {
	*T
	configuration[T]
}, T any](desired AC, live metav1.Object) AC {
	fields := appliedFields(live)
	value, object := asMap(desired), asMap(live)
	if fields == nil || value == nil || !rename(fields, value, object) {
		return desired
	}
	out := AC(new(T))
	if b, err := json.Marshal(value); err != nil || json.Unmarshal(b, out) != nil {
		return desired
	}
	return out
}

func asMap(o any) (m map[string]any) {
	if b, err := json.Marshal(o); err != nil || json.Unmarshal(b, &m) != nil {
		return nil
	}
	return m
}

// rename changes the lists in the value as renamed does, and tells whether it changed one.
func rename(fields map[string]any, value, live any) (changed bool) {
	given, _ := value.(map[string]any)
	is, _ := live.(map[string]any)
	for name, inner := range given {
		of, _ := fields["f:"+name].(map[string]any)
		if list, ok := inner.([]any); ok {
			has, _ := is[name].([]any)
			changed = renameElements(of, list, has) || changed
		} else {
			changed = rename(of, inner, is[name]) || changed
		}
	}
	return changed
}

func renameElements(fields map[string]any, list, live []any) (changed bool) {
	var lost []int // elements that have another key now
	unowned := slices.Clone(live)
	for name, of := range fields {
		text, ok := strings.CutPrefix(name, "k:")
		if !ok {
			continue
		}
		same := func(element any) bool { return hasKeys(text, element) }
		at, is := slices.IndexFunc(list, same), slices.IndexFunc(live, same)
		unowned = slices.DeleteFunc(unowned, same)
		switch inner, _ := of.(map[string]any); {
		case at >= 0 && is >= 0:
			changed = rename(inner, list[at], live[is]) || changed
		case at >= 0:
			lost = append(lost, at)
		}
	}
	if len(lost) == 0 || len(lost) != len(unowned) {
		return changed
	}
	slices.Sort(lost)
	for i, at := range lost {
		list[at] = unowned[i]
	}
	return true
}
