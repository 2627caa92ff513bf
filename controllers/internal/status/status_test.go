package status

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/identity"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/drainer/contract"
)

var now = time.Unix(5000, 0)

// input is a cluster with storage of that size, with as many ready pods.
func input(size int32) *Input {
	in := &Input{
		Cluster: apitest.MakeMemcached("cache").Namespace("shop").Storage("128Mi").Size(size).Defaulted().Obj(),
		Plan:    plan.Plan{Size: plan.Size{Replicas: size}},
		Now:     now,
	}
	in.Cluster.Generation = 7
	for i := range size {
		in.Pods = append(in.Pods, pod(i, true))
	}
	return in
}

func pod(ordinal int32, ready bool) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("cache-%d", ordinal), CreationTimestamp: metav1.NewTime(now)}}
	p.Status.Phase = corev1.PodRunning
	if ready {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	return p
}

func (in *Input) with(change func(*Input)) *Input {
	change(in)
	return in
}

// leaving adds a claim that is to be drained.
func (in *Input) leaving(ordinal int32, phase claims.DrainPhase, reason, message string) *Input {
	uid := types.UID(fmt.Sprintf("uid-%d", ordinal))
	d := claims.DrainState{
		Claim: claims.Claim{Name: fmt.Sprintf("data-cache-%d", ordinal), UID: uid, Ordinal: ordinal, LeavingSince: time.Unix(4000, 0)},
		Phase: phase, Reason: reason, Message: message,
	}
	if phase == claims.Releasing {
		d.Why = action.ByReceipt
		d.Claim.Receipt = plan.ReceiptOf(&contract.Receipt{Version: 1, Source: string(uid), Complete: true, Clean: true, Found: 3, Outcomes: contract.Outcomes{Added: 2, Expired: 1}})
	}
	in.Plan.Drains = append(in.Plan.Drains, d)
	return in
}

