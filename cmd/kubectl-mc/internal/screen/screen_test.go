package screen

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/cmd/kubectl-mc/internal/members"
	"example.com/memcached-operator/controllers"
)

func TestAScalingIsOneScreen(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(ago time.Duration) *metav1.Time { return &metav1.Time{Time: now.Add(-ago)} }
	m := apitest.MakeMemcached("cache").Namespace("shop").Size(2).Storage("1Gi").Defaulted().Obj()
	m.Status = cachev1alpha1.MemcachedStatus{
		Phase: cachev1alpha1.PhaseDraining, Size: 3, ReadySize: 3, Servers: []string{"a:1", "b:1"},
		Drains: []cachev1alpha1.DrainStatus{{
			Claim: "data-cache-2", Ordinal: 2, Phase: cachev1alpha1.DrainLeaving, ItemsDone: 30_000, ItemsTotal: 40_000,
			Reason: cachev1alpha1.ReasonStillCalled, Message: "still called by 10.1.2.3", Since: at(70 * time.Second),
			StartedAt: at(10 * time.Second), TimeLeft: &metav1.Duration{Duration: 3 * time.Second},
		}},
	}
	pod := func(name string) corev1.Pod {
		return corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: *at(time.Hour)}, Spec: corev1.PodSpec{NodeName: "node-1"},
			Status: corev1.PodStatus{PodIP: "10.0.0.1", Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
		}
	}
	numbers := map[string]*members.Numbers{"cache-0": {Items: 1_234_567, Bytes: 48 << 20, Limit: 64 << 20, Hits: 90, Gets: 100, Connections: 12, Uptime: time.Hour}}
	view := Of(m, &Seen{Pods: []corev1.Pod{pod("cache-0"), pod("cache-2")}, Numbers: numbers, Unasked: "pod cache-2 does not answer"}, now)
	got := strings.Join(view.Lines(100, 0, Style{}, now), "\n")
	want := `shop/cache  Draining  3 of 2 ready
ring     libmemcached-ketama-weighted, 2 servers, members leave

MEMBER   STATE    ITEMS      MEMORY             HITS  EVICTED  CONNS  AGE  NODE    ADDRESS
cache-0  ready    1,234,567  █████████░░░  75%  90%   0        12     60m  node-1  10.0.0.1
cache-2  leaving  -                        -    -     -        -      60m  node-1  10.0.0.1
numbers are missing: pod cache-2 does not answer

data-cache-2  Leaving    █████████░░░  75%  30,000 of 40,000 items  3,000/s  3s left

claim data-cache-2  StillCalled  for 70s
  still called by 10.1.2.3`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the screen differs (-want +got):\n%s", diff)
	}
	for _, line := range view.Lines(60, 0, Style{Colours: true}, now) {
		if n := columns(line); n > 60 && !strings.HasPrefix(line, "cache-") && !strings.HasPrefix(line, "MEMBER") {
			t.Errorf("a line has %d columns: %q", n, line)
		}
	}
}

func TestNumbersAreForPeople(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1000: "-1,000"} {
		if got := Count(n); got != want {
			t.Errorf("Count(%d) = %s, want %s", n, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0 B", 2048: "2.0 KiB", 3 << 20: "3.0 MiB", 5 << 30: "5.0 GiB"} {
		if got := Bytes(n); got != want {
			t.Errorf("Bytes(%d) = %s, want %s", n, got, want)
		}
	}
}

func TestAPlanIsLinesForPeople(t *testing.T) {
	share := 0.5
	f := &controllers.Forecast{
		Leave: []string{"cache-2"}, Restart: []string{"cache-0", "cache-1"}, Warm: true,
		Flows: []controllers.Flow{{From: "cache-2", To: "cache-0", Holds: controllers.Holds{Items: 20_102, Bytes: 16 << 20}}},
		Moved: controllers.Holds{Items: 20_102, Bytes: 16 << 20}, Evicted: controllers.Holds{Items: 10, Bytes: 1 << 20},
		Elsewhere: 1.0 / 3, KeysElsewhere: &share, Takes: &metav1.Duration{Duration: 24 * time.Second},
		Blocked: &controllers.Reason{Reason: "WaitingForDrain", Message: "a drain runs"},
		Fill:    []string{"a Job reads old", "the cluster is Ready"},
	}
	want := `leave     cache-2
restart   cache-0, cache-1
warm      members that restart keep their items
move      20,102 items, 16.0 MiB
          FROM     TO       ITEMS   BYTES
          cache-2  cache-0  20,102  16.0 MiB
EVICT     10 items, 1.0 MiB have to go: the members that stay have too little memory
keys      clients look for 33% of all keys at another member
          and for 50% of the keys of your file
take      about 24s, by the last receipts
fill      1. a Job reads old
          2. the cluster is Ready
blocked   WaitingForDrain: a drain runs`
	if diff := cmp.Diff(want, strings.Join(Forecast(f, 100, Style{}), "\n")); diff != "" {
		t.Errorf("the lines differ (-want +got):\n%s", diff)
	}
	if got := Forecast(&controllers.Forecast{}, 100, Style{}); len(got) != 1 || !strings.HasPrefix(got[0], "nothing") {
		t.Errorf("a plan of nothing: %q", got)
	}
}
