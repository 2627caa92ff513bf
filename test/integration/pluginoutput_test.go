package integration

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/test/internal/terminal"
	"example.com/memcached-operator/test/wait"
)

// Programs read -o json and -o yaml, people a terminal with or without colours; get prints a value's bytes and nothing else.
func TestEachOutputOfThePlugin(t *testing.T) {
	w := newWorld(t)
	p := w.withPlugin()
	w.storageCluster(apitest.MakeMemcached(name), 2)
	w.scale(1)
	w.settled(1)
	member := w.real("cache-0")
	value := strings.Repeat("v\r\n\x00", 50)
	member.store("raw", value)

	formats := func(args ...string) any {
		t.Helper()
		var read [2]any
		for i, format := range []string{"json", "yaml"} {
			out, _ := p.says(0, "", append(slices.Clone(args), "-o", format)...)
			if isJSON := json.Valid([]byte(out)); isJSON != (format == "json") {
				t.Errorf("%v -o %s:\n%s", args, format, out)
			}
			if err := yaml.Unmarshal([]byte(out), &read[i]); err != nil {
				t.Errorf("%v -o %s: %v\n%s", args, format, err, out)
			}
		}
		if diff := cmp.Diff(read[0], read[1], cmp.FilterPath(func(path cmp.Path) bool {
			return slices.Contains([]string{`["age"]`, `["numbers"]`}, path.Last().String())
		}, cmp.Ignore())); diff != "" {
			t.Errorf("%v: -o json and -o yaml differ:\n%s", args, diff)
		}
		return read[1]
	}
	status := formats("status", name).(map[string]any)
	if members := status["members"].([]any); len(members) != 1 || members[0].(map[string]any)["name"] != "cache-0" || status["phase"] != "Running" {
		t.Errorf("status: %v", status)
	}
	if receipts := formats("receipts", name).([]any); len(receipts) != 1 || receipts[0].(map[string]any)["claim"] != claimName(1) {
		t.Errorf("receipts: %v", receipts)
	}
	if owners := formats("owner", name, "raw").([]any); owners[0].(map[string]any)["member"] != "cache-0" {
		t.Errorf("owner: %v", owners)
	}
	if plan := formats("plan", name, "--size=2").(map[string]any); !cmp.Equal(plan["join"], []any{"cache-1"}) {
		t.Errorf("plan: %v", plan)
	}
	if item := formats("get", name, "raw").(map[string]any); item["expires"] != -1.0 {
		t.Errorf("get: %v", item)
	}
	if out, said := p.says(0, "", "get", name, "raw"); out != value || said != "" {
		t.Errorf("get: %q, %q", out, said)
	}

	p.says(0, "", "pause", name)
	equal(w, "paused", w.memcached().Spec.Paused, true)
	w.condition(cachev1alpha1.ConditionProgressing, "False", cachev1alpha1.ReasonPaused)
	for value, coloured := range map[string]bool{"NO_COLOR=": true, "NO_COLOR=1": false} {
		if shown := p.screen(value, "status", name); strings.Contains(shown, "\x1b[3") != coloured || !strings.Contains(shown, "Paused") {
			t.Errorf("with %s: %q", value, shown)
		}
	}
	p.says(0, "", "resume", name)
	equal(w, "paused", w.memcached().Spec.Paused, false)
}

// While the API server doesn't answer, the last state stays on the screen, and a line says so. Then the watch goes on.
func TestAWatchOutlivesAnOutage(t *testing.T) {
	w := newNamespace(t)
	p := w.withPlugin()
	m := apitest.MakeMemcached(name).Size(3).Storage("128Mi").Obj()
	w.create(m)
	m.Status = cachev1alpha1.MemcachedStatus{Size: 3, ReadySize: 3, Phase: cachev1alpha1.PhaseRunning}
	ready := func(n int32) {
		t.Helper()
		if m.Status.ReadySize = n; admin.Status().Update(t.Context(), m) != nil {
			t.Fatal("the status can't be written")
		}
	}
	ready(3)
	proxy := w.record("")
	cmd := exec.CommandContext(wait.Context(t), p.path, "status", name, "--watch", "--interval=100ms", "--ask=false",
		"--namespace="+w.namespace, "--server="+proxy.address, "--kubeconfig="+os.DevNull)
	cmd.Env = append(os.Environ(), "TERM=xterm-256color", "NO_COLOR=1")
	watch := terminal.Start(t, cmd, 100, 30)
	watch.Shows("3 of 3 ready")
	proxy.down.Store(true)
	ready(2)
	watch.Shows("3 of 3 ready", "this is no longer new")
	proxy.down.Store(false)
	watch.Until("the newer state is shown, without the line", func(text string) bool {
		return strings.Contains(text, "2 of 3 ready") && !strings.Contains(text, "no longer new")
	})
	watch.Interrupt()
	watch.Ends(0)
}

// refuse ends the connection of a request, as a server that goes down does.
func refuse(w http.ResponseWriter) {
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		conn.Close()
	}
}
