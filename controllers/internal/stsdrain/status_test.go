package stsdrain_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/stsdrain"
	"example.com/memcached-operator/test/argocd"
)

var now = time.Unix(1_000_000, 0)

// input is a StatefulSet of three members at rest, with these changes.
func input(changes ...func(*stsdrain.StatusInput)) *stsdrain.StatusInput {
	in := &stsdrain.StatusInput{
		Drain:    &cachev1alpha1.StatefulSetDrain{},
		Observed: &stsdrain.Observed{Set: stsdrain.StatefulSet{Name: "queue", Exists: true, Replicas: 3}, Ready: []int32{0, 1, 2}},
		Plan:     &stsdrain.Plan{Wanted: action.Range{Count: 3}},
		Rows:     claims.Rows{Now: now},
	}
	in.Drain.Generation = 7
	for _, change := range changes {
		change(in)
	}
	return in
}

// compute is ComputeStatus. Argo CD's health has to follow from each status.
func compute(t *testing.T, in *stsdrain.StatusInput) cachev1alpha1.StatefulSetDrainStatus {
	t.Helper()
	written := in.Drain.DeepCopy()
	written.Status = stsdrain.ComputeStatus(in)
	if err := argocd.Check(written); err != nil {
		t.Error(err)
	}
	return written.Status
}

// drains adds the drain of member 3.
func drains(change func(*claims.DrainState)) func(*stsdrain.StatusInput) {
	return func(in *stsdrain.StatusInput) {
		d := claims.DrainState{Claim: claims.Claim{Name: "data-queue-3", UID: "uid", Ordinal: 3, LeavingSince: now.Add(-time.Minute), Volume: "pv"}}
		change(&d)
		in.Plan.Drains = append(in.Plan.Drains, d)
		in.Plan.Facts.Claims = append(in.Plan.Facts.Claims, d.Claim)
	}
}

func phase(p claims.DrainPhase, reason, message string) func(*stsdrain.StatusInput) {
	return drains(func(d *claims.DrainState) { d.Phase, d.Reason, d.Message = p, reason, message })
}

