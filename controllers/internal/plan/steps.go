package plan

import (
	"fmt"
	"slices"
	"strings"

	"example.com/memcached-operator/controllers/internal/action"
)

// step is a part of the plan for a cluster with storage. It decides by what was observed and by what the steps
// before it have decided, and plans its writes after theirs.
type step struct {
	name   string
	decide func(*Plan, *Observed)
	// writes are the kinds of actions that it plans; none if it only decides.
	writes []action.Action
	// here is why its place is here.
	here string
}

// steps are all parts of the plan, in their order. A failed write stops those that its class says (action.Class).
var steps = []step{
	{"finalizers", (*Plan).addFinalizers, []action.Action{action.AddClusterFinalizer{}, action.AddClaimFinalizer{}},
		"a deletion from now on waits for the operator"},
	{"size", (*Plan).decideSize, nil, "all else follows from how many members stay"},
	{"list", (*Plan).decideList, nil, "the ring follows from the size"},
	{"leaving marks", (*Plan).markLeaving, []action.Action{action.MarkLeaving{}},
		"before the StatefulSet shrinks, and before clients are told: a volume without a mark comes back as a member's"},
	{"prepared movers", (*Plan).prepare, nil, "the list is held back until movers are ready to begin"},
	{"table", (*Plan).decideTable, nil, "routers are told in states, so they may hold the list back"},
	{"leaving members", (*Plan).keepLeaving, nil, "how many members run follows from the list and the table"},
	{"small volumes", (*Plan).findSmall, nil, "pods keep their template until volumes have grown"},
	{"orphaned Jobs", (*Plan).sweepJobs, []action.Action{action.DeleteJob{}}, "before other Jobs move items"},
	{"addresses", (*Plan).applyAddresses, []action.Action{action.ApplyMemberService{}}, "before clients are told of these names"},
	{"clients' list", (*Plan).writeList, []action.Action{action.ApplyService{}, action.ApplyListService{}, action.ApplyDiscovery{}, action.WriteList{}},
		"before members leave, and when those that join are ready"},
	{"moves begin", (*Plan).beginMoves, []action.Action{action.BeginMove{}}, "after the list: nothing moves before clients are told"},
	{"list in DNS", (*Plan).writeEndpoints, []action.Action{action.WriteEndpoints{}}, "it is the list that is written"},
	{"routers", (*Plan).route, []action.Action{action.WriteTable{}, action.TellRouter{}, action.ApplyRouters{}},
		"after the list: both name the same ring"},
	{"discovery", (*Plan).tellMembers, []action.Action{action.TellMember{}}, "supervisors answer with the list that is in DNS"},
	{"members", (*Plan).applyMembers, []action.Action{action.ApplyNetworkPolicy{}, action.WriteBinding{}, action.ApplyStatefulSet{}, action.ApplyBudget{}, action.ApplyServiceMonitor{}},
		"after marks, list and table: no member ends that clients are still told of"},
	{"old addresses", (*Plan).retireAddresses, []action.Action{action.RetireMemberService{}, action.DeleteMemberService{}}, "a name goes when its member has gone"},
	{"volumes", (*Plan).drain, []action.Action{action.ReserveVolume{}, action.CreateAside{}, action.SetAside{}, action.SkipAside{}, action.ReturnVolume{},
		action.CreateDrain{}, action.RecordReceipt{}, action.CountFailure{}, action.ClearRetry{}, action.DeleteClaim{}, action.ReleaseClaim{}, action.DeleteJob{}, action.AddClaimFinalizer{}},
		"after the members: a volume is drained into those that stay"},
	{"moves", (*Plan).move, []action.Action{action.CreateMove{}, action.RecordMoved{}, action.CountFailure{}, action.ClearMoveRetry{}, action.DeleteJob{}},
		"after the volumes: drains and moves have one order (order.go)"},
	{"growth", (*Plan).grow, []action.Action{action.GrowClaim{}}, "nothing waits for it but the members' next template"},
}

// Order is the table of the steps, in Markdown: what each writes, what its failure stops, and why it comes here.
func Order() string {
	var b strings.Builder
	b.WriteString("| step | writes | a failure stops | why here |\n|---|---|---|---|\n")
	for _, s := range steps {
		var writes, stops []string
		for _, a := range s.writes {
			writes = append(writes, strings.TrimPrefix(fmt.Sprintf("%T", a), "action."))
			if class := string(action.KindOf(a).Class); !slices.Contains(stops, class) {
				stops = append(stops, class)
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", s.name, strings.Join(writes, ", "), strings.Join(stops, "; "), s.here)
	}
	return b.String()
}
