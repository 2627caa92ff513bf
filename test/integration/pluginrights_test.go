package integration

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// recording is a proxy between the plugin and the API server: its clients are a user with the documented
// rights.
type recording struct {
	address string
	mu      sync.Mutex
	// used has the requests as verb resource.group, refused those that the API server forbade.
	used, refused map[string]bool
	// log, if not nil, answers for the kubelets, which the control plane doesn't have.
	log func(w http.ResponseWriter, r *http.Request)
	// down: it answers no request.
	down atomic.Bool
}

// record starts a proxy for the user; for an administrator if user is empty.
func (w *world) record(user string) *recording {
	w.Helper()
	config := rest.CopyConfig(plane.Config)
	config.Impersonate, config.NextProtos = rest.ImpersonationConfig{UserName: user}, []string{"http/1.1"} // for upgrades
	transport, err := rest.TransportFor(config)
	if err != nil {
		w.Fatal(err)
	}
	to, err := url.Parse(config.Host)
	if err != nil {
		w.Fatal(err)
	}
	p := &recording{used: map[string]bool{}, refused: map[string]bool{}}
	proxy := &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) },
		ModifyResponse: func(answer *http.Response) error {
			p.note(answer.Request, answer.StatusCode == http.StatusForbidden)
			return nil
		},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.down.Load() {
			refuse(w)
			return
		}
		p.mu.Lock()
		log := p.log
		p.mu.Unlock()
		if log != nil && strings.HasSuffix(r.URL.Path, "/log") {
			log(w, r)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	w.Cleanup(server.Close)
	p.address = server.URL
	return p
}

