package status

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"example.com/memcached-operator/controllers/internal/claims"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/drainer/contract"
)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

// ended is a container's end that long ago, after it ran for that long.
func ended(code int32, message string, after, since time.Duration) *corev1.ContainerStateTerminated {
	return &corev1.ContainerStateTerminated{ExitCode: code, Message: message, Reason: "Error", StartedAt: ago(since + after), FinishedAt: ago(since)}
}

func waiting(reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}

func running(since time.Duration) corev1.ContainerState {
	return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: ago(since)}}
}

// Attempts that end because a survivor doesn't answer count as one wait, though each
// begins with a new pod. Otherwise the alert would never fire.
func TestAttemptsThatEndForASurvivorAreOneWait(t *testing.T) {
	in := input(2).leaving(2, claims.Draining, "", "")
	in.Waits = map[types.UID]claims.Wait{"uid-2": {Reason: "ContainerCreating"}}
	began := now.Add(-2 * time.Minute)
	in.Cluster.Status.Drains = []cachev1alpha1.DrainStatus{{
		Claim: "data-cache-2", Phase: cachev1alpha1.DrainAdding, Reason: cachev1alpha1.ReasonSurvivorUnreachable, Since: &metav1.Time{Time: began},
	}}
	if s := compute(t, in); !s.Drains[0].Since.Time.Equal(began) {
		t.Errorf("it waits since %s, want %s", s.Drains[0].Since, began)
	}
	in.Waits, in.Progress = nil, map[types.UID]contract.Progress{"uid-2": {Phase: contract.PhaseAdding}}
	if s := compute(t, in); !s.Drains[0].Since.Time.Equal(now) {
		t.Errorf("it is at work since %s, want now", s.Drains[0].Since)
	}
}

// member gives the container of that member's pod a status.
func member(ordinal int, c corev1.ContainerStatus) func(*Input) {
	return func(in *Input) {
		in.Pods[ordinal].Status.Conditions = nil
		if c.Name == "" {
			c.Name = "memcached"
		}
		if c.Name == "install" {
			in.Pods[ordinal].Status.InitContainerStatuses = []corev1.ContainerStatus{c}
			return
		}
		in.Pods[ordinal].Status.ContainerStatuses = []corev1.ContainerStatus{c}
	}
}

func TestDegradedNamesAMemberBelowTheMinimumVersion(t *testing.T) {
	message := fmt.Sprintf(`{"reason":%q,"message":"it is memcached 1.6.9"}`, contract.ReasonVersionTooOld)
	s := compute(t, input(2).with(member(1, corev1.ContainerStatus{
		RestartCount: 1, State: waiting("CrashLoopBackOff", "back-off 10s"),
		LastTerminationState: corev1.ContainerState{Terminated: ended(1, message, time.Second, time.Second)},
	})))
	want := "pod cache-1 does not start: it is memcached 1.6.9; let spec.image have memcached " + contract.OldestMemcached + " or later"
	c := meta.FindStatusCondition(s.Conditions, cachev1alpha1.ConditionDegraded)
	if c == nil || c.Status != metav1.ConditionTrue || c.Reason != contract.ReasonVersionTooOld || !strings.Contains(c.Message, want) {
		t.Errorf("%+v, want %q", c, want)
	}
}