func TestConditionsAndPhaseTellTheState(t *testing.T) {
	unready := func(in *Input) { in.Pods[0] = pod(0, false) }
	deleting := func(in *Input) { in.Cluster.DeletionTimestamp = &metav1.Time{Time: now} }
	blocked := func(size int32, by plan.Block) func(*Input) {
		return func(in *Input) { in.Cluster.Spec.Size, in.Plan.SizeBlocked = ptr.To(size), by }
	}
	invalid := apierrors.NewInvalid(schema.GroupKind{Group: "apps", Kind: "StatefulSet"}, "cache", nil)
	// Available, Progressing, Degraded, Draining: "+" is true, "-" false; empty if there is no such condition.
	for name, test := range map[string]struct {
		in    *Input
		want  [4]string
		phase cachev1alpha1.Phase
	}{
		"as wanted": {
			input(3), [4]string{"+Ready", "-AsWanted", "-Healthy", ""}, cachev1alpha1.PhaseRunning,
		},
		"members come up for the first time": {
			input(3).with(unready), [4]string{"-MembersNotReady", "+Scaling", "-Healthy", ""}, cachev1alpha1.PhasePending,
		},
		"a member of a running cluster is not ready": {
			input(3).with(unready).with(func(in *Input) { in.Cluster.Status.Phase = cachev1alpha1.PhaseRunning }),
			[4]string{"-MembersNotReady", "+Scaling", "-Healthy", ""}, cachev1alpha1.PhaseScaling,
		},
		"hibernated": {
			input(0), [4]string{"-Hibernated", "-AsWanted", "-Healthy", ""}, cachev1alpha1.PhaseHibernated,
		},
		"a plain cluster of none": {
			input(0).with(func(in *Input) { in.Cluster.Spec.Storage = nil }),
			[4]string{"-ScaledToZero", "-AsWanted", "-Healthy", ""}, cachev1alpha1.PhaseRunning,
		},
		"a drain runs": {
			input(2).leaving(2, claims.Draining, "", ""),
			[4]string{"+Ready", "-AsWanted", "-Healthy", "+Draining"}, cachev1alpha1.PhaseDraining,
		},
		"up while a drain runs": {
			input(2).leaving(2, claims.Draining, "", "").with(blocked(3, plan.BlockedByDrain)),
			[4]string{"-MembersNotReady", "+WaitingForDrain", "-Healthy", "+Draining"}, cachev1alpha1.PhaseDraining,
		},
		"up while a drain waits for its pod": {
			input(2).leaving(2, claims.Waiting, claims.PodPresent, "wait").with(blocked(3, plan.BlockedByVolume)),
			[4]string{"-MembersNotReady", "+WaitingForDrain", "-Healthy", "+Draining"}, cachev1alpha1.PhaseDraining,
		},
		"up past a failed drain": {
			input(2).leaving(2, claims.Failed, "SourceCorrupt", "torn").with(blocked(3, plan.BlockedByVolume)),
			[4]string{"-MembersNotReady", "-BlockedByVolume", "+DrainFailed", "-DrainFailed"}, cachev1alpha1.PhaseDegraded,
		},
		"up past a retained volume": {
			input(2).with(blocked(3, plan.BlockedByVolume)),
			[4]string{"-MembersNotReady", "-BlockedByVolume", "+BlockedByVolume", ""}, cachev1alpha1.PhaseDegraded,
		},
		"held": {
			input(2).leaving(2, claims.Held, claims.HeldByRequest, "remove it"),
			[4]string{"+Ready", "-AsWanted", "+DrainHeld", "-DrainHeld"}, cachev1alpha1.PhaseDegraded,
		},
		"one failed, one runs": {
			input(1).leaving(2, claims.Failed, "SourceCorrupt", "torn").leaving(1, claims.Draining, "", ""),
			[4]string{"+Ready", "-AsWanted", "+DrainFailed", "+Draining"}, cachev1alpha1.PhaseDegraded,
		},
		"a member's claim was deleted": {
			input(2).with(func(in *Input) {
				in.Plan.DeletedClaims = []claims.DeletedClaim{{Claim: action.ClaimRef{Name: "data-cache-1"}, Message: "it was deleted"}}
			}),
			[4]string{"+Ready", "-AsWanted", "+ClaimDeleted", ""}, cachev1alpha1.PhaseDegraded,
		},
		"the spec is refused": {
			input(2).with(func(in *Input) { in.Err = fmt.Errorf("apply members: %w", invalid) }),
			[4]string{"+Ready", "-AsWanted", "+InvalidSpec", ""}, cachev1alpha1.PhaseDegraded,
		},
		"the API server does not answer": {
			input(2).with(func(in *Input) { in.Err = errors.New("connection refused") }),
			[4]string{"+Ready", "-AsWanted", "+ReconcileError", ""}, cachev1alpha1.PhaseDegraded,
		},
		"another owner has the name": {
			input(2).with(func(in *Input) {
				in.Err = fmt.Errorf("apply: %w", &identity.NameTakenError{Kind: "Service", Name: "cache"})
			}),
			[4]string{"+Ready", "-AsWanted", "+NameTaken", ""}, cachev1alpha1.PhaseDegraded,
		},
		"being deleted": {
			input(2).with(deleting), [4]string{"-Deleting", "+Deleting", "-Healthy", ""}, cachev1alpha1.PhaseDeleting,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := compute(t, test.in)
			var got [4]string
			for i, kind := range []string{
				cachev1alpha1.ConditionAvailable, cachev1alpha1.ConditionProgressing,
				cachev1alpha1.ConditionDegraded, cachev1alpha1.ConditionDraining,
			} {
				c := meta.FindStatusCondition(s.Conditions, kind)
				if c == nil && test.want[i] == "" {
					continue
				}
				if c == nil || c.Message == "" || c.ObservedGeneration != 7 {
					t.Fatalf("condition %s: %+v", kind, c)
				}
				got[i] = map[metav1.ConditionStatus]string{"True": "+", "False": "-"}[c.Status] + c.Reason
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("conditions: -want +got:\n%s", diff)
			}
			if s.Phase != test.phase {
				t.Errorf("phase %s, want %s", s.Phase, test.phase)
			}
		})
	}
}

