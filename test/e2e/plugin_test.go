package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/test/internal/app"
	"example.com/memcached-operator/test/internal/terminal"
	"example.com/memcached-operator/test/tier"
)

// The size of a person's terminal.
const columns, rows = 110, 32

// mc is kubectl mc, which kubectl finds in PATH.
func (f *fixture) mc(args ...string) *exec.Cmd {
	f.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", "bin", "kubectl-mc"))
	if err == nil {
		_, err = os.Stat(path)
	}
	tier.Needs(f, "the plugin kubectl-mc", err)
	cmd := exec.CommandContext(f.ctx, "kubectl", slices.Concat([]string{"mc"}, args, []string{"--namespace=" + f.namespace})...)
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(path)+":"+os.Getenv("PATH"), "TERM=xterm-256color", "NO_COLOR=")
	return cmd
}

// inTerminal runs kubectl mc in a terminal.
func (f *fixture) inTerminal(args ...string) *terminal.Terminal {
	f.Helper()
	return terminal.Start(f, f.mc(args...), columns, rows)
}

// says runs the command in a terminal and answers its question, if it has one. says returns the output when
// the command has ended with the code.
func (f *fixture) says(code int, answer string, args ...string) string {
	f.Helper()
	t := f.inTerminal(args...)
	if answer != "" {
		t.Shows("(yes/no)")
		t.Type(answer + "\n")
	}
	text := t.Ends(code)
	f.Logf("kubectl mc %s:\n%s", strings.Join(args, " "), text)
	return text
}

// plans asks for the plan of a change. Its exit code has to be as wanted.
func (f *fixture) plans(code int, change ...string) *controllers.Forecast {
	f.Helper()
	out, err := f.mc(append([]string{"plan", f.name, "-o", "json"}, change...)...).Output()
	if failed := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &failed) || failed.ExitCode() != code) || err == nil && code != 0 {
		f.Fatalf("kubectl mc plan %v: %v, want exit code %d\n%s", change, err, code, out)
	}
	forecast := &controllers.Forecast{}
	if err := json.Unmarshal(out, forecast); err != nil {
		f.Fatalf("kubectl mc plan %v: %v\n%s", change, err, out)
	}
	return forecast
}

// holding has each member's contents, by its own statistics, and the UID of its pod.
type holding struct {
	holds map[string]controllers.Holds
	pods  map[string]types.UID
}

func (f *fixture) holding(members int) holding {
	f.Helper()
	h := holding{map[string]controllers.Holds{}, map[string]types.UID{}}
	for ordinal := range members {
		pod := f.pod(ordinal)
		conn, err := memcache.Dial(f.ctx, pod.Status.PodIP+":11211")
		f.must(err)
		stats, err := conn.Stats("")
		_ = conn.Close()
		f.must(err)
		items, err := strconv.ParseInt(stats["curr_items"], 10, 64)
		f.must(err)
		bytes, err := strconv.ParseInt(stats["bytes"], 10, 64)
		f.must(err)
		h.holds[pod.Name], h.pods[pod.Name] = controllers.Holds{Items: items, Bytes: bytes}, pod.UID
	}
	return h
}

