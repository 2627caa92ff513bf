package e2e

import (
	"testing"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/test/internal/app"
	"example.com/memcached-operator/test/tier"
)

// Members without volumes keep their items, too: a container that is killed comes back with its items, and an
// application behind routers, which knows its own values, doesn't notice a scaling from 3 to 2 and to 3
// again.
func TestMembersWithoutVolumesKeepTheirItems(t *testing.T) {
	tier.Second(t, "TestJourneyThroughRouters")
	t.Parallel()
	spec := routed(3)
	spec.Storage = &cachev1alpha1.StorageSpec{Mode: cachev1alpha1.StorageMemory}
	f := setup(t, spec)
	address := f.routers(2)
	objects := f.objects()
	all := f.appAt([]string{"router:11211"}, address)
	f.must(all.Fill(f.ctx, objects))
	found := func(when string) {
		t.Helper()
		report, err := all.Check(f.ctx, objects)
		f.must(err)
		if report.Missing > 0 {
			t.Errorf("%s, %d objects are missing of %d: %q", when, report.Missing, report.Objects, report.Examples)
		}
	}

	f.crash(f.pod(1))
	f.restarted(1)
	f.eventually("every object is there again", func() bool {
		report, err := all.Check(f.ctx, objects)
		return err == nil && report.Missing == 0
	})

	stop := f.underLoad(app.StartSteady, address)
	for _, size := range []int32{2, 3} {
		f.scale(size)
		f.settled(size)
		found("after the scaling")
	}
	f.unnoticed(stop())
	if f.claim(0) != nil || f.claim(2) != nil || f.memcached().Status.ReadySize != 3 {
		t.Error("there are claims, or no three members")
	}
}
