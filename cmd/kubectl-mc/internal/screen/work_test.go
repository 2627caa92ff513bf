package screen

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/cmd/kubectl-mc/internal/members"
	"example.com/memcached-operator/drainer/contract"
)

var now = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

func memberPod(name string) corev1.Pod {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(now.Add(-time.Hour)), Labels: map[string]string{cachev1alpha1.LabelComponent: cachev1alpha1.ComponentMember}}}
	pod.Spec.NodeName = "ip-10-0-112-34.eu-central-1.compute.internal"
	pod.Status.PodIP = "10.0.112.34"
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	return pod
}

func member(name string, lines ...string) Heard {
	pod := memberPod(name)
	return Heard{&pod, lines}
}

func drainer(job string, age time.Duration, p contract.Progress) Heard {
	text, _ := json.Marshal(p)
	return Heard{&corev1.Pod{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(now.Add(-age)), Labels: map[string]string{batchv1.JobNameLabel: job}}}, []string{string(text), "{\"phase\": \"cut"}}
}

func draining(claim string, phase cachev1alpha1.DrainPhase) cachev1alpha1.DrainStatus {
	return cachev1alpha1.DrainStatus{Claim: claim, Phase: phase}
}

// Each long step has a bar, with its rate and the time that is left, as members and drainers log them.
func TestEachLongStepHasABar(t *testing.T) {
	adding := func(done, total int64) contract.Progress {
		return contract.Progress{Phase: contract.PhaseAdding, ItemsDone: done, ItemsTotal: total, Seconds: 10}
	}
	pass := func(number int, done, total int64) contract.Progress {
		p := adding(30_000+done, 30_000+total)
		p.Pass, p.PassDone, p.PassTotal = number, done, total
		return p
	}
	for name, test := range map[string]struct {
		drains []cachev1alpha1.DrainStatus
		heard  []Heard
		want   string
	}{
		"save": {heard: []Heard{member("cache-1", "drainer: saving the cache", "drainer: saving: 64 of 128 MiB, at 16 MiB/s")},
			want: "cache-1  Saving     ██████░░░░░░  50%  64 of 128 MiB  16 MiB/s  4s left"},
		"load": {heard: []Heard{member("cache-1", "drainer: loading: 96 of 128 MiB, at 32 MiB/s", "drainer: something else")},
			want: "cache-1  Loading    █████████░░░  75%  96 of 128 MiB  32 MiB/s  1s left"},
		"replay": {heard: []Heard{member("cache-1", "drainer: replaying: 1000 of 4000 items, at 500 items/s")},
			want: "cache-1  Replaying  ███░░░░░░░░░  25%  1,000 of 4,000 items  500/s  6s left"},
		"a load that has ended": {heard: []Heard{member("cache-1", "drainer: loading: 128 of 128 MiB, at 32 MiB/s")}},
		"drain": {drains: []cachev1alpha1.DrainStatus{draining("data-cache-2", cachev1alpha1.DrainAdding)},
			heard: []Heard{drainer("data-cache-2-drain-0123abcd", 0, adding(10_000, 40_000)), drainer("data-cache-2-move-0123abcd", time.Minute, pass(3, 7, 7))},
			want:  "data-cache-2  Adding     ███░░░░░░░░░  25%  10,000 of 40,000 items  1,000/s  30s left"},
		"a drain of which nothing is heard": {drains: []cachev1alpha1.DrainStatus{{Claim: "data-cache-2", Phase: cachev1alpha1.DrainAdding, ItemsDone: 1000, ItemsTotal: 4000, StartedAt: &metav1.Time{Time: now.Add(-10 * time.Second)}}},
			want: "data-cache-2  Adding     ███░░░░░░░░░  25%  1,000 of 4,000 items  100/s  30s left"},
		"its second attempt": {drains: []cachev1alpha1.DrainStatus{draining("data-cache-2", cachev1alpha1.DrainAdding)},
			heard: []Heard{drainer("data-cache-2-drain-0123abcd", 0, adding(10_000, 40_000)), drainer("data-cache-2-drain-0123abcd", time.Minute, adding(30_000, 40_000))},
			want:  "data-cache-2  Adding     ███░░░░░░░░░  25%  10,000 of 40,000 items  1,000/s  30s left"},
		"move off a leaving member": {drains: []cachev1alpha1.DrainStatus{draining("data-cache-10", cachev1alpha1.DrainLeaving), draining("data-cache-1", cachev1alpha1.DrainWaiting)},
			heard: []Heard{drainer("data-cache-10-move-0123abcd", 0, pass(1, 10_000, 40_000)), drainer("data-cache-1-move-0123abcd", 0, pass(1, 40_000, 40_000))},
			want:  "data-cache-10  Leaving    ███░░░░░░░░░  25%  10,000 of 40,000 items  1,000/s  30s left\ndata-cache-1  Waiting"},
		"its second pass": {drains: []cachev1alpha1.DrainStatus{draining("data-cache-2", cachev1alpha1.DrainLeaving)},
			heard: []Heard{drainer("data-cache-2-move-0123abcd", 0, pass(2, 300, 1200))},
			want:  "data-cache-2  Leaving, pass 2  ███░░░░░░░░░  25%  300 of 1,200 items"},
		"move off a member that stays": {heard: []Heard{drainer("data-cache-0-move-0123abcd", 0, pass(1, 10_000, 40_000))},
			want: "data-cache-0  Moving     ███░░░░░░░░░  25%  10,000 of 40,000 items  1,000/s  30s left"},
		"one that has ended": {heard: []Heard{drainer("data-cache-0-move-0123abcd", 0, contract.Progress{Phase: contract.PhaseDone, ItemsDone: 5, ItemsTotal: 5})}},
		"late clients": {heard: []Heard{drainer("data-cache-0-move-0123abcd", 0, contract.Progress{Phase: contract.PhaseSettling, Pass: 1, PassDone: 5, PassTotal: 5, Late: 0.12, Message: "still called by 10.1.2.3"})},
			want: "data-cache-0  Moving     ████████████ 100%  5 of 5 items\n  waits for late clients, 12% of the requests: still called by 10.1.2.3"},
		"numbers that can't be true": {heard: []Heard{drainer("data-cache-0-move-0123abcd", 0, adding(-5, 7)), member("cache-1", "drainer: saving: 9 of 8 MiB, at 1 MiB/s")}},
		"a log of another pod":       {heard: []Heard{drainer("unrelated", 0, adding(5, 7))}},
	} {
		t.Run(name, func(t *testing.T) {
			m := apitest.MakeMemcached("cache").Namespace("shop").Size(2).Storage("1Gi").Defaulted().Obj()
			m.Status.Drains = test.drains
			view := Of(m, &Seen{Heard: test.heard}, now)
			var got []string
			for i := range view.Work {
				got = append(got, view.Work[i].lines(100)...)
			}
			if diff := cmp.Diff(test.want, strings.Join(got, "\n")); diff != "" {
				t.Errorf("the bars differ (-want +got):\n%s", diff)
			}
		})
	}
}

