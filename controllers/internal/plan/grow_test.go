package plan

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
)

const mib = 1 << 20

// sized sets the size that a claim asks for, and that of its volume, in MiB.
func sized(asked, capacity int64) func(*claims.Claim) {
	return func(c *claims.Claim) { c.Asked, c.Capacity = asked*mib, capacity*mib }
}

// volumes is a cluster of one member. Its volume is to have 256 MiB, and its memory is 100 MiB.
func volumes(changes ...func(*claims.Claim)) *scene {
	s := at(1)
	s.o.Cluster.VolumeSize, s.o.Cluster.Memory = 256*mib, 100*mib
	s.o.Cluster.VolumeSizeGiven = true
	for _, change := range changes {
		change(&s.o.Claims[0])
	}
	return s
}

func TestVolumesOfMembersGrow(t *testing.T) {
	for name, test := range map[string]struct {
		scene       *scene
		grow, small []string
		keeps       bool
	}{
		"as wanted":                   {scene: volumes(sized(256, 256))},
		"larger than wanted":          {scene: volumes(sized(512, 512))},
		"made larger than asked":      {scene: volumes(sized(128, 256))},
		"not bound yet":               {scene: volumes(sized(0, 0))},
		"smaller than wanted":         {volumes(sized(128, 128)), []string{"data-0"}, []string{"data-0"}, false},
		"with no room for the memory": {volumes(sized(100, 100)), []string{"data-0"}, []string{"data-0"}, true},
		"asked already":               {volumes(sized(256, 128)), nil, []string{"data-0"}, false},
		"asked, and no room":          {volumes(sized(256, 64)), nil, []string{"data-0"}, true},
		"a size that the spec does not give, and a memory that no member has": {
			volumes(sized(128, 128)).with(func(o *Observed) { o.Cluster.VolumeSizeGiven = false }), nil, []string{"data-0"}, false,
		},
		"the same, with no room for the memory": {
			volumes(sized(100, 100)).with(func(o *Observed) { o.Cluster.VolumeSizeGiven = false }), nil, []string{"data-0"}, true,
		},
		"a size that the spec does not give, and a member is ready with the memory": {
			volumes(sized(128, 128)).with(func(o *Observed) { o.Cluster.VolumeSizeGiven, o.MemoryRuns = false, true }), []string{"data-0"}, []string{"data-0"}, false,
		},
		"a member that joined":     {volumes(sized(256, 256)).member(1).with(func(o *Observed) { sized(128, 128)(&o.Claims[1]) }).wanted(2), []string{"data-1"}, []string{"data-1"}, false},
		"a claim that was deleted": {scene: volumes(sized(64, 64), deleting)},
		"a member that left":       {scene: volumes(sized(256, 256)).left(1, sized(64, 64))},
		"a volume set aside":       {scene: volumes(sized(256, 256)).aside(1, sized(64, 64))},
		"a member that leaves by this plan": {scene: volumes(sized(256, 256)).member(1).with(func(o *Observed) {
			sized(64, 64)(&o.Claims[1])
			o.StatefulSet.Replicas, o.Pods = 2, append(o.Pods, 1)
		})},
	} {
		t.Run(name, func(t *testing.T) {
			p := Next(&test.scene.o)
			var grow, small []string
			for _, a := range p.Actions {
				switch a := a.(type) {
				case action.GrowClaim:
					grow = append(grow, a.Claim.Name)
					if a.Size != 256*mib {
						t.Errorf("grows to %d", a.Size)
					}
				case action.ApplyStatefulSet:
					if a.KeepTemplate != test.keeps {
						t.Errorf("keeps the template: %v", a.KeepTemplate)
					}
				}
			}
			for _, c := range p.SmallClaims {
				small = append(small, c.Name)
			}
			if diff := cmp.Diff(test.grow, grow); diff != "" {
				t.Errorf("grow: %s", diff)
			}
			if diff := cmp.Diff(test.small, small); diff != "" {
				t.Errorf("small: %s", diff)
			}
			if i := slices.IndexFunc(p.Actions, func(a action.Action) bool { _, is := a.(action.GrowClaim); return is }); i >= 0 && i != len(p.Actions)-len(grow) {
				t.Errorf("something waits for a volume that may not grow: %v", p.Actions)
			}
		})
	}
}
