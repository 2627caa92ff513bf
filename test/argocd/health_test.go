package argocd

import (
	"testing"

	"sigs.k8s.io/yaml"
)

func TestArgoCDSeesTheHealthOfACluster(t *testing.T) {
	const settled = "metadata: {generation: 3}\nstatus:\n  observedGeneration: 3\n  conditions:\n"
	for name, test := range map[string]struct{ object, status, message string }{
		"new":                 {"metadata: {generation: 1}\nspec: {size: 3}", "Progressing", "waiting for the operator"},
		"a later spec":        {"metadata: {generation: 4}\nstatus: {observedGeneration: 3, conditions: [{type: Ready, status: 'True', reason: AsWanted, message: m}]}", "Progressing", "waiting for the operator"},
		"ready":               {settled + "  - {type: Ready, status: 'True', reason: AsWanted, message: all is well}", "Healthy", "AsWanted: all is well"},
		"draining":            {settled + "  - {type: Ready, status: 'False', reason: Draining, message: one volume}\n  - {type: Degraded, status: 'False', reason: Healthy, message: m}", "Progressing", "Draining: one volume"},
		"degraded":            {settled + "  - {type: Ready, status: 'False', reason: CrashLoop, message: m}\n  - {type: Degraded, status: 'True', reason: CrashLoop, message: it crashes}", "Degraded", "CrashLoop: it crashes"},
		"paused":              {"spec: {paused: true}\n" + settled + "  - {type: Ready, status: 'False', reason: Paused, message: m}", "Suspended", "spec.paused is true"},
		"paused and degraded": {"spec: {paused: true}\n" + settled + "  - {type: Ready, status: 'False', reason: Paused, message: m}\n  - {type: Degraded, status: 'True', reason: CrashLoop, message: it crashes}", "Degraded", "CrashLoop: it crashes"},
		"paused a moment ago": {"spec: {paused: true}\nmetadata: {generation: 4}\nstatus: {observedGeneration: 3, conditions: [{type: Degraded, status: 'True', reason: CrashLoop, message: m}]}", "Suspended", "spec.paused is true"},
		"hibernated":          {settled + "  - {type: Ready, status: 'True', reason: Hibernated, message: size is 0}\n  - {type: Available, status: 'False', reason: Hibernated, message: m}", "Healthy", "Hibernated: size is 0"},
		"deleted":             {settled + "  - {type: Ready, status: 'False', reason: Deleting, message: it is being deleted}\n  - {type: Degraded, status: 'False', reason: Healthy, message: m}", "Progressing", "Deleting: it is being deleted"},
		"deleted, and stuck":  {settled + "  - {type: Ready, status: 'False', reason: Deleting, message: m}\n  - {type: Degraded, status: 'True', reason: KeptByFinalizer, message: a foreign finalizer}", "Degraded", "KeptByFinalizer: a foreign finalizer"},
		"without Ready":       {settled + "  - {type: Available, status: 'True', reason: Ready, message: m}", "Progressing", "waiting for the operator"},
	} {
		var object map[string]any
		if err := yaml.Unmarshal([]byte(test.object), &object); err != nil {
			t.Fatal(err)
		}
		status, message, err := Health(object)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if status != test.status || message != test.message {
			t.Errorf("%s: %s, %q; want %s, %q", name, status, message, test.status, test.message)
		}
	}
}
