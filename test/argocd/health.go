// Package argocd runs the health script of Argo CD as Argo CD does: by gopher-lua, with the object as obj.
package argocd

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// script is compiled once: tests hold it against every status that they see.
var script = sync.OnceValues(func() (*lua.FunctionProto, error) {
	path := filepath.Join("config", "argocd", "health.lua")
	for range 8 { // from the folder of whichever test
		if _, err := os.Stat(path); err == nil {
			break
		}
		path = filepath.Join("..", path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	chunk, err := parse.Parse(strings.NewReader(string(text)), path)
	if err != nil {
		return nil, err
	}
	return lua.Compile(chunk, path)
})

// Health returns the health of an object in Argo CD.
func Health(object any) (status, message string, err error) {
	text, err := json.Marshal(object)
	if err != nil {
		return "", "", err
	}
	var value map[string]any
	if err := json.Unmarshal(text, &value); err != nil {
		return "", "", err
	}
	compiled, err := script()
	if err != nil {
		return "", "", err
	}
	l := lua.NewState()
	defer l.Close()
	l.SetGlobal("obj", table(l, value))
	l.Push(l.NewFunctionFromProto(compiled))
	if err := l.PCall(0, 1, nil); err != nil {
		return "", "", err
	}
	result, ok := l.Get(-1).(*lua.LTable)
	if !ok {
		return "", "", fmt.Errorf("the script returns %v", l.Get(-1))
	}
	return result.RawGetString("status").String(), result.RawGetString("message").String(), nil
}

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

// Check compares the health of a Memcached or a StatefulSetDrain in Argo CD, with any status, with its
// conditions. Objects of other types are fine.
func Check(object any) error {
	var generation, observed int64
	var conditions []metav1.Condition
	paused := false
	switch o := object.(type) {
	case *cachev1alpha1.Memcached:
		generation, observed, conditions, paused = o.Generation, o.Status.ObservedGeneration, o.Status.Conditions, o.Spec.Paused
	case *cachev1alpha1.StatefulSetDrain:
		generation, observed, conditions = o.Generation, o.Status.ObservedGeneration, o.Status.Conditions
	default:
		return nil
	}
	want, words := "Progressing", "waiting for the operator"
	if paused {
		want, words = "Suspended", "spec.paused is true"
	}
	said := map[string]metav1.Condition{}
	if observed == generation {
		for _, c := range conditions {
			said[c.Type] = c
		}
	}
	ready, has := said[cachev1alpha1.ConditionReady]
	degraded := said[cachev1alpha1.ConditionDegraded]
	switch {
	case degraded.Status == metav1.ConditionTrue:
		want, words = "Degraded", degraded.Reason+": "+degraded.Message
	case paused || !has:
	case ready.Status == metav1.ConditionTrue:
		want, words = "Healthy", ready.Reason+": "+ready.Message
	default:
		words = ready.Reason + ": " + ready.Message
	}
	status, message, err := Health(object)
	if err == nil && (status != want || message != words) {
		err = fmt.Errorf("health.lua says %s, %q; want %s, %q", status, message, want, words)
	}
	return err
}