func TestStatusOfAStatusIsTheSame(t *testing.T) {
	for name, in := range map[string]*Input{
		"as wanted":     input(3),
		"a drain runs":  input(2).leaving(2, claims.Draining, "", ""),
		"a drain ended": input(2).leaving(2, claims.Releasing, "", ""),
		"other keys":    input(3).with(func(in *Input) { in.Cluster.Spec.Routing.Client = "gomemcache" }),
	} {
		t.Run(name, func(t *testing.T) {
			first := compute(t, in)
			in.Cluster.Status = first
			in.Now = now.Add(time.Hour)
			if diff := cmp.Diff(first, compute(t, in)); diff != "" {
				t.Errorf("an hour later, with nothing changed: -first +second:\n%s", diff)
			}
		})
	}
}

func TestOnlyMembersThatLiveAreCounted(t *testing.T) {
	in := input(10)
	in.Pods[1] = pod(1, false)
	in.Pods[2].DeletionTimestamp = &metav1.Time{Time: now}
	in.Pods[3].Status.Phase = corev1.PodFailed
	in.Pods = append(in.Pods, pod(11, true), pod(10, true))
	s := compute(t, in)
	if s.Size != 10 || s.ReadySize != 9 {
		t.Errorf("size %d, ready %d; want 10 and 9", s.Size, s.ReadySize)
	}
	want := []string{"cache-0", "cache-1", "cache-4", "cache-5", "cache-6", "cache-7", "cache-8", "cache-9", "cache-10", "cache-11"}
	if diff := cmp.Diff(want, s.Nodes); diff != "" {
		t.Errorf("nodes: -want +got:\n%s", diff)
	}
}

