// Package plan decides what to do about a cluster. Package plan is pure: observed facts go in, actions come
// out. Its rules decide the states of a volume, and keep the invariants (test/invariants).
//
//	member ──size lowered──▶ leaving ──pod gone──▶ departed ──a Job drains it──▶ receipt ──▶ released
//	                                                  │            │
//	                                                  │            └── failed: kept, tried again
//	                                                  └── held, skipped by a person
//
// A leaving member keeps running while its items are moved (leaving.go). The leaving mark is written
// on the claim before the StatefulSet is made smaller, and the mark is never removed. The volume
// never becomes a member's again, because its values may be old by then.
//
// No pod can mount a claim that is being deleted. So its volume is set aside: the volume
// is bound to another claim, which is created with the mark (package claims).
//
// Each decision takes the facts and earlier decisions, and changes neither:
//
//	size.go     how many members stay, and why not as many as wanted
//	told.go     what clients are told: the list        table.go    what routers are told
//	stepout.go  which member is out of the ring for its restart, and who restarts where it is
//	evictions.go  which members are on nodes that are drained
//	depart.go   which members leave, and which of them still run
//	volumes.go  what drains wait for; package claims decides about each claim
//	moves.go    which movers work                      growth.go   which volumes grow
//	warm.go     what is copied from another cache      warmfrom.go what is known of that cache
//
// All of them read a view of the facts (view.go), which has what follows from these: who leaves
// (leaving.go), who is lost (lost.go), in which order volumes are drained (order.go), what routers
// do (routers.go). look.go works the view out. steps.go has the order of the decisions, and that of
// the writes; next.go runs them. Files refer in one direction only: no two refer to each other.
package plan

import (
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
)

// Plan has the actions to take now, in order, and the decisions behind them.
type Plan struct {
	claims.Work
	Size
	Told
	Step
	claims.Volumes
	Growth
	// Warming is the state of the warming from spec.warmFrom.
	Warming WarmState
	// Moves has an entry for each member whose items have to be moved, highest
	// ordinal first.
	Moves []MoveState
}

// plain is the plan for a cluster without storage. Its members have no names of their own, but places on the
// clients' list. The list grows when as many members are ready. When the cluster is deleted, the garbage
// collector does everything.
func plain(o *Observed) Plan {
	n := o.Cluster.Size
	listed := n
	if o.ListSize > 0 {
		listed = nextListSize(o, n)
	}
	p := Plan{Size: Size{Replicas: n, Running: n}, Told: Told{ListSize: listed}}
	if !o.Cluster.Deleting {
		p.Do(action.ApplyService{}, action.ApplyListService{}, action.WriteList{ListSize: listed, Replicas: n},
			action.WriteEndpoints{ListSize: listed}, action.ApplyNetworkPolicy{}, action.WriteBinding{ListSize: listed},
			action.ApplyDeployment{Replicas: n}, action.ApplyBudget{}, action.ApplyServiceMonitor{})
	}
	return p
}
