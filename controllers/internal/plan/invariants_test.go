package plan

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/drainer/contract"
)

// The invariants of docs/promises.md, as far as one plan can break them. Each is checked for the
// plans of all combinations of the states of two members and of the volumes of a third and a
// fourth.

// everyScene calls do with each combination.
func everyScene(do func(description func() string, o *Observed)) int {
	n := 0
	for _, size := range []int32{0, 1, 2, 3, 4} {
		for _, replicas := range []int32{0, 2, 3} {
			for _, policy := range []claims.DrainPolicy{claims.Drain, claims.Retain, claims.Delete} {
				for _, end := range []func(*Cluster){func(*Cluster) {}, func(c *Cluster) { c.Deleting = true },
					func(c *Cluster) { c.Deleting, c.DeleteClaims = true, true }, func(c *Cluster) { c.NamespaceTerminating = true }} {
					for i, claim := range claimStates() {
						for j, job := range jobStates() {
							for _, pod := range []bool{false, true} {
								s := at(2).member(3).left(2, claim)
								s.o.Cluster.Size, s.o.StatefulSet.Replicas, s.o.Cluster.Policy = size, replicas, policy
								end(&s.o.Cluster)
								if job != nil {
									s.job(2, 2, job)
								}
								if pod {
									s.pod(2).pod(3)
								}
								n++
								do(func() string {
									return fmt.Sprintf("size %d replicas %d policy %d cluster %+v claim %d job %d pod %v", size, replicas, policy, s.o.Cluster, i, j, pod)
								}, &s.o)
							}
						}
					}
				}
			}
		}
	}
	return n
}

func claimStates() []func(*claims.Claim) {
	other := func(c *claims.Claim) { c.Receipt = receiptFor("another claim") }
	short := func(c *claims.Claim) { c.Receipt = shortOf(c.UID) }
	var states []func(*claims.Claim)
	for _, recorded := range []func(*claims.Claim){func(*claims.Claim) {}, drained, other, short} {
		for _, request := range []claims.Request{claims.NoRequest, claims.Skip, claims.Retry, claims.Hold} {
			for _, more := range []func(*claims.Claim){func(*claims.Claim) {}, deleting, unbound, unheld, func(c *claims.Claim) { c.LeavingSince = time.Time{} }} {
				states = append(states, func(c *claims.Claim) {
					recorded(c)
					c.Request = request
					more(c)
				})
			}
		}
	}
	return states
}

// jobStates returns the states of a Job, with nil for no Job.
func jobStates() []func(*claims.Job) {
	stranger := func(j *claims.Job) { j.State, j.Receipt = claims.JobComplete, receiptFor("another claim") }
	empty := func(j *claims.Job) {
		j.State, j.Receipt = claims.JobComplete, ReceiptOf(&contract.Receipt{Version: 1, Source: string(j.ClaimUID)})
	}
	return []func(*claims.Job){nil, func(*claims.Job) {}, gone, complete, withoutReceipt, stranger, empty, unreadable, outOfTime}
}

func actions[T action.Action](p Plan) []T {
	var found []T
	for _, a := range p.Actions {
		if a, ok := a.(T); ok {
			found = append(found, a)
		}
	}
	return found
}

func claimOf(o *Observed, uid types.UID) *claims.Claim {
	i := slices.IndexFunc(o.Claims, func(c claims.Claim) bool { return c.UID == uid })
	return &o.Claims[i]
}

// invariants are the promises that a single plan keeps or breaks, by name. Each returns an error if
// the plan breaks it.
var invariants = map[string]func(o *Observed, p Plan) error{
	"1: no release without a receipt or a person's word": noReleaseWithoutReceipt,
	"2: only a receipt that adds up is recorded":         onlyGoodReceipts,
	"5: items go only to members that stay":              onlyToMembersThatStay,
	"6: one user per volume":                             oneUserPerVolume,
	"9: every held claim is accounted for":               everyHeldClaimShown,
	"11: no member returns on a volume that it left":     noReturnToOldVolumes,
	"11: marks come before the StatefulSet is smaller":   marksFirst,
}

func TestInvariantsHoldInEveryState(t *testing.T) {
	broken := map[string]string{}
	n := everyScene(func(scene func() string, o *Observed) {
		p := Next(o)
		for name, holds := range invariants {
			if err := holds(o, p); err != nil {
				broken[name] = fmt.Sprintf("%s: %v: %v", scene(), err, p.Actions)
			}
		}
	})
	t.Logf("%d states", n)
	for name, how := range broken {
		t.Errorf("invariant %s: %s", name, how)
	}
}

func noReleaseWithoutReceipt(o *Observed, p Plan) error {
	var let []action.ClaimRef
	for _, a := range actions[action.ReleaseClaim](p) {
		let = append(let, a.Claim)
	}
	for _, a := range actions[action.DeleteClaim](p) {
		let = append(let, a.Claim)
	}
	for _, r := range let {
		c := claimOf(o, r.UID)
		left := !c.LeavingSince.IsZero() || slices.Contains(actions[action.MarkLeaving](p), action.MarkLeaving{Claim: c.Ref()})
		proven := c.Receipt != nil && c.Receipt.AddsUp(string(c.UID)) == nil
		word := c.Request == claims.Skip || o.Cluster.Deleting || o.Cluster.NamespaceTerminating ||
			left && o.Cluster.Policy != claims.Drain || c.Volume == ""
		if !proven && !word && !handedOver(o, c) {
			return fmt.Errorf("claim %s is released", r.Name)
		}
	}
	return nil
}

