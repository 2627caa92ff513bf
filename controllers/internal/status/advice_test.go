package status

import (
	"slices"
	"strings"
	"testing"

	"example.com/memcached-operator/controllers/internal/claims"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/test/tier"
)

// checkAdvice fails if no advice of that reason has a message with these words. If want is empty, checkAdvice
// fails if there is advice of that reason.
func checkAdvice(t *testing.T, list []cachev1alpha1.Advice, reason, want string) {
	t.Helper()
	switch a := said(list, reason); {
	case a == nil && want != "":
		t.Errorf("no advice %s; there is %+v", reason, list)
	case a != nil && (want == "" || !strings.Contains(a.Message, want)):
		t.Errorf("%s: got %q, want %q", reason, a.Message, want)
	}
}

// allAdvised has every advice that can be there at once, with messages that are too long.
func allAdvised() *Input {
	in := input(5).leaving(8, claims.Draining, "", "")
	in.Cluster.Spec.Routing.Client = "gomemcache"
	in.Cluster.Spec.Storage.Mode, in.Cluster.Spec.Storage.Size = cachev1alpha1.StorageMapped, *in.Cluster.Spec.Memory
	in.Cluster.Spec.Drain.OnShortage = cachev1alpha1.ShortageWait
	in.Cluster.Spec.WarmFrom = &cachev1alpha1.WarmSource{Discovery: strings.Repeat("x", 2*claims.MaxMessage)}
	in.Warmed = action.WarmRecord{Result: action.WarmGivenUp, Why: "SourceNotThere"}
	in.Room = &plan.Room{Unknown: strings.Repeat("why ", claims.MaxMessage)}
	for i := range in.Pods {
		in.Pods[i].Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "memcached", LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: `{"saveOutdated":true,"saveError":"` + strings.Repeat("x", 2*claims.MaxMessage) + `"}`}},
		}}
	}
	return in
}

func TestAdviceIsSortedAndBoundedAndHasEachReasonOnce(t *testing.T) {
	var reasons []string
	for _, a := range compute(t, allAdvised()).Advice {
		reasons = append(reasons, a.Reason)
		if len(a.Message) > claims.MaxMessage {
			t.Errorf("%s has %d bytes", a.Reason, len(a.Message))
		}
	}
	want := []string{cachev1alpha1.ReasonMemoryUnknown, cachev1alpha1.ReasonNoRoomToReplay, cachev1alpha1.ReasonNotFilled, cachev1alpha1.ReasonOtherKeysMove, cachev1alpha1.ReasonStartedCold}
	if diff := cmp.Diff(want, reasons); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestASourceThatWasGivenUpIsSaidUntilItIsCopied(t *testing.T) {
	tier.Second(t, "TestAtRestAClusterShowsFourConditions")
	for name, test := range map[string]struct {
		record action.WarmRecord
		open   bool
		phase  cachev1alpha1.WarmPhase
		want   string
	}{
		"given up":   {action.WarmRecord{Result: action.WarmGivenUp, Why: "SourceNotThere"}, false, cachev1alpha1.WarmGivenUp, "kubectl mc warm cache"},
		"copied":     {action.WarmRecord{Result: action.WarmCopied}, false, cachev1alpha1.WarmDone, ""},
		"it is open": {action.WarmRecord{Result: action.WarmGivenUp, Why: "SourceNotThere"}, true, cachev1alpha1.WarmGivenUp, ""},
	} {
		t.Run(name, func(t *testing.T) {
			in := input(2)
			in.Cluster.Spec.WarmFrom = &cachev1alpha1.WarmSource{Memcached: "green"}
			in.Warmed, in.Plan.Warming = test.record, plan.WarmState{Phase: plan.WarmEnded, Open: test.open}
			s := compute(t, in)
			checkAdvice(t, s.Advice, cachev1alpha1.ReasonNotFilled, test.want)
			if s.Warm.Phase != test.phase {
				t.Errorf("it is %s", s.Warm.Phase)
			}
		})
	}
}

func TestThereIsNoAdviceWithoutStorageNorForADeletedCluster(t *testing.T) {
	for what, change := range map[string]func(*Input){
		"no storage": func(in *Input) { in.Cluster.Spec.Storage = nil },
		"deleted":    func(in *Input) { in.Cluster.DeletionTimestamp = &metav1.Time{Time: now} },
	} {
		in := allAdvised().with(change)
		in.Cluster.Status.Advice = []cachev1alpha1.Advice{{Reason: cachev1alpha1.ReasonStartedCold, Message: "before"}}
		if got := compute(t, in).Advice; len(got) > 0 {
			t.Errorf("%s: %+v", what, got)
		}
	}
}

// An early warning is written before the rest of the status, and the rest must not put it into another
// order: that would be one more write.
func TestAnEarlyWarningIsWrittenAsTheStatusHasItLater(t *testing.T) {
	in := allAdvised()
	in.Room, in.Plan.Drains = nil, nil
	all := compute(t, in).Advice
	in.Cluster.Status.Advice = slices.DeleteFunc(slices.Clone(all), func(a cachev1alpha1.Advice) bool { return a.Reason == cachev1alpha1.ReasonNoRoomToReplay })
	if diff := cmp.Diff(all, EarlyWarning(in)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	in.Cluster.Status.Advice = all
	if got := EarlyWarning(in); got != nil {
		t.Errorf("status has it already: %+v", got)
	}
}

func TestAdviceIsNewIfItsWordsAre(t *testing.T) {
	cold := cachev1alpha1.Advice{Reason: cachev1alpha1.ReasonStartedCold, Message: "cache-0"}
	more := cachev1alpha1.Advice{Reason: cachev1alpha1.ReasonStartedCold, Message: "cache-0, cache-1"}
	room := cachev1alpha1.Advice{Reason: cachev1alpha1.ReasonNoRoomToReplay, Message: "room"}
	for what, test := range map[string]struct{ before, after, want []cachev1alpha1.Advice }{
		"none":        {nil, nil, nil},
		"the first":   {nil, []cachev1alpha1.Advice{cold}, []cachev1alpha1.Advice{cold}},
		"the same":    {[]cachev1alpha1.Advice{cold}, []cachev1alpha1.Advice{cold}, nil},
		"other words": {[]cachev1alpha1.Advice{cold}, []cachev1alpha1.Advice{more}, []cachev1alpha1.Advice{more}},
		"one more":    {[]cachev1alpha1.Advice{cold}, []cachev1alpha1.Advice{room, cold}, []cachev1alpha1.Advice{room}},
		"one less":    {[]cachev1alpha1.Advice{room, cold}, []cachev1alpha1.Advice{cold}, nil},
	} {
		if diff := cmp.Diff(test.want, NewAdvice(test.before, test.after), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: -want +got:\n%s", what, diff)
		}
	}
}
