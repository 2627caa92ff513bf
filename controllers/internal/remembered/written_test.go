package remembered

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/ask"
)

func atVersion(version string) *cachev1alpha1.Memcached {
	return &cachev1alpha1.Memcached{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cache", ResourceVersion: version}}
}

func TestAReconcileStartsFromOurOwnLastWriteUntilTheCacheHasIt(t *testing.T) {
	var w Written
	now := time.Unix(1000, 0)
	if got := w.Newest(atVersion("7"), now).ResourceVersion; got != "7" {
		t.Errorf("nothing was written: got version %s, want the cached 7", got)
	}
	w.Note(atVersion("10"), 0, now)
	for _, step := range []struct{ cached, want string }{{"7", "10"}, {"9", "10"}, {"10", "10"}, {"8", "8"}, {"11", "11"}} {
		// After the cache had version 10, our write is forgotten.
		if got := w.Newest(atVersion(step.cached), now).ResourceVersion; got != step.want {
			t.Errorf("version %s is cached: got %s, want %s", step.cached, got, step.want)
		}
	}
	w.Note(atVersion("20"), 0, now)
	w.Forget(client.ObjectKeyFromObject(atVersion("20")))
	if got := w.Newest(atVersion("12"), now).ResourceVersion; got != "12" {
		t.Errorf("the Memcached was gone in between: got version %s, want the cached 12", got)
	}
}

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
			var w Written
			key := client.ObjectKeyFromObject(atVersion("1"))
			first := *before.DeepCopy()
			first.ReadySize = 1
			if got := w.StatusDue(key, &before, &first, now.Add(-400*time.Millisecond)); got != detailInterval {
				t.Errorf("the first detail waits %s, want %s", got, detailInterval)
			}
			after := *before.DeepCopy()
			test.change(&after)
			if got := w.StatusDue(key, &before, &after, now); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
			w.NoteStatus(atVersion("1"), now)
			if got := w.StatusDue(key, &before, &first, now); got != detailInterval {
				t.Errorf("after a write, the first detail waits %s, want %s", got, detailInterval)
			}
		})
	}
}

func TestProgressIsWrittenEachTimeThatItIsRead(t *testing.T) {
	var w Written
	key := client.ObjectKeyFromObject(atVersion("1"))
	at := func(items int64) *cachev1alpha1.MemcachedStatus {
		return &cachev1alpha1.MemcachedStatus{Drains: []cachev1alpha1.DrainStatus{{Phase: cachev1alpha1.DrainAdding, ItemsDone: items}}}
	}
	now := time.Unix(1000, 0)
	w.NoteStatus(atVersion("1"), now)
	for items := range int64(5) {
		soon := now.Add(ask.ProgressInterval / 3)
		if got, want := w.StatusDue(key, at(items), at(items+1), soon), ask.ProgressInterval-ask.ProgressInterval/3; got != want {
			t.Errorf("an event between two reads: the status waits %s, want %s", got, want)
		}
		now = now.Add(ask.ProgressInterval)
		if got := w.StatusDue(key, at(items), at(items+1), now); got != 0 {
			t.Errorf("read %s after the last write, progress waits %s more", ask.ProgressInterval, got)
		}
		w.NoteStatus(atVersion("1"), now)
	}
}

// Clients with an old list may continue for hours, and their numbers differ at each reconcile.
func TestLateClientsAreWrittenNowAndThen(t *testing.T) {
	var w Written
	key, now := client.ObjectKeyFromObject(atVersion("1")), time.Unix(1000, 0)
	called := func(message string) *cachev1alpha1.MemcachedStatus {
		return &cachev1alpha1.MemcachedStatus{Drains: []cachev1alpha1.DrainStatus{
			{Phase: cachev1alpha1.DrainLeaving, Reason: cachev1alpha1.ReasonStillCalled, Message: message},
		}}
	}
	w.NoteStatus(atVersion("1"), now)
	if got := w.StatusDue(key, called("44 a second"), called("43 a second"), now); got != callersInterval {
		t.Errorf("it waits %s, want %s", got, callersInterval)
	}
	if got := w.StatusDue(key, called("44 a second"), &cachev1alpha1.MemcachedStatus{}, now); got != 0 {
		t.Errorf("when no client calls any more, it waits %s", got)
	}
}