// note notes a request, as RBAC sees it.
func (p *recording) note(r *http.Request, refused bool) {
	words := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	group := ""
	switch {
	case words[0] == "api" && len(words) > 2:
		words = words[2:]
	case words[0] == "apis" && len(words) > 3:
		group, words = "."+words[1], words[3:]
	default:
		return // discovery
	}
	if words[0] == "namespaces" && len(words) > 2 {
		words = words[2:]
	}
	resource := words[0]
	if len(words) > 2 {
		resource += "/" + words[2]
	}
	verb := map[string]string{http.MethodGet: "get", http.MethodPost: "create", http.MethodPatch: "patch", http.MethodPut: "update", http.MethodDelete: "delete"}[r.Method]
	if verb == "get" && len(words) == 1 {
		verb = "list"
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used[verb+" "+resource+group] = true
	if refused {
		p.refused[verb+" "+resource+group+" "+r.URL.Path] = true
	}
}

// documentedRules are those of the Role that docs/kubectl-mc.md names.
func documentedRules(t *testing.T) []rbacv1.PolicyRule {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "config", "samples", "admin_plugin_role.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	role := &rbacv1.Role{}
	if err := yaml.UnmarshalStrict(text, role); err != nil || len(role.Rules) == 0 {
		t.Fatalf("no Role: %v", err)
	}
	return role.Rules
}

// A person with the rights of docs/kubectl-mc.md can use each command, and each of these rights is used.
func TestTheDocumentedRightsAreEnough(t *testing.T) {
	const user = "pat"
	w := newWorld(t)
	p := w.withPlugin()
	w.create(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: documentedRules(t)})
	w.create(&rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	})
	w.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "cache-auth"}, StringData: map[string]string{"auth-file": "user:password\n"}})
	m := apitest.MakeMemcached(name).Size(2).Storage("128Mi").Obj()
	m.Spec.Auth = &cachev1alpha1.AuthSpec{SecretName: "cache-auth"}
	w.create(m)
	w.create(apitest.MakeMemcached("sessions").Size(2).InPods().Obj())
	w.settled(2)
	w.leavingPod("sessions")

	proxy := w.record(user)
	command := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(wait.Context(t), p.path, append(args, "--namespace="+w.namespace, "--server="+proxy.address, "--kubeconfig="+os.DevNull)...)
		cmd.Dir = t.TempDir()
		return cmd
	}
	run := func(args ...string) string {
		t.Helper()
		out, _ := command(args...).CombinedOutput() // without a kubelet, some fail
		if strings.Contains(string(out), "forbidden") {
			t.Errorf("kubectl mc %v: %s", args, out)
		}
		return string(out)
	}
	for _, args := range [][]string{
		{"status"}, {"status", name}, {"owner", name, "key"}, {"get", name, "key"}, {"touch", name, "key", "10"}, {"delete", name, "key", "--yes"},
		{"receipts", name}, {"receipts", "stsdrain/none"}, {"pause", name}, {"resume", name}, {"hold", claimName(1)}, {"retry", claimName(1)}, {"skip", claimName(1), "--yes"}, {"release", claimName(1), "--yes"}, {"retry", "sessions-1"},
		{"logs", name}, {"support-bundle", name}, {"plan", name, "--size=3"}, {"__complete", "status", ""}, {"__complete", "hold", ""},
		{"plan", name, "--size=1", "--apply", "--yes"},
	} {
		run(args...)
	}
	if size := *w.memcached().Spec.Size; size != 1 {
		t.Errorf("the size after plan --apply is %d", size)
	}

	proxy.mu.Lock()
	for request := range proxy.refused {
		if strings.Contains(request, "/namespaces/"+w.namespace+"/") {
			t.Errorf("it is forbidden to %s", request)
		}
	}
	for _, rule := range documentedRules(t) {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					if right := strings.TrimSuffix(verb+" "+resource+"."+group, "."); !proxy.used[right] {
						t.Errorf("the right to %s is not used; these are: %q", right, slices.Sorted(maps.Keys(proxy.used)))
					}
				}
			}
		}
	}
	proxy.log = func(w http.ResponseWriter, r *http.Request) {
		stamp := time.Now().UTC().Format(time.RFC3339Nano)
		if r.URL.Query().Get("timestamps") != "true" {
			stamp = ""
		}
		fmt.Fprintln(w, strings.TrimSpace(stamp+" drainer: saving: 64 of 128 MiB, at 16 MiB/s"))
		if r.URL.Query().Get("follow") == "true" {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
	}
	proxy.mu.Unlock()
	if out := run("status", name); !strings.Contains(out, "cache-0  Saving     ██████░░░░░░  50%  64 of 128 MiB  16 MiB/s  4s left") {
		t.Errorf("status without the bar of a save:\n%s", out)
	}
	follow := command("logs", name, "--follow", "--since=0s")
	out, err := follow.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	follow.Stderr = &said
	if err := follow.Start(); err != nil {
		t.Fatal(err)
	}
	var shown strings.Builder
	for read := make([]byte, 4096); strings.Count(shown.String(), "cache-0/memcached drainer: saving") < 1; {
		n, err := out.Read(read)
		if shown.Write(read[:n]); err != nil {
			t.Fatalf("logs -f ended: %v\n%s%s", err, &shown, &said)
		}
	}
	_ = follow.Process.Signal(os.Interrupt)
	_, _ = io.Copy(io.Discard, out)
	if err := follow.Wait(); err != nil {
		t.Errorf("logs -f, interrupted: %v\n%s", err, &said)
	}
}

