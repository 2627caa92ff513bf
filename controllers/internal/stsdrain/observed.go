package stsdrain

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
)

// Drain has the wishes of a StatefulSetDrain.
type Drain struct {
	Name    string
	UID     types.UID
	Created time.Time
	// Terms of the claims. Decide sets SetGone and Names.
	claims.Terms
	// Parallelism is how many drains may run at once; at least 1.
	Parallelism int32
	// Finalizer: the StatefulSetDrain has our finalizer.
	Finalizer bool
	// TemplateRefused says why the API server does not take the drain's Job; empty if it does.
	TemplateRefused string
}

// StatefulSet is the one that the StatefulSetDrain names. If it doesn't exist, all other fields are empty.
type StatefulSet struct {
	Name             string
	Exists, Deleting bool
	UID              types.UID
	// Version is SetVersion.
	Version string
	// Start is ordinals.start.
	Start, Replicas int32
	// Templates are the names of the claim templates.
	Templates []string
	// OrderedReady: Kubernetes neither adds nor removes a member while one before it is not ready.
	OrderedReady bool
	// Memcached is the Memcached that controls it; empty if none does.
	Memcached string
}

// Other is another StatefulSetDrain that names the same StatefulSet.
type Other struct {
	Name    string
	UID     types.UID
	Created time.Time
}

// Foreign is a claim with the name of a member's claim that another owner controls.
type Foreign struct{ Name, By string }

// Observed is everything that a plan depends on. No decision changes it.
type Observed struct {
	// Facts are about claims, and about what uses them. Claims are the claims with a member's name, without
	// those of another controller, and the claims whose volume was set aside. Where is known of a claim that
	// is being deleted or has a leaving mark. Pods are the ordinals of members whose pod
	// exists, or whose claims a pod of the StatefulSet's selector mounts. Units is not set.
	claims.Facts
	Drain Drain
	Set   StatefulSet
	// Ready has the ordinals of the members that are ready.
	Ready []int32
	// Others name the same StatefulSet.
	Others  []Other
	Foreign []Foreign
	// Woken is Plan.Awaited of the last plan whose Wake was written, without members that were there
	// since; empty if the operator has just started.
	Woken []int32
}

// Plan has the actions to take now, in order, and the decisions behind them.
type Plan struct {
	claims.Work
	// Volumes have an entry for each unit of claims that is to be drained or released, highest ordinal
	// first. DeletedClaims include those of members that stay.
	claims.Volumes
	// Facts are those that the volumes were decided by: with units, and with the marks of this plan.
	Facts claims.Facts
	// Refused says why the StatefulSetDrain does nothing.
	Refused Refusal
	// Wanted are the members that the StatefulSet is to have.
	Wanted action.Range
	// Unprotected are the names of wanted members' claims that have no finalizer yet.
	Unprotected []string
	// LeftOver are claims of members that were not wanted when they were first seen, and those that an
	// earlier StatefulSetDrain has set aside.
	LeftOver []action.ClaimRef
	// Returned are members that are wanted again and have their data.
	Returned []Returned
	// NothingDeparts says why no member departs; empty if members may.
	NothingDeparts string
	// Stalled says that Kubernetes doesn't scale the StatefulSet, and why; empty if it does.
	Stalled string
	// EndWaits says what the end of the StatefulSetDrain waits for; empty if it waits for nothing.
	EndWaits string
	// Awaited are wanted members that are not ready, and whose claims don't exist: only the StatefulSet's
	// controller can make them. Remember them when Wake is written.
	Awaited []int32
}

// Refusal is a reason of status, with its message; empty if nothing is refused.
type Refusal struct{ Reason, Message string }

// Returned is a member that is wanted again before its claims were deleted.
type Returned struct {
	Ordinal int32
	// Waits says what its return waits for; empty if the mark is being taken off.
	Waits string
}