// A terminal of 80 columns and 24 rows shows what matters: what is at work, what waits, and members that are not ready.
func TestAScreenFitsASmallTerminal(t *testing.T) {
	m := apitest.MakeMemcached("cache").Namespace("shop").Size(32).Storage("1Gi").Defaulted().Obj()
	m.Status.Drains = []cachev1alpha1.DrainStatus{draining("data-cache-29", cachev1alpha1.DrainLeaving), draining("data-cache-28", cachev1alpha1.DrainHeld)}
	m.Status.Drains[0].Ordinal = 29
	m.Status.Drains[1].Reason, m.Status.Drains[1].Message = cachev1alpha1.ReasonHeld, "remove the annotation cache.example.com/drain=hold to start the drain"
	seen := &Seen{Numbers: map[string]*members.Numbers{}}
	for i := range 30 {
		pod := memberPod(fmt.Sprintf("cache-%d", i))
		seen.Pods = append(seen.Pods, pod)
		seen.Numbers[pod.Name] = &members.Numbers{Items: 123_456_789, Bytes: 60 << 30, Limit: 64 << 30, Hits: 99, Gets: 100, Evictions: 123_456_789, Connections: 10_000, Uptime: time.Hour}
	}
	seen.Heard = []Heard{drainer("data-cache-29-move-0123abcd", 0, contract.Progress{Phase: contract.PhaseAdding, Pass: 1, PassDone: 10_000_000, PassTotal: 123_456_789, ItemsDone: 10_000_000, Seconds: 80})}
	const width, height = 80, 24
	lines := Of(m, seen, now).Lines(width, height, Style{Colours: true}, now)
	if len(lines) > height {
		t.Errorf("%d lines:\n%s", len(lines), strings.Join(lines, "\n"))
	}
	for _, line := range lines {
		if columns(line) > width {
			t.Errorf("%d columns: %s", columns(line), line)
		}
	}
	all := strings.Join(lines, "\n")
	for _, part := range []string{"cache-29", "leaving", "123,456,789", "data-cache-29  Leaving", "8%", "15m left", "kubectl mc retry data-cache-28", "more members that are ready"} {
		if !strings.Contains(all, part) {
			t.Errorf("%q is not on the screen:\n%s", part, all)
		}
	}
}
