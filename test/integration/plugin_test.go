package integration

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/test/internal/player"
	"example.com/memcached-operator/test/internal/terminal"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// plugin is a person with kubectl mc.
type plugin struct {
	*world
	path, dir string
}

// withPlugin needs the program that make test-integration builds; KUBECTL_MC names another one.
func (w *world) withPlugin() *plugin {
	w.Helper()
	path, err := filepath.Abs(cmp.Or(os.Getenv("KUBECTL_MC"), filepath.Join("..", "..", "bin", "kubectl-mc")))
	if err == nil {
		_, err = os.Stat(path)
	}
	tier.Needs(w, "the plugin kubectl-mc", err)
	return &plugin{world: w, path: path, dir: w.TempDir()}
}

// command is kubectl mc, which kubectl finds in PATH.
func (p *plugin) command(args ...string) *exec.Cmd {
	p.Helper()
	cmd := p.kubectl()
	cmd.Args = slices.Concat([]string{cmd.Path, "mc"}, args, []string{"--namespace=" + p.namespace}) // kubectl looks for plugins before its own flags
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(p.dir, "kubeconfig"), "PATH="+filepath.Dir(p.path))
	return cmd
}

// kubectl is kubectl itself.
func (p *plugin) kubectl(args ...string) *exec.Cmd {
	p.Helper()
	cmd, err := plane.Kubectl(wait.Context(p), p.dir, append(args, "--namespace="+p.namespace)...)
	if err != nil {
		p.Fatal(err)
	}
	return cmd
}