// expectAsPlanned compares a plan with the change itself: who left, joined and restarted; items and bytes of
// each member, within a twentieth.
func (f *fixture) expectAsPlanned(change string, plan *controllers.Forecast, before, after holding) {
	f.Helper()
	var happened controllers.Forecast
	for _, name := range slices.Sorted(maps.Keys(before.pods)) {
		switch uid, stays := after.pods[name]; {
		case !stays:
			happened.Leave = append(happened.Leave, name)
		case uid != before.pods[name]:
			happened.Restart = append(happened.Restart, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(after.pods)) {
		if _, was := before.pods[name]; !was {
			happened.Join = append(happened.Join, name)
		}
	}
	for _, of := range []struct {
		what          string
		planned, came []string
	}{{"leave", plan.Leave, happened.Leave}, {"join", plan.Join, happened.Join}, {"restart", plan.Restart, happened.Restart}} {
		if !slices.Equal(of.planned, of.came) {
			f.Errorf("%s: planned to %s: %v, and it was %v", change, of.what, of.planned, of.came)
		}
	}
	planned := maps.Clone(before.holds)
	for _, flow := range plan.Flows {
		from, to := planned[flow.From], planned[flow.To]
		planned[flow.From] = controllers.Holds{Items: from.Items - flow.Items, Bytes: from.Bytes - flow.Bytes}
		planned[flow.To] = controllers.Holds{Items: to.Items + flow.Items, Bytes: to.Bytes + flow.Bytes}
	}
	if plan.Evicted.Bytes > 0 { // a plan says this of all members
		planned = map[string]controllers.Holds{"all": sum(planned, plan.Evicted)}
		after.holds = map[string]controllers.Holds{"all": sum(after.holds, controllers.Holds{})}
	}
	for _, name := range slices.Sorted(maps.Keys(after.holds)) {
		want, got := planned[name], after.holds[name]
		f.Logf("%s: %s: planned %d items, %d bytes; now %d items (%+.1f %%), %d bytes (%+.1f %%)", change, name, want.Items, want.Bytes,
			got.Items, apart(got.Items, want.Items), got.Bytes, apart(got.Bytes, want.Bytes))
		if outside(got.Items, want.Items) || outside(got.Bytes, want.Bytes) {
			f.Errorf("%s: %s has not what was planned", change, name)
		}
	}
}

func sum(holds map[string]controllers.Holds, less controllers.Holds) (all controllers.Holds) {
	for _, h := range holds {
		all.Items, all.Bytes = all.Items+h.Items, all.Bytes+h.Bytes
	}
	return controllers.Holds{Items: all.Items - less.Items, Bytes: all.Bytes - less.Bytes}
}

func apart(got, want int64) float64 { return 100 * float64(got-want) / float64(max(1, want)) }

func outside(got, want int64) bool { return apart(got, want) > 5 || apart(got, want) < -5 }

// A person plans a scaling, says yes, and watches it. Each change happens as the plan says.
func TestAPersonPlansAndWatchesAScaling(t *testing.T) {
	tier.Second(t, "TestThePlanThatIsShownIsWhatHappens")
	t.Parallel()
	spec := roomForSome(persistent(3))
	spec.Drain.RateLimit = &cachev1alpha1.RateLimit{ItemsPerSecond: ptr.To[int64](60)} // a person sees it for half a minute: a screen takes seconds on a busy machine
	f := setup(t, spec)
	f.fill(3, sized(6_000, 4000))
	f.settled(3)

	plan, before := f.plans(0, "--size=2"), f.holding(3)
	watch := f.inTerminal("status", f.name, "--watch", "--interval=500ms")
	watch.Shows("Running", "3 of 3 ready")
	ask := f.inTerminal("plan", f.name, "--size=2", "--apply")
	f.expectPlanShown(plan, ask.Shows("(yes/no)"))
	ask.Type("yes\n")
	ask.Ends(0)
	watch.Until("two members run, and nothing is left to do", func(text string) bool {
		return strings.Contains(text, "Running") && strings.Contains(text, "2 of 2 ready") && !strings.Contains(text, "cache-2")
	})
	f.settled(2)
	watch.Interrupt()
	watch.Ends(0)
	f.expectWatched(watch.Frames())
	f.expectAsPlanned("3 to 2", plan, before, f.holding(2))
	f.patch(f.memcached(), `{"spec":{"drain":{"rateLimit":null}}}`)

	f.happensAsPlanned(0, 3, "--size=3")
	f.happensAsPlanned(0, 3, "--client=pymemcache")
	f.happensAsPlanned(0, 3, "--memory=72Mi")
	f.happensAsPlanned(0, 3, "--client="+ringClient)
	f.fill(3, sized(36_000, 4000)) // as much as two members hold
	f.happensAsPlanned(exitLoses, 1, "--size=1")
}

// sized returns so many objects of that many bytes.
func sized(n, bytes int) []app.Object {
	objects := small(n)
	for i := range objects {
		objects[i].Value = make([]byte, bytes)
	}
	return objects
}

// exitLoses is how a plan ends that gives items up.
const exitLoses = 3

// happensAsPlanned makes a change by the plugin, and expects the events of its plan.
func (f *fixture) happensAsPlanned(code, size int, change string) {
	f.Helper()
	plan, before := f.plans(code, change), f.holding(len(f.servers(int(f.memcached().Status.Size))))
	f.says(0, "yes", "plan", f.name, change, "--apply")
	f.settled(int32(size))
	f.expectAsPlanned(change, plan, before, f.holding(size))
}

// expectPlanShown expects the plan's members and numbers on the screen.
func (f *fixture) expectPlanShown(plan *controllers.Forecast, text string) {
	f.Helper()
	f.Logf("the plan:\n%s", text)
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	want := []string{"leave cache-2", "FROM TO ITEMS BYTES"}
	for _, flow := range plan.Flows {
		want = append(want, fmt.Sprintf("%s %s %s", flow.From, flow.To, thousands(flow.Items)))
	}
	want = append(want, "move "+thousands(plan.Moved.Items)+" items", "fit they fit", fmt.Sprintf("keys clients look for %.0f%% of all keys", 100*plan.Elsewhere), "take ")
	for _, begins := range want {
		if !slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, begins) }) {
			f.Errorf("the plan has no line %q...", begins)
		}
	}
}

