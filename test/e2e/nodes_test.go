package e2e

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/test/internal/app"
	"example.com/memcached-operator/test/internal/deployed"
	"example.com/memcached-operator/test/tier"
)

// These tests show what happens to the members of a node that is drained or gone. The tests remove a node, so
// they run by themselves.
const (
	stays = "node-1" // the operator's; this machine reaches Services by it
	goes  = "node-2"
)

func TestMembersOfTwoNodesReachEachOther(t *testing.T) {
	tier.Second(t, "TestJourneyOfANode")
	t.Parallel()
	f := setup(t, persistent(4))
	nodes := map[string]*corev1.Pod{}
	for ordinal := range 4 {
		pod := f.pod(ordinal)
		nodes[pod.Spec.NodeName] = pod
	}
	if nodes[stays] == nil || nodes[goes] == nil {
		t.Fatalf("the members are not spread over the nodes: %v", nodes)
	}
	for _, from := range nodes {
		for _, to := range nodes {
			f.asksFrom(from, to.Status.PodIP)
		}
	}
	// A drainer finds the survivors on both nodes, by their names.
	objects := f.objects()
	f.fill(4, objects)
	f.scale(2)
	f.eventually("claims 3 and 2 are gone", func() bool { return f.claim(3) == nil && f.claim(2) == nil })
	f.settled(2)
	f.expectAll(2, objects)
}

// asksFrom asks a memcached for its version from another pod's network.
func (f *fixture) asksFrom(pod *corev1.Pod, address string) {
	f.Helper()
	script := `exec 3<>/dev/tcp/$0/11211 && echo version >&3 && read -r line <&3 && echo "$line"`
	out, err := exec.CommandContext(f.ctx, "nsenter", "--target", fmt.Sprint(f.processOf(pod, "memcached")), "--net", "--",
		"bash", "-c", script, address).CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "VERSION") {
		f.Fatalf("from %s on %s, %s does not answer: %v: %s", pod.Name, pod.Spec.NodeName, address, err, out)
	}
}

func TestADrainedNodeIsNotAScaleDownAndADrainWaitsForIt(t *testing.T) {
	tier.Second(t, "TestJourneyOfANode")
	f, objects := onTwoNodes(t, persistent(2))
	claim := f.claim(2)

	// This acts as kubectl drain.
	f.schedulable(goes, false)
	f.evict(f.pod(2))
	f.waitsForItsNode(2)
	f.expectNoDrain(2, claim)
	f.schedulable(goes, true)
	f.settled(3)
	f.expectAll(3, objects) // it came back warm
	f.expectNoDrain(2, claim)

	f.schedulable(goes, false)
	f.evict(f.pod(2))
	f.scale(2)
	f.expectWaits(2, waitsForVolume)
	f.schedulable(goes, true)
	f.expectDrained(2, objects)
	f.expectReceipt(false)
}

func TestAGoneNodeIsNotAScaleDownAndADrainWaitsForIt(t *testing.T) {
	tier.Second(t, "TestJourneyOfANode")
	f, objects := onTwoNodes(t, mapped(2)) // items that were never saved are on the volume
	claim, pod := f.claim(2), f.pod(2)

	start := f.stopNode()
	f.must(kube.Delete(f.ctx, pod, client.GracePeriodSeconds(0))) // kubectl delete pod --force
	f.eventually("the member has another pod", func() bool {
		again := f.pod(2)
		return again != nil && again.UID != pod.UID
	})
	f.expectNoDrain(2, claim)
	start()
	f.settled(3)
	f.expectAllSoon(3, objects) // it came back warm, by a replay
	f.expectNoDrain(2, claim)

	pod, start = f.pod(2), f.stopNode()
	f.scale(2)
	f.expectWaits(2, "member 2 is still shutting down: on "+goes+", since")
	// A person who knows that the node is down deletes the pod.
	f.must(kube.Delete(f.ctx, pod, client.GracePeriodSeconds(0)))
	f.expectWaits(2, "node "+goes+" has not started the drainer", waitsForVolume)
	start()
	f.expectDrained(2, objects)
	f.expectReceipt(true)
}

