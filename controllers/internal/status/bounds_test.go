package status

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"example.com/memcached-operator/controllers/internal/claims"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/drainer/contract"
)

func TestAMessageFitsAndEndsWithAWholeCharacter(t *testing.T) {
	for _, s := range []string{"short", strings.Repeat("a", 2000), strings.Repeat("é", 700), strings.Repeat("a", claims.MaxMessage-4) + "ééé", "\xff\xfe" + strings.Repeat("x", 2000)} {
		got := claims.BoundMessage(s)
		cut, marked := strings.CutSuffix(got, "…")
		if len(got) > claims.MaxMessage || !utf8.ValidString(got) || marked != (len(s) > claims.MaxMessage) || !strings.HasPrefix(strings.ToValidUTF8(s, ""), cut) {
			t.Errorf("%d bytes: %.20q", len(got), got)
		}
		if end := claims.Tail(s, 100); len(end) > 100 || !utf8.ValidString(end) {
			t.Errorf("the end: %d bytes: %.20q", len(end), end)
		}
	}
}

// TestStatusIsBoundedWhateverIsObserved: a scale-down from 512 members, with messages
// of any length, must not become a status that is rewritten every two seconds.
func TestStatusIsBoundedWhateverIsObserved(t *testing.T) {
	huge := strings.Repeat("é", 100<<10)
	in := input(600)
	in.Plan.Replicas = 1
	in.Err = errors.New(huge)
	in.GrowthRefused = huge
	in.Refused = &Refusal{Why: huge}
	in.Room = &plan.Room{Unknown: huge}
	in.Monitoring = MonitoringUnknown
	in.Cluster.Spec.Binding, in.Binding = &cachev1alpha1.BindingSpec{SecretName: "s"}, &Binding{Reason: cachev1alpha1.ReasonBindingForbidden, Message: huge}
	in.Progress, in.Waits = map[types.UID]contract.Progress{}, map[types.UID]claims.Wait{}
	for i := range int32(511) {
		phase := []claims.DrainPhase{claims.Waiting, claims.Waiting, claims.Waiting, claims.Waiting, claims.Failed, claims.Draining, claims.Held}[i%7]
		in.leaving(511-i, phase, huge, huge)
		in.toMove(i, plan.MoveRuns, huge, huge)
		in.Waits[in.Plan.Moves[i].Claim.UID] = claims.Wait{Reason: huge, Message: huge}
		in.Progress[in.Plan.Drains[i].Claim.UID] = contract.Progress{Phase: contract.PhaseAdding, Message: huge}
		in.Plan.SmallClaims = append(in.Plan.SmallClaims, action.ClaimRef{Name: huge})
		in.Pods[i].Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "memcached", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: huge, Message: huge}},
		}}
	}
	s := compute(t, in)
	for _, c := range s.Conditions {
		if len(c.Message) > claims.MaxMessage || !utf8.ValidString(c.Message) {
			t.Errorf("the message of %s has %d bytes", c.Type, len(c.Message))
		}
	}
	for _, d := range s.Drains {
		if len(d.Message) > claims.MaxMessage || len(d.Reason) > claims.MaxReason {
			t.Errorf("drain of %s: reason of %d, message of %d bytes", d.Claim, len(d.Reason), len(d.Message))
		}
	}
	if len(s.Drains) != claims.MostDrains || s.Draining != 511 || len(s.Nodes) != maxNodes || s.Size != 600 {
		t.Errorf("%d drains listed of %d, %d nodes of %d", len(s.Drains), s.Draining, len(s.Nodes), s.Size)
	}
	if b, err := json.Marshal(s); err != nil || len(b) > 96<<10 {
		t.Errorf("the status has %d bytes: %v", len(b), err)
	}
}

// A large scale-down lists the drains that matter.
func TestTheDrainsThatAreListedAreThoseThatMatter(t *testing.T) {
	in := input(1)
	for i := range int32(100) {
		in.leaving(100-i, claims.Waiting, claims.InTurn, "")
	}
	in.Plan.Drains[97].Phase, in.Plan.Drains[98].Phase, in.Plan.Drains[99].Phase = claims.Failed, claims.Draining, claims.Held
	s := compute(t, in)
	var got []int32
	for _, d := range s.Drains {
		got = append(got, d.Ordinal)
	}
	var want []int32
	for i := range int32(claims.MostDrains - 3) {
		want = append(want, 100-i)
	}
	if diff := cmp.Diff(append(want, 3, 2, 1), got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if !slices.IsSortedFunc(s.Drains, func(a, b cachev1alpha1.DrainStatus) int { return int(b.Ordinal - a.Ordinal) }) {
		t.Error("they are not sorted")
	}
	if s.Draining != 100 || s.Progress != fmt.Sprintf("1 Failed, 1 Held, 1 Starting, %d Waiting", 97) {
		t.Errorf("%d draining, %s", s.Draining, s.Progress)
	}
}
