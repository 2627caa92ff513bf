package stsdrain_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/stsdrain"
)

// words returns all parts of a status.
func words(p *stsdrain.Plan) (all []string) {
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if p.Refused.Reason != "" {
		add("%s: %s", p.Refused.Reason, p.Refused.Message)
	}
	if p.NothingDeparts != "" {
		add("nothing departs: %s", p.NothingDeparts)
	}
	if p.Stalled != "" {
		add("stalled: %s", p.Stalled)
	}
	for _, name := range p.Unprotected {
		add("unprotected: %s", name)
	}
	for _, ref := range p.LeftOver {
		add("left over: %s", ref.Name)
	}
	for _, r := range p.Returned {
		add("member %d returned; %s", r.Ordinal, r.Waits)
	}
	for i := range p.Drains {
		d := &p.Drains[i]
		add("%s: %s %s%s: %s", d.Claim.Name, d.Phase, d.Reason, d.Why, d.Message)
	}
	for _, d := range p.DeletedClaims {
		add("%s is deleted: %s", d.Claim.Name, d.Message)
	}
	return all
}

// two gives each member a second claim.
func two(o *stsdrain.Observed) {
	o.Set.Templates = append(o.Set.Templates, "log")
	for _, c := range o.Claims {
		c.Name, c.UID = fmt.Sprintf("log-queue-%d", c.Ordinal), types.UID(fmt.Sprintf("log-queue-%d", c.Ordinal))
		c.Template, c.Volume, c.AsideName = "log", "pv-"+c.Name, c.Name+"-aside"
		o.Claims = append(o.Claims, c)
	}
}

// both changes both claims of member 2 of three.
func both(change func(*claims.Claim)) func(*stsdrain.Observed) {
	return func(o *stsdrain.Observed) {
		for i := range o.Claims {
			if o.Claims[i].Ordinal == 2 {
				change(&o.Claims[i])
			}
		}
	}
}

// aside makes the claim of member 2 one that has taken its volume over.
func aside(c *claims.Claim) {
	marked(c)
	c.Name, c.UID, c.Aside, c.AsideName, c.Where = c.AsideName, types.UID(c.AsideName), true, c.AsideName+"-again", claims.NotLookedAt
}

// left is a member 2 of three that has departed.
func left(changes ...func(*stsdrain.Observed)) *stsdrain.Observed {
	return with(with(at(3), scaled(2), claim(2, marked), gone(2)), changes...)
}

func request(r claims.Request) func(*claims.Claim) { return func(c *claims.Claim) { c.Request = r } }
func is(w claims.Where) func(*claims.Claim)        { return func(c *claims.Claim) { c.Where = w } }

// job is the Job that drains the claim that was set aside.
func job(change func(*claims.Job)) func(*stsdrain.Observed) {
	return func(o *stsdrain.Observed) {
		c := &o.Claims[2]
		j := claims.Job{Name: "job", UID: "job", ClaimUID: c.UID, Claims: string(c.UID), Survivors: action.Range{Count: 2}}
		change(&j)
		o.Jobs = append(o.Jobs, j)
	}
}

func failed(j *claims.Job) {
	j.State, j.Ended, j.Message = claims.JobFailed, time.Unix(1_000_000, 0), "Job job: BackoffLimitExceeded: it failed"
	j.ReceiptErr = errors.New("the drainer's pod is gone, and its receipt with it")
}

func complete(j *claims.Job) {
	j.State, j.Receipt = claims.JobComplete, &action.Receipt{Source: string(j.ClaimUID), Message: "3 moved"}
}

