package plan

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"example.com/memcached-operator/controllers/internal/ring"
	"example.com/memcached-operator/drainer/contract"
)

// Action is one write to the API server, or no write if the object is already as wanted.
type Action interface {
	fmt.Stringer
	action()
}

// The actions. Each names the object by UID, so that it can't hit a successor.
type (
	// AddClusterFinalizer to the Memcached.
	AddClusterFinalizer struct{}
	// RemoveClusterFinalizer from the Memcached: nothing is held any more.
	RemoveClusterFinalizer struct{}
	// ApplyService applies the Service, which gives the members their names.
	ApplyService struct{}
	// WriteList tells clients of that many members, and keeps the Record of the rings
	// with it, in the place of From. Replicas are those that there are to be.
	WriteList struct {
		ListSize     int32
		Record, From ring.Record
		Replicas     int32
	}
	// ApplyNetworkPolicy applies it, or deletes it.
	ApplyNetworkPolicy struct{}
	// WriteBinding writes the Secret of spec.binding, which names that many members, or
	// deletes it.
	WriteBinding struct{ ListSize int32 }
	// ApplyStatefulSet applies the StatefulSet of the members.
	ApplyStatefulSet struct {
		Replicas int32
		// KeepTemplate leaves the pods as they are.
		KeepTemplate bool
	}
	// ApplyDeployment applies the Deployment of a cluster without storage.
	ApplyDeployment struct{ Replicas int32 }
	// ApplyBudget applies the PodDisruptionBudget, or deletes it.
	ApplyBudget struct{}
	// ApplyServiceMonitor applies it, or deletes it.
	ApplyServiceMonitor struct{}
	// DeleteMembers deletes the StatefulSet.
	DeleteMembers struct{}
	// AddClaimFinalizer adds the claim's finalizer.
	AddClaimFinalizer struct{ Claim ClaimRef }
	// MarkLeaving writes the leaving mark, and whether the member is Unplaced or has
	// NeverStarted.
	MarkLeaving struct {
		Claim                  ClaimRef
		Unplaced, NeverStarted bool
	}
	// CreateDrain creates the Job that drains the claim into the ordinals below
	// Survivors.
	CreateDrain struct {
		Claim        ClaimRef
		Survivors    int32
		NeverStarted bool
	}
	// RecordReceipt keeps a receipt that adds up on the claim.
	RecordReceipt struct {
		Claim   ClaimRef
		Receipt *contract.Receipt
	}
	// CountFailure keeps on the claim how often moving its items has failed.
	CountFailure struct {
		Claim    ClaimRef
		Attempts Attempts
	}
	// ClearRetry removes the annotation of a retry that has begun, and what was counted.
	ClearRetry struct{ Claim ClaimRef }
	// CreatePlacement creates the Job that moves what the claim's member holds to
	// where clients look, by the ring of that Target and so many Members; what is there
	// of the Lost ones is discarded.
	CreatePlacement struct {
		Claim   ClaimRef
		Target  string
		Members int32
		Lost    []int32
	}
	// RecordPlaced keeps on the claim that its member's items are placed by the ring
	// of that serial. Receipt is the proof, or nil where a person asked for no more.
	RecordPlaced struct {
		Claim   ClaimRef
		Serial  int64
		Target  string
		Receipt *contract.Receipt
	}
	// ClearPlacementRetry is ClearRetry for a placement.
	ClearPlacementRetry struct{ Claim ClaimRef }
	// DeleteJob deletes a Job, and so its pods.
	DeleteJob struct {
		Name   string
		UID    types.UID
		Reason string
		// Stray: it is nobody's, and no other action waits for its end.
		Stray bool
	}
	// DeleteClaim deletes the claim; its finalizer still holds it.
	DeleteClaim struct {
		Claim ClaimRef
		Why   Release
	}
	// SetAside deletes the claim of a member that left: what is held of it leads to
	// a claim of another name (MoveVolume, CreateAside).
	SetAside struct{ Claim ClaimRef }
	// ReserveVolume makes the volume of a claim that is being deleted wait for the
	// claim that takes it over.
	ReserveVolume struct {
		Claim      ClaimRef
		Volume, To string
	}
	// CreateAside creates that claim.
	CreateAside struct {
		Claim      ClaimRef
		Volume, To string
	}
	// ReturnVolume gives the volume that waits for that claim back to the first one: it
	// goes with it.
	ReturnVolume struct {
		Claim        ClaimRef
		Volume, From string
	}
	// GrowClaim asks for a volume of that size, in bytes.
	GrowClaim struct {
		Claim ClaimRef
		Size  int64
	}
	// SkipAside annotates the claim with a skip: a person gave up the one whose volume it
	// was to take over.
	SkipAside struct{ Claim ClaimRef }
	// ReleaseClaim removes the claim's finalizer.
	ReleaseClaim struct {
		Claim ClaimRef
		Why   Release
	}
)

// ClaimRef names a claim.
type ClaimRef struct {
	Name    string
	UID     types.UID
	Ordinal int32
}

// Ref names the claim.
func (c *Claim) Ref() ClaimRef { return ClaimRef{Name: c.Name, UID: c.UID, Ordinal: c.Ordinal} }

// Release is why a claim may be let go: invariant 1.
type Release string