// The list of servers and the image are not among the columns; the longest values that are realistic fit.
func TestWideColumnsFit(t *testing.T) {
	w := newNamespace(t)
	m := apitest.MakeMemcached("session-cache-production-eu-1").Size(64).Storage("1Gi").Obj()
	m.Spec.Routing.Client = "libmemcached-ketama-weighted"
	m.Spec.Image = "registry.example.com/platform/memcached:1.6.45-alpine3.23"
	w.create(m)
	m.Status = cachev1alpha1.MemcachedStatus{
		Size: 64, ReadySize: 64, Phase: cachev1alpha1.PhaseHibernated, Moving: 64, Progress: "99% (123456789/123456789 items, 12h34m56s left)",
		Servers: slices.Repeat([]string{"session-cache-production-eu-1-63.session-cache-production-eu-1.production.svc.cluster.local:11211"}, 64),
	}
	if err := admin.Status().Update(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	cmd, err := plane.Kubectl(wait.Context(t), t.TempDir(), "get", "mc", "-o", "wide", "--namespace="+w.namespace)
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.Output()
	if err != nil || !strings.Contains(string(out), "12h34m56s left") {
		t.Fatalf("%v: %s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if n := len(strings.TrimRight(line, " \n")); n > 160 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

// How each shell completes the line that it is given, by kubectl's own script.
var tabs = map[string]string{
	// bash-completion's function, which the script needs, is one of the test.
	"bash": `
_get_comp_words_by_ref() { words=("${COMP_WORDS[@]}"); cword=$COMP_CWORD; cur=${words[cword]}; prev=${words[cword-1]}; }
source <(kubectl completion bash)
COMP_WORDS=($1) COMP_CWORD=$((${#COMP_WORDS[@]}-1)) COMP_LINE=$1 COMP_TYPE=9 COMP_POINT=${#COMP_LINE}
__start_kubectl
printf '%s\n' "${COMPREPLY[@]}"
`,
	// zsh completes in a terminal alone, of which zpty is one.
	"zsh": `
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell 'PS1=; autoload -Uz compinit; compinit -D -u; source <(kubectl completion zsh); echo re''ady'
zpty -r -m shell ready '*ready*'
zpty -w -n shell $1$'\t'
zpty -r -m shell shown "*$2*"
print -r -- $shown
`,
	"fish": `
kubectl completion fish | source
complete --do-complete=$argv[1]
`,
}

// Tab completes commands and names in real shells.
func TestTabCompletes(t *testing.T) {
	w := newNamespace(t)
	p := w.withPlugin()
	w.create(apitest.MakeMemcached("orders").Size(1).Storage("128Mi").Obj())
	bin := t.TempDir()
	kubectl := p.kubectl("version").Path
	for file, text := range map[string]string{ // the Makefile installs the second one
		"kubectl":             fmt.Sprintf("#!/bin/sh\nKUBECONFIG=%s exec %s \"$@\"\n", filepath.Join(p.dir, "kubeconfig"), kubectl),
		"kubectl_complete-mc": "#!/bin/sh\nexec kubectl mc __complete \"$@\"\n",
		// Flags come before the completed word.
		"kubectl-mc": fmt.Sprintf("#!/bin/sh\ncommand=$1; shift; exec %s \"$command\" --namespace=%s \"$@\"\n", p.path, w.namespace),
	} {
		if err := os.WriteFile(filepath.Join(bin, file), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, tab := range tabs {
		t.Run(name, func(t *testing.T) {
			shell, err := exec.LookPath(name)
			tier.Needs(t, name, err)
			script, err := p.kubectl("completion", name).Output()
			if err != nil {
				t.Fatal(err)
			}
			parse := exec.CommandContext(wait.Context(t), shell, "-n", "/dev/stdin")
			parse.Stdin = bytes.NewReader(script)
			if out, err := parse.CombinedOutput(); err != nil {
				t.Errorf("it doesn't parse its script: %v: %s", err, out)
			}
			for line, want := range map[string]string{"kubectl mc stat": "status", "kubectl mc status or": "orders", "kubectl mc plan orders --client pymem": "pymemcache"} {
				args := []string{"-c", tab, name, line, want}
				if name == "fish" {
					args = []string{"-c", tab, line}
				}
				cmd := exec.CommandContext(wait.Context(t), shell, args...)
				cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "HOME="+p.dir)
				out, err := cmd.CombinedOutput()
				if err != nil || !strings.Contains(string(out), want) {
					t.Errorf("%q and Tab: %v: %s, want %s", line, err, out, want)
				}
			}
		})
	}
}