func (f *fixture) waitsForItsNode(ordinal int) {
	f.Helper()
	f.eventually("the member waits for its node", func() bool {
		pod := f.pod(ordinal)
		return pod != nil && pod.Status.Phase == corev1.PodPending && unschedulable(pod)
	})
}

const waitsForVolume = "the drainer has been waiting for a node since"

// expectWaits waits until the only drain in status is that member's, with one of these messages. The claim is
// kept.
func (f *fixture) expectWaits(ordinal int, messages ...string) {
	f.Helper()
	f.eventually(fmt.Sprintf("status says one of %q", messages), func() bool {
		drains := f.memcached().Status.Drains
		return len(drains) == 1 && slices.ContainsFunc(messages, func(m string) bool { return strings.HasPrefix(drains[0].Message, m) })
	})
	f.Log(f.memcached().Status.Drains[0].Message)
	if claim := f.claim(ordinal); claim == nil || !held(claim) || claim.DeletionTimestamp != nil {
		f.Fatalf("the claim is not kept: %+v", claim)
	}
}

// TestADrainedNodeThroughRoutersIsNotSeen: the node of a member is drained and comes back, and an application
// that knows its own values, and asks both routers, notices nothing.
func TestADrainedNodeThroughRoutersIsNotSeen(t *testing.T) {
	tier.Second(t, "TestAMemberOfADrainedNodeIsEvictedOutOfTheRing")
	spec := routed(2)
	spec.Routing.Client = "libmemcached-ketama"
	f := overTwoNodes(t, spec)
	mc := f.memcached()
	was := mc.DeepCopy()
	mc.Spec.PodDisruptionBudget.Evictions = cachev1alpha1.EvictionsStepOut // no node is cordoned any more
	f.must(kube.Patch(f.ctx, mc, client.MergeFrom(was)))
	f.routersReady(2)
	f.eventually("no member that is ready may be evicted", func() bool {
		budget := &policyv1.PodDisruptionBudget{}
		f.must(kube.Get(f.ctx, f.key(f.name), budget))
		return budget.Spec.MaxUnavailable.IntValue() == 0
	})
	address, err := deployed.ForwardInTurn(f.ctx, func() []string { return f.routerAddresses() })
	f.must(err)
	objects := f.objects()
	all := f.appAt([]string{"router:11211"}, address)
	f.must(all.Fill(f.ctx, objects))
	stop := f.underLoad(app.StartSteady, address)
	began := time.Now()
	f.schedulable(goes, false)
	f.evict(f.pod(2))
	t.Logf("evicted after %.1f s", time.Since(began).Seconds())
	f.waitsForItsNode(2)
	f.schedulable(goes, true)
	f.settled(3)
	t.Logf("back after %.1f s", time.Since(began).Seconds())
	f.unnoticed(stop())
	report, err := all.Check(f.ctx, objects)
	f.must(err)
	if report.Missing > 0 {
		t.Errorf("%d objects are missing of %d: %q", report.Missing, report.Objects, report.Examples)
	}
}

// onTwoNodes makes a filled cluster, and adds a member, which is alone on the node that goes.
func onTwoNodes(t *testing.T, spec cachev1alpha1.MemcachedSpec) (*fixture, []app.Object) {
	t.Helper()
	f := overTwoNodes(t, spec)
	objects := f.some()
	f.fill(int(*spec.Size)+1, objects)
	return f, objects
}

