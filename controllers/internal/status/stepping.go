package status

import (
	"cmp"
	"fmt"
	"strings"

	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/plan"
)

// stepping says which member is replaced now, which way, and why.
func stepping(in *Input, w *waits) string { return stepState(in) + stepWhy(in, w) }

// stepLine is the state of a step for the printer column.
func stepLine(in *Input) string {
	switch in.Plan.State {
	case plan.StepsOut, plan.StepEmpties, plan.StepWaits, plan.StepAside, plan.StepsIn:
		return stepState(in)
	}
	return ""
}

func stepState(in *Input) string {
	s := &in.Plan.Step
	how := string(s.State)
	if s.Loses {
		how = "restarting without its items"
	}
	text := fmt.Sprintf("member %d of %d is %s", s.Member, in.Plan.Replicas, how)
	if s.Node != "" && s.State != plan.StepsIn {
		text += fmt.Sprintf(", since node %s is cordoned", s.Node)
	}
	switch s.State {
	case plan.StepsOut, plan.StepsIn:
		if line := percent(in); line != "" {
			text += ", " + line
		}
	case plan.RestartsInPlace:
		text += ", as with rollout: Restart"
	}
	if !s.Since.IsZero() && s.State != plan.RestartsInPlace && s.State != plan.StepDelayed {
		const every = 2 // seconds: a status that differs is written
		seconds := int64(in.Now.Sub(s.Since).Seconds()) / every * every
		text += fmt.Sprintf(", %d s", max(0, seconds))
	}
	return text
}

func stepWhy(in *Input, w *waits) string {
	if why := cmp.Or(in.Plan.Why, silentRouter(in, w)); why != "" {
		return ": " + why
	}
	return ""
}

// silentRouter says which router a step waits for, and what ends that: no time-out counts, because a router that
// follows an older table would ask a member that has started empty.
func silentRouter(in *Input, w *waits) string {
	switch in.Plan.State {
	case plan.StepsOut, plan.StepsIn:
	default:
		return ""
	}
	for _, b := range in.RoutersBehind {
		if w.past(b.Since.Add(claims.StuckAfter)) {
			return fmt.Sprintf("router %s has not followed since %s: delete its pod, with --force if its node is gone", b.Pod, clock(b.Since))
		}
	}
	return ""
}

// stepEnds says when the member that is out is back.
func stepEnds(in *Input, w *waits) string {
	return strings.Replace(stepState(in), " is ", ", which is ", 1) + ", is back in the ring" + stepWhy(in, w)
}

// percent is how far the moves are; empty if that is not known.
func percent(in *Input) string {
	var items, total int64
	for i := range in.Plan.Moves {
		p := in.Progress[in.Plan.Moves[i].Claim.UID]
		items, total = items+p.ItemsDone, total+p.ItemsTotal
	}
	if total == 0 {
		return ""
	}
	return fmt.Sprintf("%d %%", 100*items/total)
}