// thousands is a number as people write it.
func thousands(n int64) string {
	if n < 1000 {
		return strconv.FormatInt(n, 10)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}

// The lines of the screen that differ from run to run. The rest of each is compared.
var (
	memberLine = regexp.MustCompile(`^(cache-\d) +([a-z]+) +([\d,]+ +[█░]+ +\d+%|-  +-) +(\d+%|-) +[\d,-]+ +[\d,-]+ +\S+ +\S+ +[\d.]+$`)
	workLine   = regexp.MustCompile(`^(data-cache-\d) +(\w+)(, pass \d+)? +[█░]+ +(\d+)% +[\d,]+ of [\d,]+( items)?( +[\d,]+/s)?( +\S+ left)?$`)
)

// shape is a screen without its numbers.
func (f *fixture) shape(text string) (lines []string) {
	for line := range strings.Lines(strings.ReplaceAll(text, f.namespace, "NAMESPACE")) {
		line = strings.TrimRight(line, "\n")
		if m := memberLine.FindStringSubmatch(line); m != nil {
			line = m[1] + " " + m[2]
		}
		if w := workLine.FindStringSubmatch(line); w != nil {
			line = strings.Join([]string{w[1], w[2], "BAR"}, " ")
		}
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return lines
}

// expectWatched compares the recorded screens of the scaling.
func (f *fixture) expectWatched(frames []terminal.Timed) {
	f.Helper()
	if file := os.Getenv("SCREEN"); file != "" {
		f.must(os.WriteFile(file, []byte(terminal.SVG("kubectl mc status -w while a cluster is scaled from three members to two", frames)), 0o600))
	}
	const head = "MEMBER STATE ITEMS MEMORY HITS EVICTED CONNS AGE NODE ADDRESS"
	first, last := f.shape(frames[0].Text()), f.shape(frames[len(frames)-1].Text())
	ring := "ring " + ringClient + ", %d servers, stable"
	if diff := cmp.Diff([]string{"NAMESPACE/cache Running 3 of 3 ready", fmt.Sprintf(ring, 3), "", head, "cache-0 ready", "cache-1 ready", "cache-2 ready"}, first); diff != "" {
		f.Errorf("the first screen differs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"NAMESPACE/cache Running 2 of 2 ready", fmt.Sprintf(ring, 2), "", head, "cache-0 ready", "cache-1 ready"}, last); diff != "" {
		f.Errorf("the last screen differs (-want +got):\n%s", diff)
	}
	bars, rates, left := 0, 0, 0
	shares := map[string]int{}
	previous := ""
	for _, frame := range frames {
		text := frame.Text()
		if shape := strings.Join(f.shape(text), "\n"); shape != previous {
			f.Logf("%s\n%s", frame.At.Format("15:04:05.000"), text)
			previous = shape
		}
		for line := range strings.Lines(text) {
			w := workLine.FindStringSubmatch(strings.TrimRight(line, "\n"))
			if w == nil {
				continue
			}
			share, err := strconv.Atoi(w[4])
			f.must(err)
			if bar := w[1] + w[2] + w[3]; share < shares[bar] {
				f.Errorf("the bar %s goes back from %d to %d %%", bar, shares[bar], share)
			} else {
				shares[bar] = share
			}
			bars++
			if w[6] != "" {
				rates++
			}
			if w[7] != "" {
				left++
			}
		}
	}
	f.Logf("%d screens: a bar on %d, with a rate on %d, with the time left on %d", len(frames), bars, rates, left)
	if min(bars, rates, left) == 0 {
		f.Error("a person didn't see all of it")
	}
}

// A person holds, retries, skips and releases claims, pauses and resumes, and reads the receipts, of both kinds.
func TestAPersonSteersDrainsInATerminal(t *testing.T) {
	tier.Second(t, "TestAPersonSeesAndSteersADrainByThePlugin")
	t.Parallel()
	f := setup(t, roomForSome(persistent(3)))
	f.fill(3, small(3000))
	watch := f.inTerminal("status", f.name, "--watch", "--interval=500ms")
	watch.Shows("3 of 3 ready")

	t.Log("hold, and retry")
	f.says(0, "", "hold", "data-cache-2")
	f.says(0, "yes", "plan", f.name, "--size=2", "--apply")
	watch.Shows("data-cache-2  Held", "2 of 2 ready", "kubectl mc retry data-cache-2")
	f.says(0, "", "retry", "data-cache-2")
	f.eventually("claim 2 is gone", func() bool { return f.claim(2) == nil })
	f.settled(2)
	watch.Until("the claim is gone", func(text string) bool { return !strings.Contains(text, "data-cache-2") })
	f.hasReceipt("cache", `data-cache-2 +Drained `)

	t.Log("hold, and skip")
	f.says(0, "", "hold", "data-cache-1")
	f.says(0, "yes", "plan", f.name, "--size=1", "--apply")
	watch.Shows("data-cache-1  Held")
	if text := f.says(5, "no", "skip", "data-cache-1"); !strings.Contains(text, "gives up") || !strings.Contains(text, "nothing was changed") {
		t.Errorf("skip asks:\n%s", text)
	}
	f.says(0, "yes", "skip", "data-cache-1")
	f.eventually("claim 1 is gone", func() bool { return f.claim(1) == nil })
	f.settled(1)
	f.hasReceipt("cache", `data-cache-1 +Skipped `)

	t.Log("pause, and resume")
	f.says(0, "", "pause", f.name)
	f.says(4, "", "plan", f.name, "--size=2")
	f.scale(2)
	watch.Shows("Paused", "kubectl mc resume cache")
	if n := f.memcached().Status.Size; n != 1 {
		t.Errorf("a paused cluster has %d members", n)
	}
	f.says(0, "", "resume", f.name)
	f.settled(2)
	watch.Shows("Running", "2 of 2 ready")
	watch.Interrupt()
	watch.Ends(0)

	t.Log("release")
	f.abandoned("left")
	if text := f.says(1, "", "release", "data-cache-0"); !strings.Contains(text, "belongs to Memcached cache") {
		t.Errorf("release of a claim with an owner says:\n%s", text)
	}
	f.says(5, "no", "release", "left")
	f.says(0, "yes", "release", "left")
	f.eventually("the claim is gone", func() bool {
		return client.IgnoreNotFound(kube.Get(f.ctx, f.key("left"), &corev1.PersistentVolumeClaim{})) == nil &&
			kube.Get(f.ctx, f.key("left"), &corev1.PersistentVolumeClaim{}) != nil
	})
	f.steersAStatefulSet()
}

// hasReceipt expects a line of kubectl mc receipts.
func (f *fixture) hasReceipt(name, pattern string) {
	f.Helper()
	if text := f.says(0, "", "receipts", name); !regexp.MustCompile(`(?m)^` + pattern).MatchString(text) {
		f.Errorf("receipts has no line %s:\n%s", pattern, text)
	}
}

// abandoned is a deleted claim with the operator's finalizer, of no owner.
func (f *fixture) abandoned(name string) {
	f.Helper()
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: f.namespace, Finalizers: []string{cachev1alpha1.ClaimFinalizer}},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}},
		},
	}
	f.must(kube.Create(f.ctx, claim))
	f.must(kube.Delete(f.ctx, claim))
}