func TestStatusHasTheServersThatTheClientsAreGiven(t *testing.T) {
	in := input(3)
	in.Servers = []string{"cache-0.cache.shop.svc:11211", "cache-1.cache.shop.svc:11211"}
	if diff := cmp.Diff(in.Servers, compute(t, in).Servers); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// The ServiceMonitor that exists has its name in status, so that it is found when it is not asked for
// any more.
func TestAMissingServiceMonitorKindIsToldAndNeedsNoPerson(t *testing.T) {
	for _, test := range []struct {
		monitoring        Monitoring
		before            string
		condition, exists string
	}{
		{Monitored, "", "", "cache"},
		{MonitoringUnknown, "cache", cachev1alpha1.ReasonServiceMonitorUnknown, ""},
		{NotMonitored, "cache", "", ""},
		{MonitoringUnseen, "cache", "", "cache"},
	} {
		in := input(3)
		in.Monitoring, in.Cluster.Status.ServiceMonitor = test.monitoring, test.before
		s := compute(t, in)
		if c := meta.FindStatusCondition(s.Conditions, cachev1alpha1.ConditionMonitored); reasonOf(c) != test.condition || c != nil && c.Status != metav1.ConditionFalse {
			t.Errorf("%+v: condition %+v", test, c)
		}
		if s.ServiceMonitor != test.exists {
			t.Errorf("%+v: status names %q", test, s.ServiceMonitor)
		}
		if meta.IsStatusConditionTrue(s.Conditions, cachev1alpha1.ConditionDegraded) {
			t.Errorf("%+v: the cluster is degraded", test)
		}
	}
}

// reasonOf a condition; empty if there is none.
func reasonOf(c *metav1.Condition) string {
	if c == nil {
		return ""
	}
	return c.Reason
}

func messageOf(c *metav1.Condition) string {
	if c == nil {
		return ""
	}
	return c.Message
}

func TestProgressIsShownPerDrainAndInOneLine(t *testing.T) {
	moving := contract.Progress{Phase: contract.PhaseAdding, ItemsDone: 10, ItemsTotal: 40, BytesDone: 1, BytesTotal: 4, Message: "waits"}
	unknown := contract.Progress{Phase: contract.PhaseAdding, ItemsDone: 10, BytesDone: 1, BytesTotal: 2}
	for name, test := range map[string]struct {
		in   *Input
		line string
		want []cachev1alpha1.DrainStatus
	}{
		"none": {input(2), "", nil},
		"the Job's pod does not run yet": {
			input(2).leaving(2, claims.Draining, "", "").with(func(in *Input) {
				in.JobStarted = map[types.UID]metav1.Time{"uid-2": metav1.NewTime(time.Unix(4500, 0))}
			}),
			"Starting",
			[]cachev1alpha1.DrainStatus{{
				Claim: "data-cache-2", Ordinal: 2, Phase: cachev1alpha1.DrainStarting, StartedAt: &metav1.Time{Time: time.Unix(4500, 0)},
			}},
		},
		"the drainer is at work": {
			input(2).leaving(2, claims.Draining, "", "").with(func(in *Input) { in.Progress = map[types.UID]contract.Progress{"uid-2": moving} }),
			"25% (10/40 items)",
			[]cachev1alpha1.DrainStatus{{
				Claim: "data-cache-2", Ordinal: 2, Phase: cachev1alpha1.DrainAdding,
				ItemsDone: 10, ItemsTotal: 40, BytesDone: 1, BytesTotal: 4,
				Reason: "SurvivorUnreachable", Message: "waits",
			}},
		},
		"the number of items is unknown": {
			input(2).leaving(2, claims.Draining, "", "").with(func(in *Input) { in.Progress = map[types.UID]contract.Progress{"uid-2": unknown} }),
			"50% (10 items)",
			[]cachev1alpha1.DrainStatus{{Claim: "data-cache-2", Ordinal: 2, Phase: cachev1alpha1.DrainAdding, ItemsDone: 10, BytesDone: 1, BytesTotal: 2}},
		},
		"its log could not be read this time": {
			input(2).leaving(2, claims.Draining, "", "").with(func(in *Input) {
				in.Cluster.Status.Drains = []cachev1alpha1.DrainStatus{{Claim: "data-cache-2", Ordinal: 2, Phase: cachev1alpha1.DrainAdding, ItemsDone: 9, BytesTotal: 9}}
			}),
			"0% (9 items)",
			[]cachev1alpha1.DrainStatus{{Claim: "data-cache-2", Ordinal: 2, Phase: cachev1alpha1.DrainAdding, ItemsDone: 9, BytesTotal: 9}},
		},
		"several that don't move": {
			input(1).leaving(3, claims.Failed, "SourceCorrupt", "torn").leaving(2, claims.Waiting, claims.InTurn, "wait").leaving(1, claims.Waiting, claims.InTurn, "wait"),
			"1 Failed, 2 Waiting",
			[]cachev1alpha1.DrainStatus{
				{Claim: "data-cache-3", Ordinal: 3, Phase: cachev1alpha1.DrainFailed, Reason: "SourceCorrupt", Message: "torn"},
				{Claim: "data-cache-2", Ordinal: 2, Phase: cachev1alpha1.DrainWaiting, Reason: "InTurn", Message: "wait"},
				{Claim: "data-cache-1", Ordinal: 1, Phase: cachev1alpha1.DrainWaiting, Reason: "InTurn", Message: "wait"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := compute(t, test.in)
			if s.Progress != test.line || s.Draining != int32(len(test.want)) {
				t.Errorf("%d draining, %q; want %q", s.Draining, s.Progress, test.line)
			}
			if diff := cmp.Diff(test.want, s.Drains, cmpopts.IgnoreFields(cachev1alpha1.DrainStatus{}, "LeavingSince", "Since")); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestLastDrainsHaveEachOnceNewestFirstFiveAtMost(t *testing.T) {
	in := input(1)
	for ordinal := int32(7); ordinal > 0; ordinal-- {
		in.Plan.Drains = nil
		in.leaving(ordinal, claims.Releasing, "", "")
		for range 2 { // two reconciles see it
			in.Cluster.Status = compute(t, in)
			in.Now = in.Now.Add(time.Second)
		}
	}
	var got []string
	for _, r := range in.Cluster.Status.LastDrains {
		got = append(got, r.ClaimUID)
	}
	if diff := cmp.Diff([]string{"uid-1", "uid-2", "uid-3", "uid-4", "uid-5"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	want := cachev1alpha1.DrainReceipt{
		Claim: "data-cache-7", ClaimUID: "uid-7", Result: "Drained", Found: 3, Added: 2, Expired: 1, Duration: &metav1.Duration{Duration: 1000 * time.Second}, EndedAt: metav1.NewTime(now),
	}
	last := compute(t, input(1).leaving(7, claims.Releasing, "", "")).LastDrains
	if diff := cmp.Diff([]cachev1alpha1.DrainReceipt{want}, last); diff != "" {
		t.Errorf("the first: -want +got:\n%s", diff)
	}
}

func TestLastDrainsHaveTheReasonThatAClaimWentForInTheEnd(t *testing.T) {
	in := input(1).leaving(1, claims.Releasing, "", "")
	in.Plan.Drains[0].Why = action.NeverBound
	in.Cluster.Status = compute(t, in)
	in.Plan.Drains[0].Why = action.ByReceipt // it was bound after all, and drained
	if got := compute(t, in).LastDrains; len(got) != 1 || got[0].Result != "Drained" || got[0].Found != 3 {
		t.Errorf("%+v", got)
	}
}

func TestDrainThatWasGivenUpShowsNoReceiptsNumbers(t *testing.T) {
	in := input(1).leaving(1, claims.Releasing, "", "")
	in.Plan.Drains[0].Why = action.BySkip
	got := compute(t, in).LastDrains[0]
	if got.Result != "Skipped" || got.Found != 0 {
		t.Errorf("%+v", got)
	}
}

func TestSelectorIsWhatTheScaleSubresourceNeeds(t *testing.T) {
	want := "app.kubernetes.io/component=member,app.kubernetes.io/instance=cache,app.kubernetes.io/name=memcached"
	if got := compute(t, input(1)).Selector; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAMemberThatDoesNotEndSaysOnWhichNodeAndSinceWhen(t *testing.T) {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "cache-2", DeletionTimestamp: &metav1.Time{Time: now}, DeletionGracePeriodSeconds: ptr.To[int64](60),
	}, Spec: corev1.PodSpec{NodeName: "node-2"}}
	in := input(2).leaving(2, claims.Waiting, claims.PodPresent, "it shuts down").with(func(in *Input) { in.Pods = append(in.Pods, pod) })
	want := "it shuts down: on node-2, since 1970-01-01T01:22:20Z"
	if got := compute(t, in).Drains[0].Message; got != want {
		t.Errorf("want message %q, got %q", want, got)
	}
}

func TestStatusNamesTheBindingThatIsThere(t *testing.T) {
	spec := &cachev1alpha1.BindingSpec{SecretName: "cache-binding"}
	named := &cachev1alpha1.BindingStatus{Name: "cache-binding"}
	written := &Binding{Name: "cache-binding"}
	forbidden := &Binding{Reason: cachev1alpha1.ReasonBindingForbidden}
	for name, test := range map[string]struct {
		spec   *cachev1alpha1.BindingSpec
		is     *cachev1alpha1.BindingStatus
		found  *Binding
		want   *cachev1alpha1.BindingStatus
		reason string
	}{
		"none is asked for":              {nil, nil, &Binding{}, nil, ""},
		"none any more":                  {nil, named, &Binding{}, nil, ""},
		"it is written":                  {spec, nil, written, named, ""},
		"a right lacks":                  {spec, nil, forbidden, nil, cachev1alpha1.ReasonBindingForbidden},
		"not looked yet":                 {spec, nil, nil, nil, cachev1alpha1.ReasonBindingIncomplete},
		"nothing was read: it is as was": {spec, named, nil, named, ""},
	} {
		in := input(3)
		in.Cluster.Spec.Binding, in.Cluster.Status.Binding, in.Binding = test.spec, test.is, test.found
		s := compute(t, in)
		c := meta.FindStatusCondition(s.Conditions, cachev1alpha1.ConditionBindable)
		if reasonOf(c) != test.reason || c != nil && c.Status != metav1.ConditionFalse {
			t.Errorf("%s: want %q, got %v", name, test.reason, c)
		}
		if diff := cmp.Diff(test.want, s.Binding); diff != "" {
			t.Errorf("%s: status.binding: -want +got:\n%s", name, diff)
		}
	}
}