// overTwoNodes is onTwoNodes without items.
func overTwoNodes(t *testing.T, spec cachev1alpha1.MemcachedSpec) *fixture {
	t.Helper()
	f := onCluster(t)
	t.Cleanup(func() {
		f.schedulable(stays, true)
		f.schedulable(goes, true)
	})
	f.schedulable(goes, false)
	f.operatorStays()
	f = setup(t, spec)
	f.schedulable(goes, true)
	f.schedulable(stays, false)
	last := int(*spec.Size)
	f.scale(int32(last + 1))
	f.settled(int32(last + 1))
	f.schedulable(stays, true)
	for ordinal := range last + 1 {
		want := stays
		if ordinal == last {
			want = goes
		}
		if got := f.pod(ordinal).Spec.NodeName; got != want {
			t.Fatalf("member %d is on %s, want %s", ordinal, got, want)
		}
	}
	return f
}

// schedulable acts as kubectl uncordon or cordon.
func (f *fixture) schedulable(node string, may bool) {
	f.Helper()
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"unschedulable":%v}}`, !may))
	ctx, cancel := cleanupContext() // this is called in a cleanup, too
	defer cancel()
	if err := kube.Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, patch); err != nil {
		f.Fatalf("%v; the end-to-end tests need two nodes: make cluster-up NODES=2", err)
	}
}

// operatorStays moves the operator off the node that goes, which must be cordoned.
func (f *fixture) operatorStays() {
	f.Helper()
	f.eventually("the operator runs on "+stays, func() bool {
		var pods corev1.PodList
		f.must(kube.List(f.ctx, &pods, client.InNamespace(operatorNamespace)))
		there := false
		for i := range pods.Items {
			pod := &pods.Items[i]
			switch {
			case pod.DeletionTimestamp != nil:
			case pod.Spec.NodeName == goes:
				f.must(client.IgnoreNotFound(kube.Delete(f.ctx, pod)))
			case ready(pod):
				there = true
			}
		}
		return there
	})
}

// evict tries until the members' disruption budget allows the eviction, as kubectl drain does.
func (f *fixture) evict(pod *corev1.Pod) {
	f.Helper()
	eviction := &policyv1.Eviction{DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))}}
	f.eventually("the pod may be evicted", func() bool {
		err := kube.SubResource("eviction").Create(f.ctx, pod, eviction.DeepCopy())
		if !apierrors.IsTooManyRequests(err) {
			f.must(err)
		}
		return err == nil
	})
}

func unschedulable(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable {
			return true
		}
	}
	return false
}

// stopNode stops the node as a power failure does, until start is called, or the test ends.
func (f *fixture) stopNode() (start func()) {
	f.Helper()
	f.cluster("node", "stop", goes)
	started := false
	start = func() {
		if !started {
			f.cluster("node", "start", goes)
			started = true
		}
	}
	f.Cleanup(start)
	return start
}

// cluster runs test/cluster's program.
func (f *fixture) cluster(args ...string) {
	f.Helper()
	ctx, cancel := cleanupContext() // this is called in a cleanup, too
	defer cancel()
	out, err := exec.CommandContext(ctx, "../../bin/cluster", args...).CombinedOutput()
	if err != nil {
		f.Fatalf("bin/cluster %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// expectNoDrain checks that the claim is a member's as before, and that there is no drain.
func (f *fixture) expectNoDrain(ordinal int, before *corev1.PersistentVolumeClaim) {
	f.Helper()
	claim := f.claim(ordinal)
	if claim == nil || claim.UID != before.UID || !held(claim) || claim.DeletionTimestamp != nil ||
		claim.Annotations[cachev1alpha1.AnnotationLeaving] != "" {
		f.Fatalf("the claim is not a member's any more: %+v", claim)
	}
	var jobs batchv1.JobList
	f.must(kube.List(f.ctx, &jobs, client.InNamespace(f.namespace)))
	if len(jobs.Items) != 0 || len(f.memcached().Status.LastDrains) != 0 {
		f.Fatalf("%d drain Jobs for a pod that was only lost: %+v", len(jobs.Items), f.memcached().Status)
	}
}