// The reasons for letting a claim go.
const (
	// ByReceipt: a complete receipt for exactly this claim is recorded.
	ByReceipt Release = "Drained"
	// BySkip: a person gave the items up by annotation.
	BySkip Release = "Skipped"
	// ByPolicyDelete and ByPolicyRetain: spec.drain.policy.
	ByPolicyDelete Release = "Deleted"
	ByPolicyRetain Release = "Retained"
	// ByClusterDeletion: the Memcached is deleted, under spec.drain.whenDeleted.
	ByClusterDeletion Release = "ClusterDeleted"
	// ByNamespace: the namespace is terminating.
	ByNamespace Release = "NamespaceTerminating"
	// NeverBound: no volume was ever bound to the claim.
	NeverBound Release = "NeverBound"
	// ByUnrecoverable: no drain can read the volume, and spec.drain.onUnrecoverable
	// gives its items up.
	ByUnrecoverable Release = "Unrecoverable"
	// BySetAside: another claim that is held has its volume.
	BySetAside Release = "SetAside"
)

func (AddClusterFinalizer) action()    {}
func (RemoveClusterFinalizer) action() {}
func (ApplyService) action()           {}
func (WriteList) action()              {}
func (ApplyNetworkPolicy) action()     {}
func (WriteBinding) action()           {}
func (ApplyStatefulSet) action()       {}
func (ApplyDeployment) action()        {}
func (ApplyBudget) action()            {}
func (ApplyServiceMonitor) action()    {}
func (DeleteMembers) action()          {}
func (AddClaimFinalizer) action()      {}
func (MarkLeaving) action()            {}
func (CreateDrain) action()            {}
func (RecordReceipt) action()          {}
func (CountFailure) action()           {}
func (ClearRetry) action()             {}
func (CreatePlacement) action()        {}
func (RecordPlaced) action()           {}
func (ClearPlacementRetry) action()    {}
func (DeleteJob) action()              {}
func (DeleteClaim) action()            {}
func (SetAside) action()               {}
func (ReserveVolume) action()          {}
func (CreateAside) action()            {}
func (ReturnVolume) action()           {}
func (GrowClaim) action()              {}
func (SkipAside) action()              {}
func (ReleaseClaim) action()           {}

func (AddClusterFinalizer) String() string    { return "add the cluster's finalizer" }
func (RemoveClusterFinalizer) String() string { return "remove the cluster's finalizer" }
func (ApplyService) String() string           { return "apply the Service" }
func (a WriteList) String() string            { return fmt.Sprintf("tell clients of %d members", a.ListSize) }
func (ApplyNetworkPolicy) String() string     { return "apply the NetworkPolicy" }
func (WriteBinding) String() string           { return "write the binding" }
func (a ApplyStatefulSet) String() string {
	return fmt.Sprintf("apply the StatefulSet, %d replicas", a.Replicas)
}
func (a ApplyDeployment) String() string {
	return fmt.Sprintf("apply the Deployment, %d replicas", a.Replicas)
}
func (ApplyBudget) String() string         { return "apply the PodDisruptionBudget" }
func (ApplyServiceMonitor) String() string { return "apply the ServiceMonitor" }
func (DeleteMembers) String() string       { return "delete the StatefulSet" }
func (a AddClaimFinalizer) String() string { return "hold claim " + a.Claim.Name }
func (a MarkLeaving) String() string       { return "mark claim " + a.Claim.Name + " as leaving" }
func (a CreateDrain) String() string {
	return fmt.Sprintf("drain claim %s into %d survivors", a.Claim.Name, a.Survivors)
}
func (a RecordReceipt) String() string { return "record the receipt of claim " + a.Claim.Name }
func (a CountFailure) String() string {
	return fmt.Sprintf("count failure %d of claim %s", a.Attempts.Failed, a.Claim.Name)
}
func (a ClearRetry) String() string { return "clear the retry of claim " + a.Claim.Name }
func (a CreatePlacement) String() string {
	without := ""
	if len(a.Lost) > 0 {
		without = fmt.Sprintf(", without %d", a.Lost)
	}
	return fmt.Sprintf("place what the member of claim %s holds, by ring %s%s", a.Claim.Name, a.Target, without)
}
func (a RecordPlaced) String() string {
	return fmt.Sprintf("record that the member of claim %s is placed by ring %s", a.Claim.Name, a.Target)
}
func (a ClearPlacementRetry) String() string {
	return "clear the placement's retry of claim " + a.Claim.Name
}
func (a DeleteJob) String() string { return "delete Job " + a.Name + ": " + a.Reason }
func (a DeleteClaim) String() string {
	return fmt.Sprintf("delete claim %s: %s", a.Claim.Name, a.Why)
}
func (a SetAside) String() string { return "set claim " + a.Claim.Name + " aside" }
func (a ReserveVolume) String() string {
	return fmt.Sprintf("move volume %s of claim %s to claim %s", a.Volume, a.Claim.Name, a.To)
}
func (a CreateAside) String() string {
	return fmt.Sprintf("create claim %s for volume %s of claim %s", a.To, a.Volume, a.Claim.Name)
}
func (a ReturnVolume) String() string {
	return fmt.Sprintf("give volume %s back to claim %s", a.Volume, a.Claim.Name)
}
func (a GrowClaim) String() string {
	return fmt.Sprintf("grow claim %s to %d bytes", a.Claim.Name, a.Size)
}
func (a SkipAside) String() string { return "give up claim " + a.Claim.Name }
func (a ReleaseClaim) String() string {
	return fmt.Sprintf("release claim %s: %s", a.Claim.Name, a.Why)
}
