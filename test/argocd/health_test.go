// Package argocd runs the health script of Argo CD as Argo CD does: by gopher-lua, with the object as obj.
package argocd

import (
	"os"
	"testing"

	lua "github.com/yuin/gopher-lua"
	"sigs.k8s.io/yaml"
)

// table makes a Lua value of one that was read from JSON.
func table(l *lua.LState, value any) lua.LValue {
	switch value := value.(type) {
	case map[string]any:
		t := l.NewTable()
		for k, v := range value {
			t.RawSetString(k, table(l, v))
		}
		return t
	case []any:
		t := l.NewTable()
		for _, v := range value {
			t.Append(table(l, v))
		}
		return t
	case string:
		return lua.LString(value)
	case bool:
		return lua.LBool(value)
	case float64:
		return lua.LNumber(value)
	}
	return lua.LNil
}

func health(t *testing.T, object string) (status, message string) {
	t.Helper()
	script, err := os.ReadFile("../../config/argocd/health.lua")
	if err != nil {
		t.Fatal(err)
	}
	var value map[string]any
	if err := yaml.Unmarshal([]byte(object), &value); err != nil {
		t.Fatal(err)
	}
	l := lua.NewState()
	defer l.Close()
	l.SetGlobal("obj", table(l, value))
	if err := l.DoString(string(script)); err != nil {
		t.Fatal(err)
	}
	result, ok := l.Get(-1).(*lua.LTable)
	if !ok {
		t.Fatalf("it returns %v", l.Get(-1))
	}
	return result.RawGetString("status").String(), result.RawGetString("message").String()
}

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
		if status, message := health(t, test.object); status != test.status || message != test.message {
			t.Errorf("%s: %s, %q; want %s, %q", name, status, message, test.status, test.message)
		}
	}
}