func TestDegradedHasTheWordsOfWhatIsWrong(t *testing.T) {
	const words = "drainer: the volume is empty\nmax memory must be at least 39 megabytes\ndrainer: memcached ended by itself, exit code 64\n"
	loop := func(message string) corev1.ContainerStatus {
		return corev1.ContainerStatus{
			RestartCount: 1, State: waiting("CrashLoopBackOff", "back-off 10s"),
			LastTerminationState: corev1.ContainerState{Terminated: ended(64, message, time.Second, time.Second)},
		}
	}
	restarted := func(n int32, ran, since, back time.Duration) corev1.ContainerStatus {
		return corev1.ContainerStatus{
			RestartCount: n, State: running(back), LastTerminationState: corev1.ContainerState{Terminated: ended(1, "", ran, since)},
		}
	}
	scheduled := func(since time.Duration) func(*Input) {
		return func(in *Input) {
			in.Pods[1].CreationTimestamp = ago(since)
			in.Pods[1].Status.Conditions = []corev1.PodCondition{{
				Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/3 nodes are available: 3 Insufficient memory.",
				LastTransitionTime: ago(since),
			}}
		}
	}
	terminating := func(left time.Duration) func(*Input) {
		return func(in *Input) {
			in.Pods[1].DeletionTimestamp, in.Pods[1].Spec.NodeName = ptr.To(metav1.NewTime(now.Add(left))), "node-b"
		}
	}
	drainerEnds := func(left time.Duration) func(*Input) {
		return func(in *Input) {
			p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "drainer", DeletionTimestamp: ptr.To(metav1.NewTime(now.Add(left)))}, Spec: corev1.PodSpec{NodeName: "node-b"}}
			in.Drainers = []corev1.Pod{p}
		}
	}
	attempts := func(failed int32) func(*Input) {
		return func(in *Input) { in.Plan.Drains[0].Claim.Attempts.Failed = failed }
	}
	drainWaits := func(reason string, since time.Duration) *Input {
		in := input(2).leaving(2, claims.Draining, "", "")
		in.Waits = map[types.UID]claims.Wait{"uid-2": {Reason: reason, Message: "its words"}}
		in.Cluster.Status.Drains = []cachev1alpha1.DrainStatus{{
			Claim: "data-cache-2", Phase: cachev1alpha1.DrainStarting, Reason: reason, Since: ptr.To(ago(since)),
		}}
		return in
	}
	moveWaits := func(reason string, since time.Duration) *Input {
		in := input(2).toMove(0, plan.MoveRuns, "", "")
		in.Waits = map[types.UID]claims.Wait{in.Plan.Moves[0].Claim.UID: {Reason: reason, Message: "its words", Since: now.Add(-since)}}
		return in
	}
	replicaFailure := func(in *Input) {
		in.Cluster.Spec.Storage = nil
		in.Deployment = &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "cache"}}
		in.Deployment.Status.Conditions = []appsv1.DeploymentCondition{{
			Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Message: `pods "cache-x" is forbidden: exceeded quota`,
		}}
	}
	unreadySince := func(d time.Duration) func(*Input) {
		return func(in *Input) {
			in.Pods[1].CreationTimestamp = ago(time.Hour)
			in.Pods[1].Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: ago(d)}}
		}
	}
	for name, test := range map[string]struct {
		in      *Input
		reason  string
		message string
		dueIn   time.Duration
	}{
		"memcached's words":              {input(2).with(member(1, loop(words))), "CrashLoop", "pod cache-1, container memcached: it ends again and again: exit code 64: drainer: the volume is empty; max memory must be at least 39 megabytes", 0},
		"the supervisor's words":         {input(2).with(member(1, loop(`{"reason":"Other","message":"no room"}`))), "CrashLoop", "exit code 64: no room", 0},
		"what it foretold":               {input(2).with(member(1, loop(`{"coldStartNeedsBytes":5,"freeBytes":1}`))), "CrashLoop", "exit code 64; see kubectl logs --previous", 0},
		"a full volume is another thing": {input(2).with(member(1, loop(`{"reason":"VolumeFull","message":"save.new: no space left on device"}`))), "VolumeFull", "pod cache-1 has ended, its volume is full: save.new: no space left on device; raise storage.size", 0},
		"so is one that is read-only":    {input(2).with(member(1, loop(`{"reason":"VolumeReadOnly","message":"manifest.json: read-only file system"}`))), "VolumeReadOnly", "pod cache-1 has ended, its volume is read-only: manifest.json", 0},
		"a reason of another program":    {input(2).with(member(1, loop(`{"reason":"Whatever","message":"words"}`))), "CrashLoop", "words", 0},
		"a secret is another thing":      {input(2).with(member(1, loop(`{"reason":"SecretInvalid","message":"tls.crt is missing"}`))), "SecretInvalid", "tls.crt is missing", 0},
		"killed for its memory": {input(2).with(member(0, corev1.ContainerStatus{
			RestartCount: 3, State: waiting("CrashLoopBackOff", ""), LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}},
		})), "CrashLoop", "OOMKilled, exit code 137", 0},
		"all of them":           {input(3).with(member(0, loop(words))).with(member(1, loop(words))).with(member(2, loop(words))), "CrashLoop", "(and 2 more pods)", 0},
		"an init container":     {input(2).with(member(1, corev1.ContainerStatus{Name: "install", RestartCount: 2, State: waiting("CrashLoopBackOff", "")})), "CrashLoop", "container install: it ends again and again", 0},
		"it has just ended":     {input(2).with(member(1, corev1.ContainerStatus{RestartCount: 2, State: corev1.ContainerState{Terminated: ended(1, "oh", time.Second, 0)}})), "CrashLoop", "oh", 0},
		"crashed once":          {input(2).with(member(1, corev1.ContainerStatus{State: corev1.ContainerState{Terminated: ended(1, "", time.Second, 0)}})), "Healthy", "", slowAfter},
		"crashed once, is back": {input(2).with(member(1, restarted(1, time.Second, 2*time.Second, time.Second))), "Healthy", "", slowAfter},
		"runs for a moment":     {input(2).with(member(1, restarted(3, 5*time.Second, 11*time.Second, 10*time.Second))), "CrashLoop", "exit code 1", 55 * time.Second},
		"outlived its last run": {input(2).with(member(1, restarted(3, 5*time.Second, 70*time.Second, 66*time.Second))), "Healthy", "", slowAfter},
		"crashes each week":     {input(2).with(member(1, restarted(3, 100*time.Hour, time.Minute, time.Second))), "Healthy", "", slowAfter},
		"a node was restarted":  {input(2).with(member(1, corev1.ContainerStatus{Name: "install", RestartCount: 4, State: corev1.ContainerState{Terminated: ended(0, "", time.Second, 0)}})), "Healthy", "", slowAfter},

		"the image of an init container": {input(2).with(member(1, corev1.ContainerStatus{Name: "install", State: waiting("ImagePullBackOff", "Back-off pulling image \"x\"")})), "ImageUnavailable", "pod cache-1, container install: ImagePullBackOff: Back-off pulling image \"x\"", 0},
		"the image of a member":          {input(2).with(member(0, corev1.ContainerStatus{State: waiting("ErrImagePull", "not found")})), "ImageUnavailable", "ErrImagePull: not found", 0},
		"an image's name":                {input(2).with(member(0, corev1.ContainerStatus{State: waiting("InvalidImageName", "couldn't parse")})), "ImageUnavailable", "couldn't parse", 0},
		"a container can't be made":      {input(2).with(member(0, corev1.ContainerStatus{State: waiting("CreateContainerConfigError", `secret "s" not found`)})), "ContainerNotCreated", `CreateContainerConfigError: secret "s" not found`, 0},
		"a container is being made":      {input(2).with(member(0, corev1.ContainerStatus{State: waiting("ContainerCreating", "")})), "Healthy", "", slowAfter},

		"no node, for long":             {input(2).with(scheduled(time.Minute)), "Unschedulable", "pod cache-1 has no node since 1970-01-01T01:22:20Z: 0/3 nodes are available: 3 Insufficient memory.", 0},
		"no node yet":                   {input(2).with(scheduled(time.Second)), "Healthy", "", 59 * time.Second},
		"it does not end":               {input(2).with(terminating(-time.Minute)), "MemberDoesNotEnd", "pod cache-1 should have ended by 1970-01-01T01:22:20Z, and node node-b", 0},
		"it ends":                       {input(2).with(terminating(30 * time.Second)), "Healthy", "", 90 * time.Second},
		"not ready, for no known cause": {input(2).with(unreadySince(10 * time.Minute)), "MembersNotReady", "pod cache-1 has not been ready since", 0},
		"not ready yet":                 {input(2).with(unreadySince(9 * time.Minute)), "Healthy", "", time.Minute},
		"a quota, with storage":         {input(2).with(func(in *Input) { in.NotCreated = &NotCreated{"StatefulSet cache", "exceeded quota"} }), "PodNotCreated", "StatefulSet cache can't create a pod: exceeded quota", 0},
		"a quota, without":              {input(2).with(replicaFailure), "PodNotCreated", `Deployment cache can't create a pod: pods "cache-x" is forbidden: exceeded quota`, 0},
		"refused for a minute":          {input(2).with(func(in *Input) { in.Refused = &Refusal{now.Add(-time.Minute), "Job j has another owner"} }), "StepRefused", "since 1970-01-01T01:22:20Z: Job j has another owner", 0},
		"refused just now":              {input(2).with(func(in *Input) { in.Refused = &Refusal{now, "the cache is stale"} }), "Healthy", "", time.Minute},
		"blocked by a kept volume":      {input(2).with(func(in *Input) { in.Cluster.Spec.Size, in.Plan.SizeBlocked = ptr.To[int32](3), plan.BlockedByVolume }), "BlockedByVolume", "the size can't go from 2 to 3", 0},
		"blocked by too little room":    {input(3).with(func(in *Input) { in.Cluster.Spec.Size, in.Plan.SizeBlocked = ptr.To[int32](2), plan.BlockedByShortage }), "ShortOfMemory", "from 3 to 2", 0},
		"a mark is refused": {input(3).with(func(in *Input) {
			in.Cluster.Spec.Size, in.Plan.SizeBlocked, in.Plan.SizeRefused = ptr.To[int32](2), plan.BlockedByRefusal, "a policy says no"
		}), "Refused", "the size goes from 3 to 2 when the claims of the leaving members can be marked, which is tried again in a moment: a policy says no", 0},
		"volumes may not grow": {input(3).with(func(in *Input) {
			in.Plan.SmallClaims, in.GrowthRefused = make([]action.ClaimRef, 3), "the class says no"
		}), "VolumesCannotGrow", "3 volumes are smaller than storage.size, and can't grow: the class says no", 0},
		"a drainer without an image":      {drainWaits("ImagePullBackOff", 0), "DrainStuck", "claim data-cache-2: ImagePullBackOff: its words", 0},
		"a drainer that can't be made":    {drainWaits("PodNotCreated", 0), "DrainStuck", "its words", 0},
		"a drainer without a node":        {drainWaits("Unschedulable", time.Minute), "DrainStuck", "claim data-cache-2: Unschedulable: its words", 0},
		"a drainer without a node yet":    {drainWaits("Unschedulable", 20*time.Second), "Healthy", "", 40 * time.Second},
		"a drainer that is being made":    {drainWaits("ContainerCreating", time.Minute), "Healthy", "", 9 * time.Minute},
		"a drainer is not started":        {drainWaits("ContainerCreating", 10*time.Minute), "DrainStuck", "ContainerCreating: its words", 0},
		"a drain without a known drainer": {drainWaits("", time.Hour).with(func(in *Input) { in.Waits = nil }), "Healthy", "", 0},
		"a mover without a node":          {moveWaits("Unschedulable", time.Minute), "MoveStuck", "claim data-cache-0: Unschedulable: its words", 0},
		"a mover without a node yet":      {moveWaits("Unschedulable", time.Second), "Healthy", "", 59 * time.Second},
		"a survivor does not answer a mover": {input(2).toMove(0, plan.MoveRuns, "", "").with(func(in *Input) {
			in.Progress = map[types.UID]contract.Progress{in.Plan.Moves[0].Claim.UID: {Phase: contract.PhaseAdding, Message: "waiting for cache-1", WaitingSeconds: 60}}
		}), "MoveStuck", "claim data-cache-0: SurvivorUnreachable: waiting for cache-1", 0},
		"nor does the member that it moves from": {input(2).toMove(0, plan.MoveRuns, "", "").with(func(in *Input) {
			in.Progress = map[types.UID]contract.Progress{in.Plan.Moves[0].Claim.UID: {Phase: contract.PhaseConnecting, Message: "waiting for cache-0", WaitingSeconds: 60, SourceSilent: true}}
		}), "MoveStuck", "claim data-cache-0: SourceUnreachable: waiting for cache-0", 0},
		"clients are late": {input(2).toMove(0, plan.MoveRuns, "", "").with(func(in *Input) {
			in.Progress = map[types.UID]contract.Progress{in.Plan.Moves[0].Claim.UID: {Phase: contract.PhaseSettling, Message: "clients still ask it", WaitingSeconds: 600}}
		}), "Healthy", "", 0},
		"and the member does not answer": {input(2).toMove(0, plan.MoveRuns, "", "").with(func(in *Input) {
			in.Progress = map[types.UID]contract.Progress{in.Plan.Moves[0].Claim.UID: {Phase: contract.PhaseSettling, Message: "waiting for cache-0", WaitingSeconds: 600, SourceSilent: true}}
		}), "MoveStuck", "claim data-cache-0: SourceUnreachable: waiting for cache-0", 0},
		"it has just stopped to answer": {input(2).toMove(0, plan.MoveRuns, "", "").with(func(in *Input) {
			in.Progress = map[types.UID]contract.Progress{in.Plan.Moves[0].Claim.UID: {Phase: contract.PhaseAdding, Message: "waiting for cache-1", WaitingSeconds: 20}}
		}), "Healthy", "", 40 * time.Second},
		"a drainer does not end": {input(2).with(drainerEnds(-time.Minute)), "DrainerDoesNotEnd", "pod drainer should have ended by 1970-01-01T01:22:20Z, and node node-b", 0},
		"nor in a year, which no spec gave it": {input(2).with(drainerEnds(365 * 24 * time.Hour)).with(func(in *Input) {
			in.Drainers[0].DeletionGracePeriodSeconds = ptr.To[int64](365*24*3600 + 60 + 30)
		}), "DrainerDoesNotEnd", "pod drainer should have ended by 1970-01-01T01:22:20Z", 0},
		"a drainer may take the spec's time": {input(2).with(drainerEnds(500 * time.Second)).with(func(in *Input) {
			in.Drainers[0].DeletionGracePeriodSeconds = ptr.To[int64](600)
			in.Cluster.Spec.Drain.PodTemplate.TerminationGracePeriodSeconds = ptr.To[int64](600)
		}), "Healthy", "", 560 * time.Second},
		"a drainer ends":              {input(2).with(drainerEnds(30 * time.Second)), "Healthy", "", 90 * time.Second},
		"a Job that others keep":      {input(2).with(func(in *Input) { in.Kept = []Kept{{"Job", "j", "example.com/theirs", now.Add(-time.Minute)}} }), "KeptByFinalizer", "Job j was deleted at 1970-01-01T01:22:20Z, and the finalizer example.com/theirs of another owner", 0},
		"another operator asks":       {input(2).with(func(in *Input) { in.OtherOperator = "tenant/lease" }), "OtherOperator", "installation tenant/lease of the operator watches this namespace, too", 0},
		"a Job on its way out":        {input(2).with(func(in *Input) { in.Kept = []Kept{{"Job", "j", "example.com/theirs", now}} }), "Healthy", "", time.Minute},
		"a drain that is tried again": {input(2).leaving(2, claims.Draining, "", "").with(attempts(3)), "DrainFailed", "claim data-cache-2: failed attempts: 3; it is being tried again", 0},
		"a drain that waits for that": {input(2).leaving(2, claims.Waiting, claims.Retrying, "").with(attempts(1)), "DrainFailed", "failed attempts: 1", 0},
		"a drain that came right":     {input(2).leaving(2, claims.Releasing, "", "").with(attempts(1)), "Healthy", "", 0},
		"while nothing is drained":    {input(0).leaving(2, claims.Waiting, claims.Hibernating, "").with(attempts(1)), "Healthy", "", 0},
		"a move tried again": {input(2).toMove(0, plan.MoveRuns, "", "").with(func(in *Input) {
			in.Plan.Moves[0].Claim.Attempts.Failed = 2
			in.Cluster.Status.Conditions = []metav1.Condition{{Type: cachev1alpha1.ConditionDegraded, Status: metav1.ConditionTrue, Reason: cachev1alpha1.ReasonMoveFailed}}
		}), "MoveFailed", "failed attempts: 2", 0},
		"one that failed by an earlier ring": {input(2).toMove(0, plan.MoveRuns, "", "").with(func(in *Input) { in.Plan.Moves[0].Claim.Attempts.Failed = 2 }), "Healthy", "", 0},
		"a person holds a drain":             {input(2).leaving(2, claims.Held, claims.HeldByRequest, "held"), "DrainHeld", "claim data-cache-2: held", 0},
		"held, and worse":                    {input(2).leaving(2, claims.Held, claims.HeldByRequest, "held").toMove(0, plan.MoveFailed, "StillStored", "its words"), "MoveFailed", "its words", 0},
		"held, and another one failed":       {input(2).leaving(3, claims.Held, claims.HeldByRequest, "held").leaving(2, claims.Failed, "SourceCorrupt", "torn"), "DrainFailed", "torn", 0},
		"a survivor does not answer": {drainWaits("SurvivorUnreachable", time.Minute).with(func(in *Input) {
			in.Waits = nil
			in.Cluster.Status.Drains[0].Phase = cachev1alpha1.DrainAdding
			in.Progress = map[types.UID]contract.Progress{"uid-2": {Phase: contract.PhaseAdding, Message: "cache-0 is silent"}}
		}), "DrainStuck", "SurvivorUnreachable: cache-0 is silent", 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := compute(t, test.in)
			c := meta.FindStatusCondition(s.Conditions, cachev1alpha1.ConditionDegraded)
			if c.Reason != test.reason || (c.Status == metav1.ConditionTrue) != (test.reason != "Healthy") || !strings.Contains(c.Message, test.message) {
				t.Errorf("got %s %s: %s", c.Status, c.Reason, c.Message)
			}
			if ready := meta.FindStatusCondition(s.Conditions, cachev1alpha1.ConditionReady); test.reason != "Healthy" {
				if s.Phase != cachev1alpha1.PhaseDegraded || ready.Status != metav1.ConditionFalse || ready.Reason != c.Reason || ready.Message != c.Message {
					t.Errorf("phase %s, ready %+v", s.Phase, ready)
				}
			}
			if test.reason == "Healthy" && test.in.DueIn() != test.dueIn || test.dueIn != 0 && test.in.DueIn() != test.dueIn {
				t.Errorf("it is due again in %s, want %s", test.in.DueIn(), test.dueIn)
			}
		})
	}
}
