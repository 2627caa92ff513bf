package remembered

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/ask"
)

func TestDetailsOfAStatusWaitForAMomentAndNothingElseDoes(t *testing.T) {
	now := time.Unix(1000, 0)
	before := cachev1alpha1.MemcachedStatus{
		ObservedGeneration: 1, Phase: cachev1alpha1.PhaseDraining, Size: 3,
		Conditions: []metav1.Condition{{Type: cachev1alpha1.ConditionAvailable, Status: metav1.ConditionFalse}},
		Advice:     []cachev1alpha1.Advice{{Reason: cachev1alpha1.ReasonOtherKeysMove}},
	}
	for name, test := range map[string]struct {
		change func(*cachev1alpha1.MemcachedStatus)
		want   time.Duration
	}{
		"size":           {func(s *cachev1alpha1.MemcachedStatus) { s.Size = 2 }, detailInterval - 400*time.Millisecond},
		"a message":      {func(s *cachev1alpha1.MemcachedStatus) { s.Conditions[0].Message = "2 of 3" }, detailInterval - 400*time.Millisecond},
		"generation":     {func(s *cachev1alpha1.MemcachedStatus) { s.ObservedGeneration = 2 }, 0},
		"phase":          {func(s *cachev1alpha1.MemcachedStatus) { s.Phase = cachev1alpha1.PhaseRunning }, 0},
		"an ended drain": {func(s *cachev1alpha1.MemcachedStatus) { s.LastDrains = []cachev1alpha1.DrainReceipt{{}} }, 0},
		"a condition":    {func(s *cachev1alpha1.MemcachedStatus) { s.Conditions[0].Status = metav1.ConditionTrue }, 0},
		"a person is needed": {func(s *cachev1alpha1.MemcachedStatus) {
			s.Conditions = append(s.Conditions, metav1.Condition{Type: cachev1alpha1.ConditionDegraded})
		}, 0},
		"advice": {func(s *cachev1alpha1.MemcachedStatus) {
			s.Advice = []cachev1alpha1.Advice{{Reason: cachev1alpha1.ReasonOtherKeysMove}, {Reason: cachev1alpha1.ReasonMemoryUnknown}}
		}, 0},
		"advice in other words": {func(s *cachev1alpha1.MemcachedStatus) { s.Advice[0].Message = "from 3 to 2" }, detailInterval - 400*time.Millisecond},
		"no advice any more":    {func(s *cachev1alpha1.MemcachedStatus) { s.Advice = nil }, detailInterval - 400*time.Millisecond},
		"progress": {func(s *cachev1alpha1.MemcachedStatus) {
			s.Conditions = append(s.Conditions, metav1.Condition{Type: cachev1alpha1.ConditionProgressing})
		}, detailInterval - 400*time.Millisecond},
		"size, long after": {func(s *cachev1alpha1.MemcachedStatus) { s.Size = 2; now = now.Add(time.Hour) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			now = time.Unix(1000, 0)
			var s Statuses
			key := client.ObjectKey{Namespace: "default", Name: "cache"}
			first := *before.DeepCopy()
			first.ReadySize = 1
			if got := s.Due(key, ClusterChange(&before, &first), now.Add(-400*time.Millisecond)); got != detailInterval {
				t.Errorf("the first detail waits %s, want %s", got, detailInterval)
			}
			after := *before.DeepCopy()
			test.change(&after)
			if got := s.Due(key, ClusterChange(&before, &after), now); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
			s.Note(key, now)
			if got := s.Due(key, ClusterChange(&before, &first), now); got != detailInterval {
				t.Errorf("after a write, the first detail waits %s, want %s", got, detailInterval)
			}
		})
	}
}

func TestProgressIsWrittenEachTimeThatItIsRead(t *testing.T) {
	var s Statuses
	key := client.ObjectKey{Namespace: "default", Name: "cache"}
	at := func(items int64) *cachev1alpha1.MemcachedStatus {
		return &cachev1alpha1.MemcachedStatus{Drains: []cachev1alpha1.DrainStatus{{Phase: cachev1alpha1.DrainAdding, ItemsDone: items}}}
	}
	now := time.Unix(1000, 0)
	s.Note(key, now)
	for items := range int64(5) {
		soon := now.Add(ask.ProgressInterval / 3)
		if got, want := s.Due(key, ClusterChange(at(items), at(items+1)), soon), ask.ProgressInterval-ask.ProgressInterval/3; got != want {
			t.Errorf("an event between two reads: the status waits %s, want %s", got, want)
		}
		now = now.Add(ask.ProgressInterval)
		if got := s.Due(key, ClusterChange(at(items), at(items+1)), now); got != 0 {
			t.Errorf("read %s after the last write, progress waits %s more", ask.ProgressInterval, got)
		}
		s.Note(key, now)
	}
}

// Clients with an old list may continue for hours, and their numbers differ at each reconcile.
func TestLateClientsAreWrittenNowAndThen(t *testing.T) {
	var s Statuses
	key, now := client.ObjectKey{Namespace: "default", Name: "cache"}, time.Unix(1000, 0)
	called := func(message string) *cachev1alpha1.MemcachedStatus {
		return &cachev1alpha1.MemcachedStatus{Drains: []cachev1alpha1.DrainStatus{
			{Phase: cachev1alpha1.DrainLeaving, Reason: cachev1alpha1.ReasonStillCalled, Message: message},
		}}
	}
	s.Note(key, now)
	if got := s.Due(key, ClusterChange(called("44 a second"), called("43 a second")), now); got != callersInterval {
		t.Errorf("it waits %s, want %s", got, callersInterval)
	}
	if got := s.Due(key, ClusterChange(called("44 a second"), &cachev1alpha1.MemcachedStatus{}), now); got != 0 {
		t.Errorf("when no client calls any more, it waits %s", got)
	}
	s.Note(key, now)
	late := func(percent int32) *cachev1alpha1.MemcachedStatus { // of members that stay
		return &cachev1alpha1.MemcachedStatus{Moving: 3, LatePercent: percent}
	}
	if got := s.Due(key, ClusterChange(late(44), late(43)), now); got != callersInterval {
		t.Errorf("of members that stay, it waits %s, want %s", got, callersInterval)
	}
	if got := s.Due(key, ClusterChange(late(1), &cachev1alpha1.MemcachedStatus{}), now); got != detailInterval {
		t.Errorf("when no client is late any more, it waits %s, want %s", got, detailInterval)
	}
	// Items that late clients store are moved in between; then none of them waits.
	pass := &cachev1alpha1.MemcachedStatus{Drains: []cachev1alpha1.DrainStatus{{Phase: cachev1alpha1.DrainLeaving, ItemsDone: 7}}}
	for name, change := range map[string][2]*cachev1alpha1.MemcachedStatus{
		"a leaving member":       {called("44 a second"), pass},
		"members that stay":      {late(44), late(0)},
		"a leaving one, changed": {called("44 a second"), called("43 a second")},
	} {
		var s Statuses
		s.Note(key, now)
		for since := time.Duration(0); since < callersInterval; since += ask.ProgressInterval {
			if got, want := s.Due(key, ClusterChange(change[0], change[1]), now.Add(since)), callersInterval-since; got != want {
				t.Errorf("%s, %s later: it waits %s, want %s", name, since, got, want)
			}
		}
	}
}
