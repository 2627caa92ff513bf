package plan

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
)

var (
	takeAside = []string{"reserve volume pv-2 of claim data-2 for claim data-2-aside", "create claim data-2-aside for volume pv-2 of claim data-2"}
	setsAside = []string{"2 Waiting SettingAside"}
)

func TestVolumeOfADeletedClaimIsSetAsideAndDrainedFromThere(t *testing.T) {
	atWork := func(o *Observed) { o.ClaimsWithDrainerAtWork = []types.UID{uid(2)} }
	next := func(c *claims.Claim) { c.Name, c.UID, c.AsideName = "data-2-next", "next", "data-2-third" }
	for name, test := range map[string]struct {
		scene        *scene
		actions      []string
		drains, lost []string
	}{
		"deleted before its drain":                     {at(2).left(2, deleting), takeAside, setsAside, nil},
		"a pod still uses it":                          {at(2).left(2, deleting, inUse).pod(2), nil, setsAside, nil},
		"the volume waits, the claim is not there yet": {at(2).left(2, deleting, where(claims.Reserved)), takeAside, setsAside, nil},
		"the claim is there, and waits for the volume": {
			at(2).left(2, deleting, where(claims.Reserved)).aside(2, pending), nil, []string{"2 Waiting SettingAside", "2 Waiting SettingAside"}, nil,
		},
		"the claim has the volume: the first one goes, before any drain": {
			at(2).left(2, deleting, where(claims.Reserved)).aside(2),
			[]string{"release claim data-2: SetAside"}, []string{"2 Waiting SettingAside", "2 Waiting SettingAside"}, nil,
		},
		"the first one is released, and not gone": {
			at(2).left(2, deleting, unheld).aside(2), []string{"drain claim data-2-aside into 2 survivors"}, []string{"2 Draining"}, nil,
		},
		"the first one is gone": {at(2).aside(2), []string{"drain claim data-2-aside into 2 survivors"}, []string{"2 Draining"}, nil},
		"a drained one goes as any other": {
			at(2).aside(2, drained), []string{"delete claim data-2-aside: Drained", "release claim data-2-aside: Drained"}, []string{"2 Releasing Drained"}, nil,
		},
		"deleted in its turn": {
			at(2).aside(2, deleting),
			[]string{"reserve volume pv-2 of claim data-2-aside for claim data-2-next", "create claim data-2-next for volume pv-2 of claim data-2-aside"}, setsAside, nil,
		},
		"deleted in its turn, before the first one was let go": {
			at(2).left(2, deleting, where(claims.Elsewhere)).aside(2, deleting),
			[]string{"reserve volume pv-2 of claim data-2-aside for claim data-2-next", "create claim data-2-next for volume pv-2 of claim data-2-aside"},
			[]string{"2 Waiting SettingAside", "2 Waiting SettingAside"}, nil,
		},
		"deleted in its turn, and the volume waits for the next one": {
			at(2).left(2, deleting, where(claims.Elsewhere)).aside(2, deleting, where(claims.Reserved)).aside(2, pending, next), nil,
			[]string{"2 Waiting SettingAside", "2 Waiting SettingAside", "2 Waiting SettingAside"}, nil,
		},
		"the next one was deleted, and has the volume": {
			at(2).left(2, deleting, where(claims.Elsewhere)).aside(2, deleting, where(claims.Reserved)).aside(2, deleting, next),
			[]string{"reserve volume pv-2 of claim data-2-next for claim data-2-third", "create claim data-2-third for volume pv-2 of claim data-2-next"},
			[]string{"2 Waiting SettingAside", "2 Waiting SettingAside", "2 Waiting SettingAside"}, nil,
		},
		"deleted in its turn, and the next one, too": {
			at(2).aside(2, deleting, where(claims.Elsewhere)).aside(2, deleting, func(c *claims.Claim) { c.Name, c.UID = "data-2-aside-2", "second" }),
			[]string{"reserve volume pv-2 of claim data-2-aside-2 for claim data-2-next", "create claim data-2-next for volume pv-2 of claim data-2-aside-2"},
			[]string{"2 Waiting SettingAside", "2 Waiting SettingAside"}, nil,
		},
		"a drainer is at work, and keeps its mount": {at(2).left(2, deleting, inUse).job(2, 2).with(atWork), nil, []string{"2 Draining"}, nil},
		"its drainer can't start": {
			at(2).left(2, deleting).job(2, 2),
			append([]string{"delete Job job-data-2: its claim was deleted: the volume is set aside"}, takeAside...), setsAside, nil,
		},
		"its drain failed: the pods that ended hold the claim": {
			at(2).left(2, deleting, inUse).job(2, 2, unreadable),
			[]string{"delete Job job-data-2: its claim was deleted: the volume is set aside"}, setsAside, nil,
		},
		"its drain ended well": {
			at(2).left(2, deleting, inUse).job(2, 2, complete), []string{"record the receipt of claim data-2"}, []string{"2 Releasing Drained"}, nil,
		},
		"given up": {at(2).left(2, deleting, requested(claims.Skip)), []string{"release claim data-2: Skipped"}, []string{"2 Releasing Skipped"}, nil},
		"given up, when the volume waits already": {
			at(2).left(2, deleting, where(claims.Reserved), requested(claims.Skip)),
			[]string{"return volume pv-2 to claim data-2", "release claim data-2: Skipped"}, []string{"2 Releasing Skipped"}, nil,
		},
		"given up too late: the other claim has the volume": {
			at(2).left(2, deleting, where(claims.Reserved), requested(claims.Skip)).aside(2),
			[]string{"release claim data-2: SetAside"}, []string{"2 Waiting SettingAside", "2 Waiting SettingAside"}, nil,
		},
		"no rights": {at(2).left(2, deleting, where(claims.Forbidden)), nil, []string{"2 Failed ClaimDeleted"}, []string{"data-2"}},
		"no rights, its failed Job is kept": {
			at(2).left(2, deleting, where(claims.Forbidden)).job(2, 2, unreadable), nil, []string{"2 Failed ClaimDeleted"}, []string{"data-2"},
		},
		"the volume is gone": {at(2).left(2, deleting, where(claims.Gone)), nil, []string{"2 Failed ClaimDeleted"}, []string{"data-2"}},
		"the volume is another's": {
			at(2).left(2, deleting, where(claims.Elsewhere)), nil, []string{"2 Failed ClaimDeleted"}, []string{"data-2"},
		},
		"of a member that stays, whose pod is there": {
			at(3).with(func(o *Observed) { deleting(&o.Claims[2]); inUse(&o.Claims[2]) }), nil, nil, []string{"data-2"},
		},
		"of a member that stays, whose pod is gone": {
			at(3).with(func(o *Observed) { deleting(&o.Claims[2]); o.Pods = []int32{0, 1} }), takeAside, nil, []string{"data-2"},
		},
		"of a member that stays, whose pod has no node": {
			at(3).with(func(o *Observed) { deleting(&o.Claims[2]) }), takeAside, nil, []string{"data-2"},
		},
		"of a member that stays, and is back on a fresh volume: it takes its share": {
			at(3).aside(2), []string{"drain claim data-2-aside into 3 survivors"}, []string{"2 Draining"}, nil,
		},
		"of a member that stays, given up": {
			at(3).with(func(o *Observed) { deleting(&o.Claims[2]); o.Claims[2].Request = claims.Skip }), []string{"release claim data-2: Skipped"}, nil, nil,
		},
		"of a member that stays, never bound": {
			at(3).with(func(o *Observed) { deleting(&o.Claims[2]); unbound(&o.Claims[2]) }), []string{"release claim data-2: NeverBound"}, nil, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			size := test.scene.o.Cluster.Size
			want := outcome{Replicas: size, Actions: append([]string{fmt.Sprintf("apply the StatefulSet, %d replicas", size)}, test.actions...), Drains: test.drains, Lost: test.lost}
			if diff := cmp.Diff(want, planned(test.scene)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestVolumeWhoseDrainWaitsForAPersonMakesWayForItsMember(t *testing.T) {
	for name, test := range map[string]struct {
		scene   *scene
		actions []string
		drains  []string
	}{
		"up past a drain that failed": {
			at(2).wanted(3).left(2, where(claims.Here)).job(2, 2, unreadable), []string{"set claim data-2 aside"}, setsAside,
		},
		"up past a drain that is held": {
			at(2).wanted(3).left(2, where(claims.Here), requested(claims.Hold)), []string{"set claim data-2 aside"}, setsAside,
		},
		"a retry comes first": {
			at(2).wanted(3).left(2, where(claims.Here), requested(claims.Retry)).job(2, 2, unreadable),
			[]string{"delete Job job-data-2: a person asked for a retry", "clear the retry of claim data-2"}, []string{"2 Waiting InTurn"},
		},
		"no rights": {at(2).wanted(3).left(2, where(claims.Forbidden)).job(2, 2, unreadable), nil, []string{"2 Failed SourceCorrupt"}},
		"below a drain that failed, it blocks no member": {
			at(2).left(5, where(claims.Here)).job(5, 2, unreadable), nil, []string{"5 Failed SourceCorrupt"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := planned(test.scene)
			got.Blocked = ""
			want := outcome{Replicas: 2, Actions: append([]string{"apply the StatefulSet, 2 replicas"}, test.actions...), Drains: test.drains}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
	failedAgain := at(3).aside(2, where(claims.Here)).with(func(o *Observed) {
		o.Jobs = []claims.Job{{Name: "job", UID: "job", ClaimUID: uid(2) + "-aside", Survivors: action.Range{Count: 3}}}
		unreadable(&o.Jobs[0])
	})
	want := outcome{Replicas: 3, Actions: []string{"apply the StatefulSet, 3 replicas"}, Drains: []string{"2 Failed SourceCorrupt"}}
	if diff := cmp.Diff(want, planned(failedAgain)); diff != "" {
		t.Errorf("set aside, and failed again: -want +got:\n%s", diff)
	}
}

func TestDismantlingFinishesWhatIsHalfSetAside(t *testing.T) {
	for name, test := range map[string]struct {
		scene *scene
		want  []string
	}{
		"the claim waits for the volume": {at(0).left(1, deleting, where(claims.Reserved)).aside(1, pending), nil},
		"the claim has the volume":       {at(0).left(1, deleting, where(claims.Reserved)).aside(1), []string{"release claim data-1: SetAside"}},
		"the first one is gone": {
			at(0).aside(1), []string{"release claim data-1-aside: ClusterDeleted", "remove the cluster's finalizer"},
		},
		"only the volume waits": {
			at(0).left(1, deleting, where(claims.Reserved)),
			[]string{"return volume pv-1 to claim data-1", "release claim data-1: ClusterDeleted", "remove the cluster's finalizer"},
		},
		"the volume is gone": {
			at(0).left(1, deleting, where(claims.Gone)).aside(1, pending),
			[]string{"release claim data-1: ClusterDeleted", "release claim data-1-aside: ClusterDeleted", "remove the cluster's finalizer"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			test.scene.o.Cluster.Deleting, test.scene.o.StatefulSet = true, StatefulSet{}
			if diff := cmp.Diff(test.want, planned(test.scene).Actions); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
	ends := at(1).left(1, deleting, where(claims.Reserved)).aside(1, pending).with(func(o *Observed) { o.Cluster.NamespaceTerminating = true })
	want := []string{
		"return volume pv-1 to claim data-1", "release claim data-1: NamespaceTerminating", "release claim data-1-aside: NamespaceTerminating",
		"release claim data-0: NamespaceTerminating", "remove the cluster's finalizer",
	}
	if diff := cmp.Diff(want, planned(ends).Actions); diff != "" {
		t.Errorf("a terminating namespace: -want +got:\n%s", diff)
	}
}

func TestInvariantsHoldWhileAVolumeIsSetAside(t *testing.T) {
	n, broken := 0, map[string]string{}
	check := func(description func() string, s *scene) {
		n++
		p := Next(&s.o)
		for name, holds := range invariants {
			if err := holds(&s.o, p); err != nil {
				broken[name] = fmt.Sprintf("%s: %v: %v", description(), err, p.Actions)
			}
		}
	}
	same := func(*claims.Claim) {}
	for _, size := range []int32{0, 1, 2, 3, 4} {
		for _, policy := range []claims.DrainPolicy{claims.Drain, claims.Retain, claims.Delete} {
			for _, ends := range []bool{false, true} {
				for place := claims.Here; place <= claims.Forbidden; place++ {
					for i, first := range []func(*claims.Claim){same, inUse, unheld, drained, requested(claims.Skip), requested(claims.Hold)} {
						for j, second := range []func(*claims.Claim){nil, same, pending, deleting, drained, requested(claims.Skip)} {
							for k, job := range jobStates() {
								s := at(2).left(2, deleting, where(place), first)
								s.o.Cluster.Size, s.o.Cluster.Policy, s.o.Cluster.Deleting = size, policy, ends
								if ends {
									s.o.StatefulSet = StatefulSet{}
								}
								if second != nil {
									s.aside(2, second)
								}
								if job != nil {
									s.job(2, 2, job)
								}
								check(func() string {
									return fmt.Sprintf("size %d policy %d ends %v place %d claim %d aside %d job %d", size, policy, ends, place, i, j, k)
								}, s)
							}
						}
					}
				}
			}
		}
	}
	t.Logf("%d states", n)
	for name, how := range broken {
		t.Errorf("invariant %s: %s", name, how)
	}
}

func TestLiveAVolumeMovesOnlyFromAClaimThatNothingUses(t *testing.T) {
	left := func(changes ...func(*claims.Claim)) *scene { return at(2).left(2, changes...) }
	third := func(ask func(*Observed, *claims.Claim) error) func(*Observed) error {
		return func(o *Observed) error { return ask(o, o.Claim(uid(2))) }
	}
	refusals(t, func(o *Observed) error { return claims.MaySetAside(&o.Facts, o.Claim(uid(2))) }, map[*scene]string{
		left(where(claims.Here)):                             "",
		left(where(claims.Forbidden)):                        "volume pv-2 is not bound to claim data-2",
		left(where(claims.Here), unheld):                     "claim data-2 is a member's, or lacks the finalizer",
		left(where(claims.Here)).job(2, 2):                   "Job job-data-2 drains claim data-2",
		left(where(claims.Here)).job(2, 2, unreadable, gone): "Job job-data-2 drains claim data-2",
		left(where(claims.Here)).job(2, 2, unreadable):       "",
	})
	refusals(t, third(MayHandOver), map[*scene]string{
		left(deleting):                    "no other claim is bound to volume pv-2 yet",
		left(deleting).aside(2):           "",
		left().aside(2):                   "claim data-2 is not being deleted",
		left(deleting).aside(2, pending):  "no other claim is bound to volume pv-2 yet",
		left(deleting).aside(2, deleting): "no other claim is bound to volume pv-2 yet",
		left(deleting).aside(2, unheld):   "no other claim is bound to volume pv-2 yet",
		left(deleting).job(1, 1).aside(2): "", // a departed member does not return empty
	})
	refusals(t, func(o *Observed) error { return MayHandOver(o, o.Claim(uid(1))) }, map[*scene]string{
		at(2).change(1, deleting).aside(1):                             "",
		at(2).change(1, deleting).aside(1).left(2).job(2, 2):           "Job job-data-2 may bring older items to the member of claim data-1",
		at(2).change(1, deleting).aside(1).left(2).job(2, 2, gone):     "Job job-data-2 may bring older items to the member of claim data-1",
		at(2).change(1, deleting).aside(1).left(2).job(2, 2, complete): "",
	})
	returned := at(3).aside(2)
	refusals(t, func(o *Observed) error {
		return MayDrain(o, action.CreateDrain{Claim: o.Claim(uid(2) + "-aside").Ref(), Survivors: action.Range{Count: 3}})
	}, map[*scene]string{returned: ""})
	refusals(t, func(o *Observed) error { return MaySetReplicas(o, 3) }, map[*scene]string{returned: ""})
}

// A member whose claim was deleted returns empty. Items that a drain or a move gives to it
// meanwhile may be older than those on its volume. So the drain or move ends, and begins again when
// that volume is drained.
func TestNothingMovesToAMemberThatReturnsEmptyBeforeItsVolumeIsDrained(t *testing.T) {
	wiped := func(s *scene, changes ...func(*claims.Claim)) *scene {
		s.o.Pods, s.o.Ready = []int32{0}, []int32{0}
		for _, change := range append([]func(*claims.Claim){deleting}, changes...) {
			s.change(1, change)
		}
		return s
	}
	tookOver := func(c *claims.Claim) { c.Where = claims.Reserved }
	waits := func(j *claims.Job) { j.Waits = true }
	mover := func(waits bool) func(*Observed) {
		return func(o *Observed) {
			o.Drainers = []claims.Drainer{{Pod: "mover", ClaimUID: uid(0), Target: o.Moves[0].Target, Running: true, Waits: waits}}
		}
	}
	asideOfMember := func(s *scene) *scene { return s.aside(1, func(c *claims.Claim) { c.Left = 9 }) }
	const why = "claim data-1 was deleted: its volume is set aside first, since its items may be newer"
	for what, test := range map[string]struct {
		scene *scene
		want  string
	}{
		"a drain ends":                       {wiped(at(2).left(2).job(2, 2)), "delete Job job-data-2: " + why},
		"one that the pod keeps ends":        {wiped(at(2).left(2).job(2, 2, outOfTime, podKept)), "delete Job job-data-2: " + why},
		"a move ends":                        {wiped(grown(2, 3).move(0)), "delete Job move-data-0: " + why},
		"a prepared move that was told ends": {wiped(grown(2, 3).move(0, waits)).with(mover(false)), "delete Job move-data-0: " + why},
		"one that was not told stays":        {wiped(grown(2, 3).move(0, waits)).with(mover(true)), ""},
		"a member that still uses it":        {wiped(at(2).left(2).job(2, 2), inUse), ""},
		"nothing moves: it is handed on":     {asideOfMember(wiped(at(2), tookOver)), "release claim data-1: SetAside"},
		"a drain is not gone yet":            {asideOfMember(wiped(at(2).left(2).job(2, 2, gone), tookOver)), ""},
		"its pod is not gone yet": {asideOfMember(wiped(at(2).left(2).with(func(o *Observed) {
			o.Drainers = []claims.Drainer{{Pod: "drainer", ClaimUID: uid(2), Running: true}}
		}), tookOver)), ""},
		"no drain begins": {wiped(at(2).left(2)), ""},
	} {
		got := ""
		for _, a := range planned(test.scene).Actions {
			if strings.Contains(a, "delete Job") || strings.Contains(a, "release claim") || strings.Contains(a, "drain claim") {
				got += a
			}
		}
		if got != test.want {
			t.Errorf("%s: got %q, want %q", what, got, test.want)
		}
	}
}

// A retained volume blocks no member if it can be set aside.
func TestVolumeThatIsKeptIsSetAsideForItsMember(t *testing.T) {
	apply, deleted := "apply the StatefulSet, 2 replicas", func(c *claims.Claim) { c.Deleting = true }
	for what, test := range map[string]struct {
		scene   *scene
		actions []string
		drains  []string
	}{
		"it is held first":             {at(2).wanted(3).left(2, unheld, where(claims.Here)), []string{apply, "add the finalizer to claim data-2", "set claim data-2 aside"}, []string{"2 Waiting SettingAside"}},
		"it is held":                   {at(2).wanted(3).left(2, where(claims.Here)), []string{apply, "set claim data-2 aside"}, []string{"2 Waiting SettingAside"}},
		"its pod is there":             {at(2).wanted(3).left(2, where(claims.Here)).pod(2), []string{apply}, []string{"2 Waiting PodPresent"}},
		"it was drained until now":     {at(2).wanted(3).left(2, where(claims.Here)).job(2, 2), []string{apply, "delete Job job-data-2: its claim is kept, and set aside"}, []string{"2 Waiting SettingAside"}},
		"its volume moves":             {at(2).wanted(3).left(2, deleted, where(claims.Here)), []string{apply, "reserve volume pv-2 of claim data-2 for claim data-2-aside", "create claim data-2-aside for volume pv-2 of claim data-2"}, []string{"2 Waiting SettingAside"}},
		"and its member stays away":    {at(2).left(2, deleted, where(claims.Reserved)), []string{apply, "reserve volume pv-2 of claim data-2 for claim data-2-aside", "create claim data-2-aside for volume pv-2 of claim data-2"}, []string{"2 Waiting SettingAside"}},
		"another claim has it":         {at(2).wanted(3).left(2, deleted, where(claims.Reserved)).aside(2), []string{apply, "release claim data-2: SetAside"}, []string{"2 Waiting SettingAside", "2 Waiting SettingAside"}},
		"which is kept, and not held":  {at(3).aside(2), []string{"apply the StatefulSet, 3 replicas", "release claim data-2-aside: Retained"}, nil},
		"the operator may not move it": {at(2).wanted(3).left(2, unheld, where(claims.Forbidden)), []string{apply}, []string{"2 Failed BlockedByVolume"}},
		"it has no volume":             {at(2).wanted(3).left(2, unheld, unbound), []string{apply, "delete claim data-2: NeverBound"}, []string{"2 Releasing NeverBound"}},
		"its member stays away":        {at(2).left(2, unheld, where(claims.Here)), []string{apply}, nil},
	} {
		t.Run(what, func(t *testing.T) {
			test.scene.o.Cluster.Policy = claims.Retain
			got := planned(test.scene)
			if diff := cmp.Diff(outcome{Replicas: got.Replicas, Blocked: got.Blocked, Actions: test.actions, Drains: test.drains}, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
