package write

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/identity"
	"example.com/memcached-operator/controllers/internal/remembered"
)

// Steps takes the steps of a plan in their order.
type Steps struct {
	// Owner of the plan.
	Owner client.ObjectKey
	// Take takes a step. Before and After are called around it; nil for nothing.
	Take   func(context.Context, action.Action) error
	Before func(action.Action)
	After  func(action.Action, error)
	// Obstructed remembers the claims whose last step the API server has refused, at the time Now;
	// nil remembers none.
	Obstructed *remembered.Obstructions
	Now        time.Time
}

// InOrder takes the steps. A step that fails stops those that depend on it (action.Class).
func (s *Steps) InOrder(ctx context.Context, actions []action.Action) error {
	var failed error
	membersFailed, claimsFailed := false, map[types.UID]bool{}
	for _, step := range actions {
		kind := action.KindOf(step)
		if kind.Class == action.Members && membersFailed || kind.Claim != "" && claimsFailed[kind.Claim] {
			// Steps that depend on one that is left out are left out, too: no member ends without its mark.
			membersFailed = membersFailed || kind.Class == action.Members
			continue
		}
		err := s.take(ctx, step)
		if err != nil {
			err = fmt.Errorf("%s: %w", step, err)
		}
		NoteOutcome(s.Obstructed, s.Owner, kind.Claim, err, s.Now)
		if err == nil {
			continue
		}
		if errors.Is(err, read.ErrRefused) {
			logf.FromContext(ctx).V(1).Info("Refused a step", "step", step.String(), "reason", err.Error())
		}
		failed = Worse(failed, err)
		switch {
		case kind.Class == action.Members:
			membersFailed = !isApart(err)
		case ctx.Err() != nil, kind.Class == action.Cluster, kind.Class == action.Claim && kind.Claim == "":
			return failed
		case kind.Class == action.Claim:
			claimsFailed[kind.Claim] = true
		}
	}
	return failed
}

func (s *Steps) take(ctx context.Context, step action.Action) error {
	if s.Before != nil {
		s.Before(step)
	}
	err := s.Take(Because(ctx, step.String()), step)
	if kind := action.KindOf(step); err == nil && kind.EndsJob {
		s.Obstructed.Ended(s.Owner, kind.Claim)
	}
	if s.After != nil {
		s.After(step, err)
	}
	return err
}

// obstructedFor is how long no step about a claim is tried again after one was refused.
const obstructedFor = 15 * time.Second

// NoteOutcome remembers that the API server has refused a write about the claim, if it would refuse
// another attempt, too. Meanwhile other claims have their turn.
func NoteOutcome(obstructed *remembered.Obstructions, owner client.ObjectKey, about types.UID, err error, now time.Time) {
	taken, vanished := (*identity.NameTakenError)(nil), (*vanishedError)(nil)
	switch is := errors.As(err, &taken); {
	case about == "" || obstructed == nil:
	case errors.As(err, &vanished):
		obstructed.Note(owner, about, claims.Obstruction{Why: vanished.Error(), Vanished: true, Until: vanished.next})
	case err == nil:
		obstructed.Passed(owner, about)
	case is || read.Denied(err):
		obstructed.Note(owner, about, claims.Obstruction{Why: err.Error(), Taken: is, Until: now.Add(obstructedFor)})
	}
}

// apart is the error of a write that stops no other write, although its class would.
type apart struct{ error }

func (e apart) Unwrap() error { return e.error }

// ApartIf sets a denied write apart if the owner can do without it for now. For example, an existing object
// keeps its present labels.
func ApartIf(canWait bool, err error) error {
	if canWait && read.Denied(err) {
		return apart{err}
	}
	return err
}

func isApart(err error) bool {
	var is apart
	return errors.As(err, &is)
}

// Worse returns the more severe error: a failure comes before a name that is taken, which is tried
// again less often, and a taken name before a refusal. If both are equally severe, it returns the first.
func Worse(first, second error) error {
	if first == nil || severity(second) > severity(first) {
		return second
	}
	return first
}

func severity(err error) int {
	taken := (*identity.NameTakenError)(nil)
	switch {
	case errors.Is(err, read.ErrRefused):
		return 0
	case errors.As(err, &taken):
		return 1
	}
	return 2
}