// The cases are each state, the steps for it, and the words that a person reads.
func TestEachStateAndItsWords(t *testing.T) {
	t.Parallel()
	for what, test := range map[string]struct {
		o     *stsdrain.Observed
		steps []string
		words []string
	}{
		"at rest": {
			o: at(3),
		},
		"seen while wanted": {
			o: with(at(3), claim(1, unprotected)),
			steps: []string{
				"protect claim data-queue-1",
			},
			words: []string{
				"unprotected: data-queue-1",
			},
		},
		"left over": {
			o: with(at(3), scaled(2), gone(2), claim(2, unprotected)),
			steps: []string{
				"label claim data-queue-2",
			},
			words: []string{
				"left over: data-queue-2",
			},
		},
		"left over, deleted": {
			o: with(at(3), scaled(2), gone(2), claim(2, unprotected), claim(2, func(c *claims.Claim) { c.Finalizer, c.Labelled = true, true }), claim(2, deleting)),
			words: []string{
				"left over: data-queue-2",
				"data-queue-2 is deleted: it was deleted, and was not drained: its member was not wanted when it was first seen; annotate it with cache.example.com/drain=retry to drain it, or =skip to give its data up",
			},
		},
		"left over, retry": {
			o: with(at(3), scaled(2), gone(2), claim(2, unprotected), claim(2, request(claims.Retry))),
			steps: []string{
				"protect claim data-queue-2",
			},
		},
		"two claims, left over, one retry": {
			o: with(at(3), two, scaled(2), gone(2), both(unprotected), claim(2, request(claims.Retry))),
			steps: []string{
				"protect claim data-queue-2",
				"label claim log-queue-2",
			},
			words: []string{
				"left over: log-queue-2",
			},
		},
		"two claims, left over, one retry, and then": {
			o: with(at(3), two, scaled(2), gone(2), claim(5, unprotected), claim(2, request(claims.Retry))),
			steps: []string{
				"protect claim log-queue-2",
			},
			words: []string{
				"unprotected: log-queue-2",
			},
		},
		"left over, deleted, retry": {
			o: with(at(3), scaled(2), gone(2), claim(2, func(c *claims.Claim) { c.Protected, c.Deleting, c.Request = false, true, claims.Retry })),
			steps: []string{
				"mark claim data-queue-2 as leaving",
				"reserve volume pv-data-queue-2 of claim data-queue-2 for claim data-queue-2-aside",
				"create claim data-queue-2-aside for volume pv-data-queue-2 of claim data-queue-2",
			},
			words: []string{
				"data-queue-2: Waiting SettingAside: it was deleted; its volume is being set aside, to be drained from there",
			},
		},
		"its pod ends": {
			o: with(at(3), scaled(2), claim(2, marked)),
			words: []string{
				"data-queue-2: Leaving PodPresent: member 2 is still shutting down",
			},
		},
		"the mark is new": {
			o: with(at(3), scaled(2), gone(2), claim(2, is(claims.NotLookedAt))),
			steps: []string{
				"mark claim data-queue-2 as leaving",
			},
			words: []string{
				"data-queue-2: Waiting SettingAside: its volume is looked for, to be set aside",
			},
		},
		"the mark is refused": {
			o: with(at(3), scaled(2), gone(2), claim(2, is(claims.NotLookedAt)), refused("data-queue-2")),
			words: []string{
				"data-queue-2: Failed Refused: a step about it is refused, and tried again in a moment: a quota forbids it",
			},
		},
		"departed": {
			o: left(),
			steps: []string{
				"set claim data-queue-2 aside",
			},
			words: []string{
				"data-queue-2: Waiting SettingAside: its volume is being set aside, to be drained from there",
			},
		},
		"two claims, departed": {
			o: with(at(3), two, scaled(2), both(marked), gone(2)),
			steps: []string{
				"set claim log-queue-2 aside",
				"set claim data-queue-2 aside",
			},
			words: []string{
				"data-queue-2: Waiting SettingAside: its volume is being set aside, to be drained from there",
			},
		},
		"two claims, the mark of one is refused": {
			o: with(at(3), two, scaled(2), both(marked), gone(2), claim(2, func(c *claims.Claim) { c.PlanUnmark(); c.Where = claims.NotLookedAt }), refused("data-queue-2")),
			words: []string{
				"data-queue-2: Failed Refused: a step about it is refused, and tried again in a moment: a quota forbids it",
			},
		},
		"two claims, one is deleted": {
			o: with(at(3), two, scaled(2), both(marked), gone(2), claim(2, deleting)),
			steps: []string{
				"set claim log-queue-2 aside",
			},
			words: []string{
				"data-queue-2: Waiting SettingAside: another claim of its member was deleted: the volumes of all are set aside, and drained from there",
			},
		},
		"two claims, one is deleted before the mark": {
			o: with(at(3), two, scaled(2), gone(2), claim(2, deleting)),
			steps: []string{
				"mark claim log-queue-2 as leaving",
				"mark claim data-queue-2 as leaving",
				"set claim log-queue-2 aside",
			},
			words: []string{
				"data-queue-2: Waiting SettingAside: another claim of its member was deleted: the volumes of all are set aside, and drained from there",
			},
		},
		"two claims of a member that stays, one is deleted": {
			o: with(at(3), two, claim(2, deleting)),
			words: []string{
				"data-queue-2 is deleted: it was deleted, and not all of member 2 were: delete log-queue-2, too, and the volumes of all are set aside; or annotate it with cache.example.com/drain=skip to give its data up",
			},
		},
		"two claims of a member that stays, one is deleted and skipped": {
			o: with(at(3), two, claim(2, deleting), claim(2, request(claims.Skip))),
			steps: []string{
				"release claim data-queue-2: Skipped",
			},
		},
		"deleted": {
			o: left(claim(2, deleting)),
			steps: []string{
				"reserve volume pv-data-queue-2 of claim data-queue-2 for claim data-queue-2-aside",
				"create claim data-queue-2-aside for volume pv-data-queue-2 of claim data-queue-2",
			},
			words: []string{
				"data-queue-2: Waiting SettingAside: it was deleted; its volume is being set aside, to be drained from there",
			},
		},
		"deleted, in use": {
			o: left(claim(2, deleting), claim(2, func(c *claims.Claim) { c.InUse = true })),
			words: []string{
				"data-queue-2: Waiting SettingAside: it was deleted; when no pod uses it any more, its volume is set aside, and drained from there",
			},
		},
		"deleted, its pod runs, wanted": {
			o: with(at(3), claim(2, marked), claim(2, deleting), claim(2, func(c *claims.Claim) { c.InUse = true })),
			words: []string{
				"data-queue-2: Waiting PodPresent: it was deleted, and member 2 still uses it: delete the member's pod, and its volume is set aside, and drained from there; the member returns empty",
				"data-queue-2 is deleted: it was deleted, and member 2 still uses it: delete the member's pod, and its volume is set aside, and drained from there; the member returns empty",
			},
		},
		"deleted before it was protected, in use": {
			o: with(at(3), claim(2, deleting), claim(2, unprotected), claim(2, func(c *claims.Claim) { c.InUse = true })),
			words: []string{
				"data-queue-2 is deleted: it was deleted without the operator's finalizer, which can't be added any more: when its member's pod ends, it goes, and volume pv-data-queue-2 by its reclaim policy; set that policy to Retain first, or annotate the claim with cache.example.com/drain=skip to give its data up",
			},
		},
		"deleted before it was protected, and given up": {
			o: with(at(3), claim(2, deleting), claim(2, unprotected), claim(2, request(claims.Skip)), claim(2, func(c *claims.Claim) { c.InUse = true })),
		},
		"deleted before it was protected, about to go": {
			o: with(at(3), claim(2, deleting), claim(2, unprotected)),
		},
		"deleted, forbidden": {
			o: left(claim(2, deleting), claim(2, is(claims.Forbidden))),
			words: []string{
				"data-queue-2: Failed ClaimDeleted: it was deleted before its drain, so nothing can mount it any more, and the operator has no right to set its volume aside: when no pod uses the claim, an administrator can reserve volume pv-data-queue-2 for claim data-queue-2-aside (docs/runbook.md, ClaimDeleted); or annotate the claim with cache.example.com/drain=skip to give its data up",
				"data-queue-2 is deleted: it was deleted before its drain, so nothing can mount it any more, and the operator has no right to set its volume aside: when no pod uses the claim, an administrator can reserve volume pv-data-queue-2 for claim data-queue-2-aside (docs/runbook.md, ClaimDeleted); or annotate the claim with cache.example.com/drain=skip to give its data up",
			},
		},
		"deleted, its volume is gone": {
			o: left(claim(2, deleting), claim(2, is(claims.Gone))),
			words: []string{
				"data-queue-2: Failed ClaimDeleted: it was deleted before its drain, and its volume pv-data-queue-2 is gone: annotate the claim with cache.example.com/drain=skip to give its data up",
				"data-queue-2 is deleted: it was deleted before its drain, and its volume pv-data-queue-2 is gone: annotate the claim with cache.example.com/drain=skip to give its data up",
			},
		},
		"deleted, its volume is another's": {
			o: left(claim(2, deleting), claim(2, is(claims.Elsewhere))),
			words: []string{
				"data-queue-2: Failed ClaimDeleted: it was deleted before its drain, and its volume pv-data-queue-2 is bound to another claim, or to none: annotate the claim with cache.example.com/drain=skip to give its data up",
				"data-queue-2 is deleted: it was deleted before its drain, and its volume pv-data-queue-2 is bound to another claim, or to none: annotate the claim with cache.example.com/drain=skip to give its data up",
			},
		},
		"wanted again": {
			o: with(at(3), claim(2, marked), gone(2)),
			steps: []string{
				"take the leaving mark off claim data-queue-2",
			},
			words: []string{
				"member 2 returned; ",
			},
		},
		"wanted again, a Job drains it": {
			o: with(at(3), claim(2, marked), claim(2, is(claims.Forbidden)), gone(2), job(func(*claims.Job) {})),
			steps: []string{
				"delete Job job: member 2 is wanted again",
			},
			words: []string{
				"member 2 returned; Job job drains claim data-queue-2",
			},
		},
		"aside": {
			o: left(claim(2, aside)),
			steps: []string{
				"drain claim data-queue-2-aside into 2 survivors",
			},
			words: []string{
				"data-queue-2-aside: Draining : ",
			},
		},
		"aside, left by another StatefulSetDrain": {
			o: left(claim(2, aside), claim(2, unprotected)),
			steps: []string{
				"label claim data-queue-2-aside",
			},
			words: []string{
				"left over: data-queue-2-aside",
			},
		},
		"aside, left by another StatefulSetDrain, retry": {
			o: with(left(claim(2, aside), claim(2, unprotected), claim(2, request(claims.Retry)))),
			steps: []string{
				"protect claim data-queue-2-aside",
				"clear the retry of claim data-queue-2-aside",
				"drain claim data-queue-2-aside into 2 survivors",
			},
			words: []string{
				"data-queue-2-aside: Draining : ",
			},
		},
		"aside, left by another StatefulSetDrain, retry, its member is back": {
			o: with(at(3), func(o *stsdrain.Observed) {
				c := o.Claims[2]
				aside(&c)
				unprotected(&c)
				c.Request = claims.Retry
				o.Claims = append(o.Claims, c)
			}),
			steps: []string{
				"protect claim data-queue-2-aside",
				"clear the retry of claim data-queue-2-aside",
				"drain claim data-queue-2-aside into 3 survivors",
			},
			words: []string{
				"data-queue-2-aside: Draining : ",
			},
		},
		"aside, left by another StatefulSetDrain, its mark is lost, retry": {
			o: left(claim(2, aside), claim(2, unprotected), claim(2, func(c *claims.Claim) { c.PlanUnmark(); c.Request = claims.Retry })),
			steps: []string{
				"mark claim data-queue-2-aside as leaving",
				"clear the retry of claim data-queue-2-aside",
				"drain claim data-queue-2-aside into 2 survivors",
			},
			words: []string{
				"data-queue-2-aside: Draining : ",
			},
		},
		"aside, left by another StatefulSetDrain, deleted": {
			o: left(claim(2, aside), claim(2, unprotected), claim(2, deleting)),
		},
		"aside, left by another StatefulSetDrain, retry, replicas 0": {
			o: with(left(claim(2, aside), claim(2, unprotected), claim(2, request(claims.Retry))), scaled(0), gone(0)),
			steps: []string{
				"label claim data-queue-2-aside",
			},
			words: []string{
				"nothing departs: StatefulSet queue has 0 replicas",
				"left over: data-queue-2-aside",
			},
		},
		"two claims aside, left by another StatefulSetDrain, one retry": {
			o: with(at(3), two, scaled(2), both(aside), both(unprotected), gone(2), claim(2, request(claims.Retry))),
			steps: []string{
				"protect claim data-queue-2-aside",
				"protect claim log-queue-2-aside",
				"clear the retry of claim data-queue-2-aside",
				"drain claim data-queue-2-aside into 2 survivors",
			},
			words: []string{
				"data-queue-2-aside: Draining : ",
			},
		},
		"aside, wanted again": {
			o: with(left(claim(2, aside)), scaled(3)),
			steps: []string{
				"wake the StatefulSet's controller",
			},
			words: []string{
				"data-queue-2-aside: Waiting MembersNotReady: member 2 is not ready",
			},
		},
		"aside, held": {
			o: left(claim(2, aside), claim(2, request(claims.Hold))),
			words: []string{
				"data-queue-2-aside: Held Held: remove the annotation cache.example.com/drain=hold to start the drain",
			},
		},
		"aside, skipped": {
			o: left(claim(2, aside), claim(2, request(claims.Skip))),
			steps: []string{
				"delete claim data-queue-2-aside: Skipped",
				"release claim data-queue-2-aside: Skipped",
			},
			words: []string{
				"data-queue-2-aside: Releasing Skipped: ",
			},
		},
		"aside, a member is not ready": {
			o: left(claim(2, aside), func(o *stsdrain.Observed) { o.Ready = o.Ready[:1] }),
			words: []string{
				"data-queue-2-aside: Waiting MembersNotReady: member 1 is not ready",
			},
		},
		"aside, the template is refused": {
			o: left(claim(2, aside), func(o *stsdrain.Observed) { o.Drain.TemplateRefused = "spec.x is no field" }),
			words: []string{
				"data-queue-2-aside: Waiting Refused: the API server refuses the drain's Job: spec.x is no field",
			},
		},
		"aside, and its volume is gone": {
			o: left(claim(2, aside), claim(2, func(c *claims.Claim) { c.Pending = true })),
			words: []string{
				"data-queue-2-aside: Failed ClaimDeleted: it was to take over volume pv-data-queue-2, which is gone, or bound to another claim: annotate the claim with cache.example.com/drain=skip to give its data up",
				"data-queue-2-aside is deleted: it was to take over volume pv-data-queue-2, which is gone, or bound to another claim: annotate the claim with cache.example.com/drain=skip to give its data up",
			},
		},
		"aside, replicas 0": {
			o: with(left(claim(2, aside)), scaled(0)),
			words: []string{
				"nothing departs: StatefulSet queue has 0 replicas",
				"data-queue-2-aside: Waiting Hibernating: StatefulSet queue has 0 replicas: the drain starts when members return",
			},
		},
		"aside, deleted": {
			o: left(claim(2, aside), claim(2, deleting), claim(2, is(claims.Here))),
			steps: []string{
				"reserve volume pv-data-queue-2 of claim data-queue-2-aside for claim data-queue-2-aside-again",
				"create claim data-queue-2-aside-again for volume pv-data-queue-2 of claim data-queue-2-aside",
			},
			words: []string{
				"data-queue-2-aside: Waiting SettingAside: it was deleted; its volume is being set aside, to be drained from there",
			},
		},
		"drained by a Job": {
			o: left(claim(2, aside), job(func(*claims.Job) {})),
			words: []string{
				"data-queue-2-aside: Draining : ",
			},
		},
		"other survivors": {
			o: left(claim(2, aside), job(func(j *claims.Job) { j.Survivors.Count = 1 })),
			steps: []string{
				"delete Job job: StatefulSet queue is to have other members now",
			},
			words: []string{
				"data-queue-2-aside: Waiting InTurn: the drain starts anew when its Job is gone: StatefulSet queue is to have other members now",
			},
		},
		"the template changed, and none has run": {
			o: left(claim(2, aside), job(func(j *claims.Job) { j.Unstarted, j.Outdated = true, true })),
			steps: []string{
				"delete Job job: no pod of it has run, and its pods would be made in another way now",
			},
			words: []string{
				"data-queue-2-aside: Waiting InTurn: the drain starts anew when its Job is gone: no pod of it has run, and its pods would be made in another way now",
			},
		},
		"its Job failed": {
			o: left(claim(2, aside), job(failed)),
			words: []string{
				"data-queue-2-aside: Failed JobFailed: Job job: BackoffLimitExceeded: it failed; failed attempts: 1, the next one is at 1970-01-12T13:47:40Z; the claim is kept: see the drainer's log, then annotate the claim with cache.example.com/drain=retry, or =skip to give its data up",
			},
		},
		"its Job failed, retry is due": {
			o: left(claim(2, aside), job(failed), job0(func(j *claims.Job) { j.Ended = time.Unix(1000, 0) })),
			steps: []string{
				"count failure 1 of claim data-queue-2-aside",
				"delete Job job: it failed, and is tried again",
			},
			words: []string{
				"data-queue-2-aside: Waiting Retrying: the next attempt starts when the failed Job is gone",
			},
		},
		"its Job failed, a person retries": {
			o: left(claim(2, aside), job(failed), claim(2, request(claims.Retry))),
			steps: []string{
				"delete Job job: a person asked for a retry",
				"clear the retry of claim data-queue-2-aside",
			},
			words: []string{
				"data-queue-2-aside: Waiting InTurn: the retry starts when the failed Job is gone",
			},
		},
		"its Job failed, a person holds": {
			o: left(claim(2, aside), job(failed), claim(2, request(claims.Hold))),
			words: []string{
				"data-queue-2-aside: Held Held: the last attempt failed: Job job: BackoffLimitExceeded: it failed; it is tried again when you remove the annotation cache.example.com/drain=hold",
			},
		},
		"the receipt does not hold": {
			o: left(claim(2, aside), job(complete), job0(func(j *claims.Job) {
				j.Receipt, j.ReceiptErr, j.Ended = nil, errors.New("spec.receipt is false"), time.Unix(1_000_000, 0)
			})),
			words: []string{
				"data-queue-2-aside: Failed ReceiptInvalid: spec.receipt is false; failed attempts: 1, the next one is at 1970-01-12T13:47:40Z; the claim is kept: see the drainer's log, then annotate the claim with cache.example.com/drain=retry, or =skip to give its data up",
			},
		},
		"its Job has succeeded": {
			o: left(claim(2, aside), job(complete)),
			steps: []string{
				"record the receipt of claim data-queue-2-aside",
			},
			words: []string{
				"data-queue-2-aside: Releasing Drained: ",
			},
		},
		"the receipt is recorded": {
			o: left(claim(2, aside), job(complete), claim(2, func(c *claims.Claim) { c.Receipt = &action.Receipt{Source: string(c.UID), Message: "3 moved"} })),
			steps: []string{
				"delete claim data-queue-2-aside: Drained",
				"release claim data-queue-2-aside: Drained",
				"delete Job job: its claim is released: Drained",
			},
			words: []string{
				"data-queue-2-aside: Releasing Drained: ",
			},
		},
		"the receipt is another claim's": {
			o: left(claim(2, aside), claim(2, func(c *claims.Claim) { c.Receipt = &action.Receipt{Source: "other"} })),
			steps: []string{
				"drain claim data-queue-2-aside into 2 survivors",
			},
			words: []string{
				"data-queue-2-aside: Draining : ",
			},
		},
		"a step is refused": {
			o: left(claim(2, aside), refused("data-queue-2-aside")),
			words: []string{
				"data-queue-2-aside: Failed Refused: a step about it is refused, and tried again in a moment: a quota forbids it",
			},
		},
		"retained": {
			o: left(claim(2, func(c *claims.Claim) { c.Decided, c.Policy = true, claims.Retain })),
			steps: []string{
				"release claim data-queue-2: Retained",
			},
		},
		"retained, Kubernetes deletes it": {
			o: left(claim(2, func(c *claims.Claim) { c.Decided, c.Policy, c.OwnedByPod = true, claims.Retain, true })),
			steps: []string{
				"set claim data-queue-2 aside",
			},
			words: []string{
				"data-queue-2: Waiting SettingAside: its volume is kept by another claim: Kubernetes deletes this one with its member's pod",
			},
		},
		"policy Delete": {
			o: left(claim(2, func(c *claims.Claim) { c.Decided, c.Policy = true, claims.Delete })),
			steps: []string{
				"delete claim data-queue-2: Deleted",
				"release claim data-queue-2: Deleted",
			},
			words: []string{
				"data-queue-2: Releasing Deleted: ",
			},
		},
		"replicas 0": {
			o: with(at(3), scaled(0), gone(0)),
			words: []string{
				"nothing departs: StatefulSet queue has 0 replicas",
			},
		},
		"no StatefulSet": {
			o: with(at(3), gone(0), func(o *stsdrain.Observed) { o.Set.Exists = false }),
			words: []string{
				"nothing departs: there is no StatefulSet queue",
			},
		},
		"the StatefulSet goes, with its claims": {
			o: with(at(3), gone(0), func(o *stsdrain.Observed) { o.Set.Deleting = true }, claim(2, deleting), claim(2, func(c *claims.Claim) { c.OwnedBySet = true })),
			steps: []string{
				"release claim data-queue-2: StatefulSetDeleted",
			},
			words: []string{
				"nothing departs: StatefulSet queue is being deleted",
			},
		},
		"the StatefulSetDrain is deleted": {
			o: with(left(claim(2, aside)), func(o *stsdrain.Observed) { o.Drain.Deleting = true }),
			steps: []string{
				"release claim data-queue-2-aside: ClusterDeleted",
				"release claim data-queue-1: ClusterDeleted",
				"release claim data-queue-0: ClusterDeleted",
				"take the label off claim data-queue-2-aside",
				"take the label off claim data-queue-1",
				"take the label off claim data-queue-0",
				"remove the cluster's finalizer",
			},
		},
		"the namespace is deleted": {
			o: with(left(claim(2, aside)), func(o *stsdrain.Observed) { o.Drain.NamespaceTerminating = true }),
			steps: []string{
				"release claim data-queue-2-aside: NamespaceTerminating",
				"release claim data-queue-1: NamespaceTerminating",
				"release claim data-queue-0: NamespaceTerminating",
				"remove the cluster's finalizer",
			},
		},
		"an older StatefulSetDrain": {
			o: with(at(3), scaled(2), func(o *stsdrain.Observed) { o.Others = []stsdrain.Other{{Name: "a"}} }),
			words: []string{
				"StatefulSetTaken: StatefulSetDrain a names StatefulSet queue, too, and is older: delete one of the two",
			},
		},
		"a Memcached's": {
			o: with(at(3), scaled(2), func(o *stsdrain.Observed) { o.Set.Memcached = "cache" }),
			words: []string{
				"StatefulSetOfMemcached: StatefulSet queue is of Memcached cache, which drains its members itself: delete this StatefulSetDrain",
			},
		},
		"one member after the other, one is not ready": {
			o: with(at(3), scaled(2), claim(2, marked), func(o *stsdrain.Observed) { o.Set.OrderedReady, o.Ready = true, []int32{1, 2} }),
			words: []string{
				"stalled: member 0 is not ready, and podManagementPolicy is OrderedReady: Kubernetes neither adds nor removes a member before it is",
				"data-queue-2: Leaving PodPresent: member 2 is still shutting down",
			},
		},
		"its claim is gone": {
			o: with(at(3), gone(2), func(o *stsdrain.Observed) { o.Claims = o.Claims[:2] }),
			steps: []string{
				"wake the StatefulSet's controller",
			},
		},
		"its claim is gone, and its pod waits": {
			o: with(at(3), func(o *stsdrain.Observed) { o.Claims, o.Ready = o.Claims[:2], []int32{0, 1} }),
			steps: []string{
				"wake the StatefulSet's controller",
			},
		},
	} {
		p := stsdrain.Decide(test.o)
		var steps []string
		for _, a := range p.Actions {
			steps = append(steps, a.String())
		}
		if diff := cmp.Diff(test.steps, steps); diff != "" {
			t.Errorf("%s: steps: -want +got:\n%s", what, diff)
		}
		if diff := cmp.Diff(test.words, words(&p)); diff != "" {
			t.Errorf("%s: words: -want +got:\n%s", what, diff)
		}
	}
}

func job0(change func(*claims.Job)) func(*stsdrain.Observed) {
	return func(o *stsdrain.Observed) { change(&o.Jobs[0]) }
}

func refused(claim types.UID) func(*stsdrain.Observed) {
	return func(o *stsdrain.Observed) {
		o.Obstructed = map[types.UID]claims.Obstruction{claim: {Why: "a quota forbids it", Until: o.Now.Add(time.Second)}}
	}
}