// Each condition has the reason and the words of the state that matters most.
func TestEachConditionSaysWhatMattersMost(t *testing.T) {
	for what, test := range map[string]struct {
		in   *stsdrain.StatusInput
		want []string
	}{
		"at rest": {input(), []string{"Degraded=False Healthy: ", "Progressing=False AsWanted: ", "Ready=True Ready: "}},
		"a member is not ready": {input(func(in *stsdrain.StatusInput) { in.Observed.Ready = in.Observed.Ready[:2] }), []string{
			"Degraded=False Healthy: ", "Progressing=False AsWanted: ", "Ready=False MembersNotReady: 2 of 3 members are ready"}},
		"replicas 0": {input(func(in *stsdrain.StatusInput) {
			in.Plan.Wanted.Count, in.Plan.NothingDeparts = 0, "StatefulSet queue has 0 replicas"
		}), []string{"Degraded=False Healthy: ", "Progressing=False AsWanted: ", "Ready=True Hibernated: StatefulSet queue has 0 replicas"}},
		"no StatefulSet": {input(func(in *stsdrain.StatusInput) {
			in.Observed.Set.Exists, in.Plan.Wanted.Count, in.Plan.NothingDeparts = false, 0, "there is no StatefulSet queue"
		}), []string{"Degraded=False Healthy: ", "Progressing=False AsWanted: ", "Ready=False NoStatefulSet: there is no StatefulSet queue"}},
		"unprotected": {input(func(in *stsdrain.StatusInput) { in.Plan.Unprotected = []string{"data-queue-0", "data-queue-1"} }), []string{
			"Degraded=False Healthy: ",
			"Progressing=True Unprotected: claim data-queue-0 has no finalizer yet (and 1 more): if its member leaves now, it is left over",
			"Ready=False Unprotected: claim data-queue-0 has no finalizer yet (and 1 more): if its member leaves now, it is left over"}},
		"draining": {input(phase(claims.Waiting, claims.InTurn, "another drain is under way")), []string{
			"Degraded=False Healthy: ",
			"Progressing=True Draining: 1 members leave or have left; member 3: another drain is under way",
			"Ready=False Draining: 1 members leave or have left; member 3: another drain is under way"}},
		"a member returns": {input(func(in *stsdrain.StatusInput) {
			in.Plan.Returned = []stsdrain.Returned{{Ordinal: 3, Waits: "Job job drains claim data-queue-3"}}
		}), []string{
			"Degraded=False Healthy: ",
			"Progressing=True Draining: member 3 is wanted again, with its data, and waits for the end of its drain: Job job drains claim data-queue-3",
			"Ready=False Draining: member 3 is wanted again, with its data, and waits for the end of its drain: Job job drains claim data-queue-3"}},
		"failed": {input(phase(claims.Failed, claims.JobGaveUp, "no route to host")), []string{
			"Degraded=True DrainFailed: member 3: JobFailed: no route to host", "Progressing=False AsWanted: ",
			"Ready=False DrainFailed: member 3: JobFailed: no route to host"}},
		"held": {input(phase(claims.Held, claims.HeldByRequest, "remove the annotation")), []string{
			"Degraded=True DrainHeld: member 3: remove the annotation", "Progressing=False AsWanted: ", "Ready=False DrainHeld: member 3: remove the annotation"}},
		"its drainer does not start": {input(phase(claims.Draining, "", ""), func(in *stsdrain.StatusInput) {
			in.Rows.Waits = map[types.UID]claims.Wait{"uid": {Reason: "ErrImagePull", Message: "no such image", Since: now.Add(-time.Hour)}}
		}), []string{"Degraded=True DrainStuck: member 3: ErrImagePull: no such image", "Progressing=True Draining: 1 members leave or have left; member 3: no such image",
			"Ready=False DrainStuck: member 3: ErrImagePull: no such image"}},
		"a claim is deleted": {input(func(in *stsdrain.StatusInput) {
			in.Plan.DeletedClaims = []claims.DeletedClaim{{Claim: action.ClaimRef{Name: "data-queue-0"}, Message: "it was deleted"}}
		}), []string{"Degraded=True ClaimDeleted: claim data-queue-0: it was deleted", "Progressing=False AsWanted: ", "Ready=False ClaimDeleted: claim data-queue-0: it was deleted"}},
		"another StatefulSetDrain": {input(func(in *stsdrain.StatusInput) {
			in.Plan.Refused = stsdrain.Refusal{Reason: cachev1alpha1.ReasonStatefulSetTaken, Message: "the other is older"}
		}), []string{"Degraded=True StatefulSetTaken: the other is older", "Progressing=False AsWanted: ", "Ready=False StatefulSetTaken: the other is older"}},
		"a Memcached's": {input(func(in *stsdrain.StatusInput) {
			in.Plan.Refused = stsdrain.Refusal{Reason: cachev1alpha1.ReasonStatefulSetOfMemcached, Message: "it is of Memcached cache"}
		}), []string{"Degraded=True StatefulSetOfMemcached: it is of Memcached cache", "Progressing=False AsWanted: ", "Ready=False StatefulSetOfMemcached: it is of Memcached cache"}},
		"the template is refused": {input(func(in *stsdrain.StatusInput) { in.Observed.Drain.TemplateRefused = "no field x" }), []string{
			"Degraded=True TemplateRefused: the API server takes no Job of spec.template: no field x", "Progressing=False AsWanted: ",
			"Ready=False TemplateRefused: the API server takes no Job of spec.template: no field x"}},
		"the rule is refused": {input(func(in *stsdrain.StatusInput) {
			in.Observed.Drain.TemplateRefused = "spec.receipt is no CEL expression"
		}), []string{
			"Degraded=True ReceiptRuleInvalid: spec.receipt is no CEL expression", "Progressing=False AsWanted: ", "Ready=False ReceiptRuleInvalid: spec.receipt is no CEL expression"}},
		"another owner's claim": {input(func(in *stsdrain.StatusInput) {
			in.Observed.Foreign = []stsdrain.Foreign{{Name: "data-queue-1", By: "Backup nightly"}, {Name: "data-queue-2"}}
		}), []string{
			"Degraded=True NameTaken: claim data-queue-1 has a member's name, and Backup nightly controls it: it is never drained (and 1 more)", "Progressing=False AsWanted: ",
			"Ready=False NameTaken: claim data-queue-1 has a member's name, and Backup nightly controls it: it is never drained (and 1 more)"}},
		"a reconcile fails": {input(func(in *stsdrain.StatusInput) { in.Err = errors.New("etcd has no leader") }), []string{
			"Degraded=True ReconcileError: etcd has no leader", "Progressing=False AsWanted: ", "Ready=False ReconcileError: etcd has no leader"}},
		"a step is refused": {input(func(in *stsdrain.StatusInput) { in.Refused = "a quota" }), []string{
			"Degraded=True StepRefused: a quota", "Progressing=False AsWanted: ", "Ready=False StepRefused: a quota"}},
		"another installation asks": {input(func(in *stsdrain.StatusInput) {
			in.OtherOperator, in.Drain.Annotations = "tenant/lease", map[string]string{cachev1alpha1.AnnotationOperator: "system/lease"}
		}), []string{
			"Degraded=True OtherOperator: installation tenant/lease of the operator watches this namespace, too, and leaves this StatefulSetDrain to installation system/lease: " +
				"limit one of them to other namespaces by --namespaces, or uninstall it", "Progressing=False AsWanted: ",
			"Ready=False OtherOperator: installation tenant/lease of the operator watches this namespace, too, and leaves this StatefulSetDrain to installation system/lease: " +
				"limit one of them to other namespaces by --namespaces, or uninstall it"}},
		"Kubernetes does not scale": {input(func(in *stsdrain.StatusInput) { in.Plan.Stalled = "member 0 is not ready" }), []string{
			"Degraded=True MembersNotReady: member 0 is not ready", "Progressing=False AsWanted: ", "Ready=False MembersNotReady: member 0 is not ready"}},
	} {
		s := compute(t, test.in)
		var got []string
		for _, c := range s.Conditions {
			got = append(got, fmt.Sprintf("%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message))
			if c.ObservedGeneration != 7 {
				t.Errorf("%s: %s is of generation %d", what, c.Type, c.ObservedGeneration)
			}
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", what, diff)
		}
	}
}

// A status that is computed from itself stays: at rest, nothing is written.
func TestAStatusThatIsComputedAgainStays(t *testing.T) {
	for what, in := range map[string]func() *stsdrain.StatusInput{
		"at rest": func() *stsdrain.StatusInput { return input() },
		"failed":  func() *stsdrain.StatusInput { return input(phase(claims.Failed, claims.JobGaveUp, "no route to host")) },
		"released": func() *stsdrain.StatusInput {
			return input(drains(func(d *claims.DrainState) { d.Phase, d.Why = claims.Releasing, action.ByReceipt }))
		},
	} {
		first := compute(t, in())
		again := in()
		again.Drain.Status = first
		again.Rows.Now = now.Add(time.Hour)
		if diff := cmp.Diff(first, compute(t, again)); diff != "" {
			t.Errorf("%s: -first +second:\n%s", what, diff)
		}
	}
}

func TestProgressIsTheSumOfWhatDrainersCount(t *testing.T) {
	in := input(phase(claims.Draining, "", ""), func(in *stsdrain.StatusInput) { in.Progress = map[types.UID]stsdrain.Count{"uid": {Done: 1, Total: 4}} })
	s := compute(t, in)
	if s.Progress != "25%" || s.Draining != 1 || s.Drains[0].Done != 1 || s.Drains[0].Total != 4 || s.Drains[0].Phase != cachev1alpha1.DrainAdding {
		t.Errorf("%+v", s)
	}
}

func TestADrainThatEndsLeavesItsMessage(t *testing.T) {
	s := compute(t, input(drains(func(d *claims.DrainState) {
		d.Phase, d.Why, d.Claim.Receipt = claims.Releasing, action.ByReceipt, &action.Receipt{Message: "3 moved"}
	})))
	if len(s.LastDrains) != 1 || s.LastDrains[0].Message != "3 moved" || s.LastDrains[0].Result != "Drained" || s.LastDrains[0].Duration.Duration != time.Minute {
		t.Errorf("%+v", s.LastDrains)
	}
}

func TestAMemberThatReturnsTwiceHasTheTimeOfTheLastReturn(t *testing.T) {
	returned := func(in *stsdrain.StatusInput) {
		in.Returned = []action.ClaimRef{{Name: "data-queue-2", Ordinal: 2}, {Name: "log-queue-2", Ordinal: 2}}
	}
	first := compute(t, input(returned))
	again := input(returned)
	again.Drain.Status, again.Rows.Now = first, now.Add(time.Hour)
	s := compute(t, again)
	if len(s.LastDrains) != 1 || !s.LastDrains[0].EndedAt.Time.Equal(now.Add(time.Hour)) {
		t.Errorf("%+v", s.LastDrains)
	}
}

func TestUnobservedSaysWhy(t *testing.T) {
	d := &cachev1alpha1.StatefulSetDrain{}
	stsdrain.Unobserved(d, errors.New("forbidden"), now)
	for _, c := range d.Status.Conditions {
		if c.Reason != cachev1alpha1.ReasonReconcileError || c.Message != "forbidden" || (c.Status == "True") != (c.Type == cachev1alpha1.ConditionDegraded) {
			t.Errorf("%+v", c)
		}
	}
	if len(d.Status.Conditions) != 2 {
		t.Errorf("%d conditions", len(d.Status.Conditions))
	}
}

// A StatefulSet may have any number of volumeClaimTemplates; the API server takes 16 claims in a row, and refuses a status
// with more.
func TestARowNamesSixteenClaimsAtMost(t *testing.T) {
	in := input()
	unit := make([]claims.Claim, 20)
	for i := range unit {
		unit[i] = claims.Claim{
			Name: fmt.Sprintf("t%02d-queue-3", i), Template: fmt.Sprintf("t%02d", i), UID: types.UID(fmt.Sprint(i)), Ordinal: 3, Volume: fmt.Sprint("pv", i),
			LeavingSince: now.Add(-time.Minute), Receipt: &action.Receipt{},
		}
	}
	in.Plan.Facts.Claims, in.Plan.Facts.Units = claims.Together(unit)
	for _, c := range in.Plan.Facts.Claims {
		in.Plan.Drains = append(in.Plan.Drains, claims.DrainState{Claim: c, Phase: claims.Releasing, Why: action.ByReceipt})
	}
	s := compute(t, in)
	const most = 16
	if len(s.Drains) != 1 || len(s.Drains[0].Claims) != most || len(s.LastDrains) != 1 || len(s.LastDrains[0].Claims) != most {
		t.Errorf("%+v, %+v", s.Drains, s.LastDrains)
	}
}