// says runs the command with an answer to its question, and returns what it printed. The exit code has to be
// code.
func (p *plugin) says(code int, answer string, args ...string) (out, errOut string) {
	p.Helper()
	cmd := p.command(args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(answer), &stdout, &stderr
	err := cmd.Run()
	if ended := (*exec.ExitError)(nil); err != nil && !errors.As(err, &ended) {
		p.Fatal(err)
	}
	if got := cmd.ProcessState.ExitCode(); got != code {
		p.Fatalf("kubectl mc %v ended with %d, want %d\n%s%s", args, got, code, &stdout, &stderr)
	}
	return stdout.String(), stderr.String()
}

// screen runs the command in a terminal of 100 columns, with a variable more, and returns the terminal's
// text.
func (p *plugin) screen(variable string, args ...string) string {
	p.Helper()
	master, slave, err := terminal.Open(100, 40)
	if err != nil {
		p.Fatalf("open a terminal: %v", err)
	}
	defer master.Close()
	cmd := p.command(args...)
	cmd.Env = append(cmd.Env, "TERM=xterm-256color", variable)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	if err := cmd.Start(); err != nil {
		p.Fatal(err)
	}
	slave.Close()
	var shown bytes.Buffer
	_, _ = io.Copy(&shown, master) // ends by EIO, when the last process has closed its side
	if err := cmd.Wait(); err != nil {
		p.Fatalf("kubectl mc %v: %v\n%s", args, err, &shown)
	}
	return strings.ReplaceAll(shown.String(), "\r\n", "\n")
}

// watches runs the command in a terminal until that shows all of this, and interrupts it.
func (p *plugin) watches(wanted []string, args ...string) {
	p.Helper()
	master, slave, err := terminal.Open(100, 40)
	if err != nil {
		p.Fatalf("open a terminal: %v", err)
	}
	defer master.Close()
	cmd := p.command(args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	if err := cmd.Start(); err != nil {
		p.Fatal(err)
	}
	slave.Close()
	var shown strings.Builder
	lacks := func() bool {
		return slices.ContainsFunc(wanted, func(part string) bool { return !strings.Contains(shown.String(), part) })
	}
	read := make([]byte, 4096)
	for lacks() {
		n, err := master.Read(read)
		if shown.Write(read[:n]); err != nil {
			p.Fatalf("kubectl mc %v ended before it showed %q: %v\n%s", args, wanted, err, &shown)
		}
	}
	_ = cmd.Process.Signal(os.Interrupt)
	_, _ = io.Copy(io.Discard, master)
	if err := cmd.Wait(); err != nil {
		p.Errorf("kubectl mc %v, interrupted: %v", args, err)
	}
}

// same replaces the parts that differ from run to run.
func (p *plugin) same(text string) string {
	for _, differs := range []struct{ pattern, with string }{
		{`10\.\d+\.\d+\.\d+`, "ADDRESS"}, {`( |for )\d+(ms|[smh])\b`, "${1}T"}, {p.namespace, "NAMESPACE"},
		{`\x1b\[2mbars may be missing: .*(\n[^\n]+)*\n`, ""}, {`numbers are missing: .*(\n[^\n]+)*`, "numbers are missing"}, {`(\S) {2,}`, "$1  "},
	} {
		text = regexp.MustCompile(differs.pattern).ReplaceAllString(text, differs.with)
	}
	return text
}

// heldScreen is the screen while a drain is held, without the parts that differ from run to run. No member
// can be asked: there is no kubelet.
const heldScreen = "NAMESPACE/cache  \x1b[31mDegraded\x1b[0m  2 of 2 ready\n" +
	"ring  libmemcached-ketama-weighted, 2 servers, stable\n" +
	"\n" +
	"MEMBER  STATE  ITEMS  MEMORY  HITS  EVICTED  CONNS  AGE  NODE  ADDRESS\n" +
	"cache-0  ready  -  -  -  -  -  T  node-a  ADDRESS\n" +
	"cache-1  ready  -  -  -  -  -  T  node-a  ADDRESS\n" +
	"\x1b[2mnumbers are missing\n" +
	"\n" +
	"data-cache-2  Held\n" +
	"\n" +
	"\x1b[1mclaim data-cache-2\x1b[0m  Held  for T\n" +
	"  remove the annotation cache.example.com/drain=hold to start the drain\n" +
	"  try: kubectl mc retry data-cache-2\n"

// The plugin's screen is compared as a terminal shows it, and the operator obeys the plugin's words.
func TestAPersonSeesAndSteersADrainByThePlugin(t *testing.T) {
	w := newWorld(t)
	p := w.withPlugin()
	w.storageCluster(apitest.MakeMemcached(name), 3)
	p.says(0, "", "hold", claimName(2))
	w.scale(2)
	w.eventually("the drain is held", func() error { return w.drainIs(2, cachev1alpha1.DrainHeld, cachev1alpha1.ReasonHeld) })

	w.whenRecorded("two members", func(m *cachev1alpha1.Memcached) error {
		if s := m.Status; s.Size != 2 || s.ReadySize != 2 || meta.IsStatusConditionTrue(s.Conditions, cachev1alpha1.ConditionProgressing) {
			return errors.New(asJSON(s))
		}
		return nil
	})

	shown := p.screen("NO_COLOR=", "status", name)
	equal(w, "the screen", p.same(shown), heldScreen)
	for _, line := range strings.Split(shown, "\n") {
		if n := len([]rune(regexp.MustCompile("\x1b\\[[0-9]*m").ReplaceAllString(line, ""))); n > 100 {
			t.Errorf("a line has %d columns: %q", n, line)
		}
	}
	plain, _ := p.says(0, "", "status", name)
	if strings.Contains(plain, "\x1b") {
		t.Errorf("there are colours where no terminal is:\n%q", plain)
	}
	var status struct {
		Phase   cachev1alpha1.Phase
		Members []struct{ Name, State string }
		Waits   []struct{ What, Reason, Command string }
	}
	out, _ := p.says(0, "", "status", name, "--output=json", "--ask=false")
	if err := json.Unmarshal([]byte(out), &status); err != nil {
		t.Fatalf("status -o json: %v\n%s", err, out)
	}
	equal(w, "members in status -o json", len(status.Members), 2)

	wide, err := p.kubectl("get", "mc", "-o", "wide").Output()
	if line, _, _ := strings.Cut(string(wide), "\n"); err != nil || len(line) > 160 || strings.Contains(line, "SERVERS") {
		t.Errorf("kubectl get mc -o wide: %v\n%s", err, wide)
	}

	_, said := p.says(5, "no\n", "skip", claimName(2))
	if !strings.Contains(said, "gives up") {
		t.Errorf("the question is: %s", said)
	}
	equal(w, "the claim's word after a no", w.claim(2).Annotations[cachev1alpha1.AnnotationDrain], cachev1alpha1.DrainHold)
	_, said = p.says(1, "", "release", claimName(2))
	if !strings.Contains(said, "belongs to Memcached cache") {
		t.Errorf("release of an owned claim says: %s", said)
	}

	kubes.Play(w.namespace, player.Succeed(77))
	claim := w.claim(2)
	p.says(0, "", "retry", claimName(2))
	w.claimGone(2, claim.UID)
	w.settled(2)
	out, _ = p.says(0, "", "receipts", name)
	if !strings.Contains(out, "data-cache-2") || !strings.Contains(out, "77") {
		t.Errorf("receipts shows:\n%s", out)
	}
}

func TestThePluginPausesAndSkips(t *testing.T) {
	tier.Second(t, "TestAPersonSeesAndSteersADrainByThePlugin")
	w := newWorld(t)
	p := w.withPlugin()
	kubes.Play(w.namespace, player.Hang)
	w.storageCluster(apitest.MakeMemcached(name), 3)
	p.says(0, "", "pause", name)
	equal(w, "paused", w.memcached().Spec.Paused, true)
	p.says(0, "", "resume", name)
	equal(w, "paused", w.memcached().Spec.Paused, false)
	_, said := p.says(1, "", "skip", claimName(1), "--yes")
	if !strings.Contains(said, "nothing to skip") {
		t.Errorf("skip of a member that stays says: %s", said)
	}
	claim := w.claim(2)
	p.says(0, "", "hold", claimName(2))
	w.scale(2)
	w.eventually("the drain is held", func() error { return w.drainIs(2, cachev1alpha1.DrainHeld, cachev1alpha1.ReasonHeld) })
	const home = "\x1b[H" // each screen begins there
	p.watches([]string{"data-cache-2  Held", "2 of 2 ready", home}, "status", name, "--watch", "--interval=200ms", "--ask=false")
	p.says(0, "yes\n", "skip", claimName(2))
	w.claimGone(2, claim.UID)
	w.settled(2)
	equal(w, "result", w.memcached().Status.LastDrains[0].Result, "Skipped")
}

// Without volumes, a person's words are about pods: the plugin tells a word's cost, and items go after a yes
// alone.
func TestAPersonSteersAMemberWithoutAVolumeByThePlugin(t *testing.T) {
	tier.Second(t, "TestAPersonSeesAndSteersADrainByThePlugin")
	w := newWorld(t)
	p := w.withPlugin()
	w.inPods(patient(), 3)
	for _, verb := range []string{"retry", "skip"} {
		if _, said := p.says(1, "", verb, "cache-2", "--yes"); !strings.Contains(said, "nothing to "+verb+": the member of pod cache-2 stays") {
			t.Errorf("%s of a member that stays says: %s", verb, said)
		}
	}
	f := p.plan(0, "--size=2")
	equal(w, "who leaves, and what goes with it", [][]string{f.Leave, f.Uncounted}, [][]string{{"cache-2"}, nil})
	for flag, want := range map[string][]string{"--size=0": {"cache-0", "cache-1", "cache-2"}, "--memory=96Mi": {"cache-0", "cache-1", "cache-2"}} {
		f = p.plan(3, flag)
		slices.Sort(f.Uncounted)
		equal(w, "members that go with their items by "+flag, f.Uncounted, want)
		if f.Warm || f.Hibernates {
			t.Errorf("%s keeps items: %s", flag, asJSON(f))
		}
	}

	kubes.Play(w.namespace, ofLeaving(player.Fail(contract.ExitUsage, "BadArguments", "no such flag")))
	w.scale(2)
	w.eventually("a mover has failed", func() error { return w.drainIs(2, cachev1alpha1.DrainLeaving, cachev1alpha1.ReasonJobFailed) })
	shown, _ := p.says(0, "", "status", name)
	for _, part := range []string{"cache-2  leaving", "pod cache-2  JobFailed", "try: kubectl mc retry cache-2"} {
		if !strings.Contains(p.same(shown), part) {
			t.Errorf("the screen lacks %q:\n%s", part, shown)
		}
	}
	for _, said := range []struct{ verb, says string }{{"hold", "has no volume"}, {"release", "has no finalizer"}} {
		if _, errOut := p.says(1, "", said.verb, "cache-2"); !strings.Contains(errOut, "pod cache-2 "+said.says) {
			t.Errorf("%s says: %s", said.verb, errOut)
		}
	}
	if _, said := p.says(5, "no\n", "skip", "cache-2"); !strings.Contains(said, "gives up all items of pod cache-2 for good") {
		t.Errorf("the question is: %s", said)
	}
	equal(w, "the pod's word after a no", w.pod("cache-2").Annotations[cachev1alpha1.AnnotationDrain], "")
	kubes.Play(w.namespace, ofLeaving(player.Succeed(7)))
	p.says(0, "", "retry", "cache-2")
	w.settled(2)

	kubes.Play(w.namespace, ofLeaving(player.Hang))
	w.scale(1)
	w.leaves(1)
	p.says(0, "yes\n", "skip", "cache-1")
	w.settled(1)
	equal(w, "the pod is gone", w.pod("cache-1") == nil, true)
	if out, _ := p.says(0, "", "receipts", name); !regexp.MustCompile(`cache-1 +Skipped +0 +unknown`).MatchString(out) || !regexp.MustCompile(`cache-2 +Moved +7 +-`).MatchString(out) {
		t.Errorf("receipts shows:\n%s", out)
	}
	tab := p.command("__complete", "skip")
	tab.Args = append(tab.Args, "") // what is completed comes last
	if out, err := tab.Output(); err != nil || !strings.Contains(string(out), "cache-0\n") {
		t.Errorf("Tab gives %s: %v", out, err)
	}
}

// No Secret, no value of a variable and no argument of a person's container leaves the cluster in an archive for support.
func TestTheArchiveForSupportHasNoSecretOfTheCluster(t *testing.T) {
	tier.Second(t, "TestAnArchiveHasNoValueNoKeyAndNoSecret")
	const mark = "MARKED-PASSWORD"
	w := newWorld(t)
	p := w.withPlugin()
	m := apitest.MakeMemcached(name).Size(2).Storage("128Mi").Obj()
	m.Annotations = map[string]string{"example.com/note": mark}
	m.Spec.PodTemplate.Env = []corev1.EnvVar{{Name: "PASSWORD", Value: mark}}
	m.Spec.Auth = &cachev1alpha1.AuthSpec{SecretName: "cache-auth"}
	w.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "cache-auth"}, StringData: map[string]string{"auth-file": "user:" + mark + "\n"}})
	w.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "cache-of-an-application"}, Data: map[string]string{"password": mark}})
	w.create(m)
	w.settled(2)

	file := filepath.Join(t.TempDir(), "cache.tar")
	out, said := p.says(0, "", "support-bundle", name, "--file="+file)
	archive, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v: %s%s", err, out, said)
	}
	if bytes.Contains(archive, []byte(mark)) || strings.Contains(said, mark) {
		t.Error("the mark is in the archive")
	}
	for _, part := range []string{"objects/memcached-cache.yaml", "objects/statefulset-cache.yaml", "objects/pod-cache-1.yaml", "objects/persistentvolumeclaim-data-cache-0.yaml", "objects/configmap-cache-servers.yaml", "log.txt", "PASSWORD"} {
		if !bytes.Contains(archive, []byte(part)) {
			t.Errorf("the archive lacks %s", part)
		}
	}
	_, said = p.says(1, "", "support-bundle", name, "--file="+file)
	if !strings.Contains(said, "exists") {
		t.Errorf("a file that exists: %s", said)
	}
	w.scale(1)
	w.settled(1)
	w.eventsOnce("DrainStarted", "Released")
	logs, _ := p.says(0, "", "logs", name)
	var last string
	for line := range strings.Lines(logs) {
		at, _, _ := strings.Cut(line, " ")
		if at < last {
			t.Errorf("a line comes after a later one: %s", line)
		}
		last = at
	}
	for _, part := range []string{"Memcached/cache", "DrainStarted", "Released"} {
		if !strings.Contains(logs, part) {
			t.Errorf("logs lacks %s:\n%s", part, logs)
		}
	}
}