// steersAStatefulSet does the same with the drains of a StatefulSetDrain.
func (f *fixture) steersAStatefulSet() {
	f.Helper()
	s := spool{}
	f.name = s.name()
	f.kubectl("apply", "-f", samples+"statefulsetdrain_spool.yaml")
	f.membersReady(3)
	f.eventually("the claims are protected", func() bool {
		claim := &corev1.PersistentVolumeClaim{}
		f.must(kube.Get(f.ctx, f.key("data-spool-2"), claim))
		return held(claim)
	})
	watch := f.inTerminal("status", "stsdrain/spool", "--watch", "--interval=500ms")
	watch.Shows("3 of 3 ready")
	f.says(0, "", "hold", "data-spool-2")
	f.scaleSet(2)
	watch.Shows("data-spool-2-aside-", "Held", "kubectl mc retry data-spool-2-aside-") // its StatefulSet deletes the claim
	f.says(0, "", "resume", "stsdrain/spool")
	f.drained(2)
	f.hasReceipt("stsdrain/spool", `2 +data-spool-2\S* +Drained `)
	f.says(0, "", "hold", "data-spool-1")
	f.scaleSet(1)
	watch.Shows("data-spool-1-aside-", "Held")
	f.says(5, "no", "skip", "data-spool-1")
	f.says(0, "yes", "skip", "data-spool-1")
	watch.Until("the claim is gone", func(text string) bool { return !strings.Contains(text, "data-spool-1") })
	f.hasReceipt("stsdrain/spool", `1 +data-spool-1\S* +Skipped `)
	watch.Interrupt()
	watch.Ends(0)
}
