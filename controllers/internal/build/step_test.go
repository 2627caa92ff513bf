package build

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/controllers/internal/ring"
	"example.com/memcached-operator/drainer/contract"
)

func moved(s *cachev1alpha1.MemcachedSpec) { s.Rollout = cachev1alpha1.RolloutMoved }

// Routers are told of a ring without a member. The table is read back as that ring, and not as one of fewer
// members.
func TestTablesHaveAnyMembers(t *testing.T) {
	for _, addresses := range []cachev1alpha1.AddressMode{cachev1alpha1.AddressesPod, cachev1alpha1.AddressesStable} {
		c := apitest.MakeMemcached("cache").Storage("1Gi").Size(3).Defaulted().With(func(s *cachev1alpha1.MemcachedSpec) { s.Routing.Addresses = addresses }).Obj()
		whole := RingOf(c, 3)
		for out := range int32(3) {
			stable := RouterTable(c, nil, contract.RingStable, 3, 0, nil, 1)
			prepare := RouterTable(c, nil, contract.RingPrepare, 3, out+1, stable, 2)
			finish := prepare
			for number, state := range []contract.RingState{contract.RingSettle, contract.RingMove, contract.RingFinish} {
				finish = RouterTable(c, nil, state, 3, out+1, finish, int64(3+number))
			}
			read := RouterTableIn(c, &corev1.ConfigMap{Data: map[string]string{RouterTableKey: RouterTableText(finish)}})
			if read == nil {
				t.Fatalf("without %d: spoilt: %s", out, RouterTableText(finish))
			}
			if got := RouterRing(c, read.Old, whole); got != whole {
				t.Errorf("the old ring is %s", got)
			}
			if got := RouterRing(c, &read.New, ring.Ring{}, whole); got != whole.Without(out) {
				t.Errorf("without %d: the new ring is %s", out, got)
			}
			for _, s := range read.New.Servers {
				if strings.Contains(s, fmt.Sprintf("-%d.", out)) {
					t.Errorf("without %d: %s", out, s)
				}
			}
		}
	}
}

// TestSpoiltTablesOfAnyMembers: only members, in their order, each once.
func TestSpoiltTablesOfAnyMembers(t *testing.T) {
	c := apitest.MakeMemcached("cache").Storage("1Gi").Size(3).Defaulted().Obj()
	for servers, is := range map[string]bool{
		"0 1 2": true, "0 2": true, "1 2": true, "2": true, "2 0": false, "0 0": false, "0 1 1": false, "": false,
	} {
		table := RouterTable(c, nil, contract.RingStable, 3, 0, nil, 1)
		table.New.Servers = nil
		for _, i := range strings.Fields(servers) {
			table.New.Servers = append(table.New.Servers, fmt.Sprintf("cache-%s.cache.%s.svc:11211", i, c.Namespace))
		}
		if got := RouterTableIn(c, &corev1.ConfigMap{Data: map[string]string{RouterTableKey: RouterTableText(table)}}); (got != nil) != is {
			t.Errorf("%q: %v", servers, got)
		}
	}
}

// TestMoversOfAMemberThatIsOutWaitForNoClient, and give its items to all others.
func TestMoversOfAMemberThatIsOutWaitForNoClient(t *testing.T) {
	c := apitest.MakeMemcached("cache").Storage("1Gi").Size(3).Patience(time.Minute).Defaulted().Obj()
	args := func(ordinal int32) []string {
		return MoveJob(c, Options{}, Move{Claim: "data-cache-1", UID: "uid", Ordinal: ordinal, Target: "1-a", Members: 3, Out: 2, Leases: true}).
			Spec.Template.Spec.Containers[0].Command
	}
	has := func(args []string, flag string) bool {
		return slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--"+flag+"=") })
	}
	out := args(1)
	if has(out, contract.FlagPatience) {
		t.Errorf("it waits: %v", out)
	}
	servers := slices.DeleteFunc(slices.Clone(out), func(a string) bool { return !strings.HasPrefix(a, "--server=") })
	if len(servers) != 2 || !strings.Contains(servers[0], "cache-0.") || !strings.Contains(servers[1], "cache-2.") {
		t.Errorf("it gives items to %v", servers)
	}
	if !has(args(0), contract.FlagPatience) {
		t.Error("another member's mover doesn't wait")
	}
}

// TestOnlyMembersThatStepOutAreTold: nothing changes for clusters that don't ask for it.
func TestOnlyMembersThatStepOutAreTold(t *testing.T) {
	plain, steps := apitest.MakeMemcached("cache").Storage("1Gi").Defaulted().Obj(), apitest.MakeMemcached("cache").Storage("1Gi").Defaulted().With(moved).Obj()
	exclusive := func(r cachev1alpha1.Rollout) *cachev1alpha1.Memcached {
		return apitest.MakeMemcached("cache").Storage("1Gi").Defaulted().With(func(s *cachev1alpha1.MemcachedSpec) {
			s.Router, s.Rollout = &cachev1alpha1.RouterSpec{Exclusive: true}, r
		}).Obj()
	}
	shared := apitest.MakeMemcached("cache").Storage("1Gi").Defaulted().With(func(s *cachev1alpha1.MemcachedSpec) { s.Router = &cachev1alpha1.RouterSpec{} }).Obj()
	for c, is := range map[*cachev1alpha1.Memcached]bool{
		plain: false, steps: true, shared: false, exclusive(""): true, exclusive(cachev1alpha1.RolloutRestart): false,
	} {
		set := StatefulSet(c, Options{}, 3)
		pod := &corev1.Pod{}
		for _, container := range set.Spec.Template.Spec.Containers {
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: *container.Name, Command: container.Command})
		}
		volumes := slices.ContainsFunc(pod.Spec.Containers[0].Command, func(a string) bool { return strings.Contains(a, "/step/out") })
		if Tellable(pod) != is || volumes != is || (ProbePort(c) > 0) != is {
			t.Errorf("rollout %q: %v, port %d", c.Spec.Rollout, pod.Spec.Containers[0].Command, ProbePort(c))
		}
	}
	set := StatefulSet(steps, Options{}, 3)
	if WithPartition(set, 0); set.Spec.UpdateStrategy != nil {
		t.Error("a partition of 0 is applied")
	}
	if WithPartition(set, 2); *set.Spec.UpdateStrategy.RollingUpdate.Partition != 2 {
		t.Errorf("%v", set.Spec.UpdateStrategy)
	}
}
