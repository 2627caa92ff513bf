package cli

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// oneShot are managers that write a field once, at a person's command.
var oneShot = []string{"kubectl", "kubectl-create", "kubectl-edit", "kubectl-patch", "kubectl-replace", "kubectl-mc"}

// otherManagers returns warnings that name the other managers of the fields that a merge patch changes: these
// managers may set the fields back.
func otherManagers(managed []metav1.ManagedFieldsEntry, patch []byte) (warnings []string, err error) {
	var changes map[string]any
	if err := json.Unmarshal(patch, &changes); err != nil {
		return nil, err
	}
	for _, entry := range managed {
		var fields map[string]any
		if entry.Manager == cachev1alpha1.ManagedBy || entry.Subresource == "status" || entry.FieldsV1 == nil || entry.Operation == metav1.ManagedFieldsOperationUpdate && slices.Contains(oneShot, entry.Manager) {
			continue
		}
		if err := json.Unmarshal([]byte(entry.FieldsV1.GetRawString()), &fields); err != nil {
			return nil, fmt.Errorf("the fields of %s: %w", entry.Manager, err)
		}
		if has := common(changes, fields, ""); len(has) > 0 {
			warnings = append(warnings, fmt.Sprintf("%s also manages %s, and may set it back: change it there, too", entry.Manager, strings.Join(has, ", ")))
		}
	}
	return warnings, nil
}

// common returns the fields that a patch changes and a manager has.
func common(changes, fields map[string]any, path string) (has []string) {
	for name, change := range changes {
		field, is := fields["f:"+name].(map[string]any)
		if !is {
			continue
		}
		at := strings.TrimPrefix(path+"."+name, ".")
		deeper, isMap := change.(map[string]any)
		if isMap && len(field) > 0 {
			has = append(has, common(deeper, field, at)...)
			continue
		}
		has = append(has, at)
	}
	slices.Sort(has)
	return has
}