// handedOver tells whether another claim with the finalizer is bound to the volume.
func handedOver(o *Observed, c *claims.Claim) bool {
	return c.Deleting && slices.ContainsFunc(o.Claims, func(other claims.Claim) bool {
		return other.UID != c.UID && other.Volume == c.Volume && other.Finalizer && !other.Deleting && !other.Pending
	})
}

func onlyGoodReceipts(_ *Observed, p Plan) error {
	for _, a := range actions[action.RecordReceipt](p) {
		if err := a.Receipt.AddsUp(string(a.Claim.UID)); err != nil {
			return err
		}
	}
	return nil
}

func onlyToMembersThatStay(o *Observed, p Plan) error {
	job := o.RunningDrain()
	for _, a := range actions[action.ApplyStatefulSet](p) {
		if job != nil && a.Replicas != job.Survivors.Count {
			return fmt.Errorf("the size becomes %d under a drain into %d", a.Replicas, job.Survivors.Count)
		}
	}
	for _, a := range actions[action.CreateDrain](p) {
		if n := a.Survivors.Count; n < 1 || n != p.Replicas || n != o.StatefulSet.Replicas || a.Survivors.Start != 0 || n > a.Claim.Ordinal && !claimOf(o, a.Claim.UID).Aside {
			return fmt.Errorf("a drain into %d of %d members", n, p.Replicas)
		}
	}
	return nil
}

func oneUserPerVolume(o *Observed, p Plan) error {
	for _, a := range actions[action.CreateDrain](p) {
		if o.MemberExists(claimOf(o, a.Claim.UID)) || o.JobOf(a.Claim.UID) != nil {
			return fmt.Errorf("a second user of %s", a.Claim.Name)
		}
	}
	for _, a := range actions[action.ReserveVolume](p) {
		if c := claimOf(o, a.Claim.UID); !c.Deleting || c.InUse || o.DrainContinues(c) {
			return fmt.Errorf("volume %s is moved from under its user", a.Volume)
		}
	}
	return nil
}

func everyHeldClaimShown(o *Observed, p Plan) error {
	drains := o.DrainMayRun()
	for i := range o.Claims {
		c := &o.Claims[i]
		since := c.LeavingSince.IsZero() && drains // a member that came since, or the cache is stale
		if len(actions[action.ApplyStatefulSet](p)) == 0 || c.Ordinal < p.Replicas || p.Replicas == 0 || !c.Finalizer || since {
			continue
		}
		shown := slices.ContainsFunc(p.Drains, func(d claims.DrainState) bool {
			return d.Claim.UID == c.UID && (d.Message != "" || d.Phase == claims.Draining || d.Phase == claims.Releasing)
		})
		going := slices.ContainsFunc(actions[action.ReleaseClaim](p), func(a action.ReleaseClaim) bool { return a.Claim.UID == c.UID })
		if !shown && !going {
			return fmt.Errorf("claim %s is held, and no state says why", c.Name)
		}
	}
	return nil
}

func noReturnToOldVolumes(o *Observed, p Plan) error {
	drains := o.DrainMayRun()
	for _, a := range actions[action.ApplyStatefulSet](p) {
		for i := range o.Claims {
			c := &o.Claims[i]
			marked := !c.LeavingSince.IsZero() || slices.Contains(actions[action.MarkLeaving](p), action.MarkLeaving{Claim: c.Ref()})
			switch {
			case c.Aside:
			case marked && c.Ordinal < a.Replicas:
				return fmt.Errorf("member %d would be back on %s", c.Ordinal, c.Name)
			case !marked && a.Replicas > 0 && c.Ordinal >= a.Replicas && !drains: // else MaySetReplicas refuses
				return fmt.Errorf("member %d leaves %s unmarked", c.Ordinal, c.Name)
			}
		}
	}
	return nil
}

// marksFirst: marks and the clients' list are written before members leave, and the list has none
// of these members.
func marksFirst(_ *Observed, p Plan) error {
	applied, told := false, false
	for _, a := range p.Actions {
		switch a := a.(type) {
		case action.WriteList:
			if told = true; a.ListSize > a.Replicas && a.Replicas > 0 {
				return fmt.Errorf("clients are told of %d members, and %d are to be", a.ListSize, a.Replicas)
			}
		case action.ApplyStatefulSet:
			if applied = true; !told {
				return errors.New("members come or go before clients are told")
			}
		case action.MarkLeaving:
			if applied {
				return fmt.Errorf("marked too late")
			}
		}
	}
	return nil
}

func TestInvariant7ALostPodIsNotAScaleDown(t *testing.T) {
	for name, s := range map[string]*scene{
		"a pod is gone":                         at(3).with(func(o *Observed) { o.Pods = []int32{0, 2} }),
		"all pods are gone":                     at(3).with(func(o *Observed) { o.Pods = nil }),
		"the StatefulSet is gone":               at(3).with(func(o *Observed) { o.StatefulSet, o.Pods = StatefulSet{}, nil }),
		"the StatefulSet is on its way out":     at(3).with(func(o *Observed) { o.StatefulSet.Deleting = true }),
		"another client scaled the StatefulSet": at(3).with(func(o *Observed) { o.StatefulSet.Replicas, o.Pods = 1, []int32{0} }),
		"a claim of a member is being gone":     at(3).with(func(o *Observed) { o.Claims[0].Deleting = true }),
		"the claims of a hibernated cluster":    at(3).wanted(0).with(func(o *Observed) { o.Pods = nil }),
	} {
		t.Run(name, func(t *testing.T) {
			p := Next(&s.o)
			if got := planned(s).Actions; len(got) != 1 || len(actions[action.ApplyStatefulSet](p)) != 1 || p.Replicas != s.o.Cluster.Size {
				t.Errorf("want the members applied and nothing else, got %v", got)
			}
		})
	}
}
