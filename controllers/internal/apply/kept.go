package apply

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	appsac "k8s.io/client-go/applyconfigurations/apps/v1"
	"k8s.io/utils/ptr"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/claims/write"
	"example.com/memcached-operator/controllers/internal/identity"
)

// If the API server denies the wanted StatefulSet or Deployment, for example because of a label, only the
// size is set, and everything else stays as we have applied it last.

// statefulSetSize sets the size alone, after the write that was denied, and returns why it was denied.
func (r *run) statefulSetSize(ctx context.Context, a action.ApplyStatefulSet, denied error) error {
	present := r.present.StatefulSet
	if present == nil || !read.Denied(denied) || ptr.Deref(present.Spec.Replicas, 1) == a.Replicas {
		return denied
	}
	applied := lastApplied[appsac.StatefulSetApplyConfiguration](present)
	if applied == nil || applied.Spec == nil {
		return denied
	}
	build.KeepClaimTemplates(applied, present)
	applied.Spec.WithReplicas(a.Replicas)
	stale, err := r.maySetReplicas(ctx, a.Replicas)
	if err == nil && !stale {
		r.view = nil
		err = applyLocked(ctx, r, present, applied)
		r.done.MembersWritten = r.done.MembersWritten || err == nil
	}
	return write.Worse(denied, err)
}

// deploymentSize is statefulSetSize for a Deployment, and tells whether the size was written.
func (r *run) deploymentSize(ctx context.Context, present *appsv1.Deployment, replicas int32, denied error) (written bool, err error) {
	if present == nil || !read.Denied(denied) || ptr.Deref(present.Spec.Replicas, 1) == replicas {
		return false, denied
	}
	applied := lastApplied[appsac.DeploymentApplyConfiguration](present)
	if applied == nil || applied.Spec == nil {
		return false, denied
	}
	applied.Spec.WithReplicas(replicas)
	err = applyLocked(ctx, r, present, applied)
	return err == nil, write.Worse(denied, err)
}

// applyLocked applies the configuration to exactly this version of the object.
func applyLocked[AC interface {
	*T
	configuration[T]
}, T any](ctx context.Context, r *run, live metav1.Object, desired AC) error {
	if err := r.mayOwn(ctx); err != nil {
		return err
	}
	err := r.apply(ctx, AC(desired.WithResourceVersion(live.GetResourceVersion())))
	if apierrors.IsConflict(err) {
		return read.Refuse("%s %s has changed: the cache is stale", identity.KindOf(live), live.GetName())
	}
	return err
}

// lastApplied is the part of a StatefulSet or a Deployment that we have applied, as it is now; nil if that is
// not known. List elements whose keys admission has changed count, under their present keys (see renamed).
// The generated functions (appsac.ExtractDeployment) leave such elements out, and we would then no longer own
// them.
func lastApplied[T any](live metav1.Object) *T {
	fields, object := appliedFields(live), asMap(live)
	part, is := pick(fields, object).(map[string]any)
	if fields == nil || !is {
		return nil
	}
	meta, _ := part["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
		part["metadata"] = meta
	}
	meta["name"], meta["namespace"] = live.GetName(), live.GetNamespace()
	part["apiVersion"], part["kind"] = appsv1.SchemeGroupVersion.String(), identity.KindOf(live)
	out := new(T)
	if b, err := json.Marshal(part); err != nil || json.Unmarshal(b, out) != nil {
		return nil
	}
	return out
}

// pick is the part of the live value that the managed fields name.
func pick(fields map[string]any, live any) any {
	if len(fields) == 0 {
		return live // owned as a whole
	}
	switch live := live.(type) {
	case map[string]any:
		part := map[string]any{}
		for name, of := range fields {
			key, is := strings.CutPrefix(name, "f:")
			value, there := live[key]
			if inner, _ := of.(map[string]any); is && there {
				part[key] = pick(inner, value)
			}
		}
		return part
	case []any:
		return pickElements(fields, live)
	}
	return live
}

func pickElements(fields map[string]any, live []any) []any {
	of := make([]map[string]any, len(live)) // the fields of each element that is ours
	unowned, lost := []int(nil), []map[string]any(nil)
	for i, element := range live {
		if inner, is := elementOf(fields, element); is {
			of[i] = inner
		} else {
			unowned = append(unowned, i)
		}
	}
	for name, inner := range fields {
		text, keyed := strings.CutPrefix(name, "k:")
		if keyed && !slices.ContainsFunc(live, func(element any) bool { return hasKeys(text, element) }) {
			inner, _ := inner.(map[string]any)
			lost = append(lost, inner)
		}
	}
	if len(lost) == len(unowned) {
		for i, at := range unowned {
			of[at] = lost[i]
		}
	}
	part := []any{}
	for i, element := range live {
		if of[i] != nil {
			part = append(part, pick(of[i], element))
		}
	}
	return part
}
