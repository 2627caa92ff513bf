// Package action has a type for each write that the operator makes. Package plan decides which,
// and package apply makes them.
package action

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"example.com/memcached-operator/controllers/internal/ring"
	"example.com/memcached-operator/drainer/contract"
)

// Action is one write to the API server, or none if the object is already as wanted.
type Action interface {
	fmt.Stringer
	kind() Kind
}

// KindOf returns the kind of the action.
func KindOf(a Action) Kind { return a.kind() }

// Kind tells which later actions a failure of an action stops, and how the action affects live reads and Jobs.
type Kind struct {
	Class
	// Claim leads the unit that the action is about, empty for none. A failure stops the later actions about
	// the same unit.
	Claim types.UID
	// ReadsAgain: a live read from before the action is outdated after it. All other actions write nothing
	// that live checks look at, or add their writes to the live read.
	ReadsAgain bool
	// Owns: the action makes the Memcached the owner of its members. Right before it, a live read tells whether a
	// person has deleted the Memcached and keeps the members.
	Owns bool
	// MakesJob: the action creates a Job. EndsJob: after the action, the operator knows how the last Job of the
	// claim has ended, or has ended it.
	MakesJob, EndsJob bool
}

// Class names the later actions that a failure of an action stops.
type Class string

// The classes.
const (
	// Cluster: all later actions.
	Cluster Class = "all"
	// Members: the later actions of this class, which create members or their prerequisites: leaving marks,
	// names, the clients' list, the NetworkPolicy. A mistake in the spec doesn't stop a drain.
	Members Class = "members"
	// Claim: the later actions about the same claim. A claim that can't be drained doesn't stop other drains,
	// moves or growth.
	Claim Class = "claim"
	// Beside: nothing.
	Beside Class = "nothing"
)

// The actions. Each names its object by UID, so that it can't affect a later object of
// the same name.
type (
	// AddOwnerFinalizer adds our finalizer to the owner: the Memcached or the StatefulSetDrain.
	AddOwnerFinalizer struct{}
	// RemoveOwnerFinalizer removes the owner's finalizer when no claim has ours any more.
	RemoveOwnerFinalizer struct{}
	// ApplyService applies the Service that names the members.
	ApplyService struct{}
	// WriteList writes the clients' list with ListSize members, and the Record of its rings. From
	// is the record that it replaces. Replicas is how many members stay.
	WriteList struct {
		ListSize     int32
		Record, From ring.Record
		Replicas     int32
	}
	// ApplyListService applies the Service that has the clients' list as DNS records.
	ApplyListService struct{}
	// WriteEndpoints writes the EndpointSlice of the list's Service, with ListSize members.
	WriteEndpoints struct{ ListSize int32 }
	// ApplyDiscovery applies the Service of spec.discovery, or deletes it.
	ApplyDiscovery struct{}
	// TellMember writes the list that is in DNS to a member's pod.
	TellMember struct{ Pod PodRef }
	// ApplyRouters applies or deletes a part of the routers of spec.router.
	ApplyRouters struct{ Part RouterPart }
	// WriteTable writes the table of the rings for the routers, or deletes it. In the states stable
	// and prepare its new ring has ListSize members, without the one that is Out (ring.Ring); in the
	// others the rings stay.
	WriteTable struct {
		State         contract.RingState
		ListSize, Out int32
		// Begins: the member that is out is the first one of a roll-out.
		Begins bool
	}
	// TellRouter annotates a router's pod, so that the kubelet updates the routers' table in it.
	TellRouter struct{ Pod PodRef }
	// ApplyNetworkPolicy applies the NetworkPolicy, or deletes it.
	ApplyNetworkPolicy struct{}
	// WriteBinding writes the Secret of spec.binding with ListSize members, or deletes it.
	WriteBinding struct{ ListSize int32 }
	// ApplyStatefulSet applies the StatefulSet of the members.
	ApplyStatefulSet struct {
		Replicas int32
		// KeepTemplate leaves the pod template unchanged.
		KeepTemplate bool
		// Partition: members with lower ordinals keep their template. Steps: if the template changes, all do.
		Partition int32
		// Loses: the members that a lower partition lets go lose their items.
		Steps, Loses bool
		// Why the member that a lower partition lets go restarts where it is; empty if that was said before.
		Why string
	}
	// StartEmpty tells the supervisor of a member that is out to start its memcached empty. Serial is that of
	// the ring without the member. Aside: the member is not to be ready then, so that its eviction is allowed.
	StartEmpty struct {
		Pod    PodRef
		Serial int64
		Aside  bool
	}
	// EndAside tells the supervisor of a member that it may be ready again.
	EndAside struct{ Pod PodRef }
	// ApplyDeployment applies the Deployment of a cluster without storage.
	ApplyDeployment struct{ Replicas int32 }
	// ApplyBudget applies the PodDisruptionBudget, or deletes it. StepOut: it allows the eviction of no member that is
	// ready. Loses is why members that may be evicted now lose their items; empty if they don't.
	ApplyBudget struct {
		StepOut bool
		Loses   string
	}
	// ApplyServiceMonitor applies the ServiceMonitor, or deletes it.
	ApplyServiceMonitor struct{}
	// OpenPartition lets all members of the StatefulSet have its template, because no operator lowers the
	// partition any more.
	OpenPartition struct{ UID types.UID }
	// DeleteMembers deletes the StatefulSet.
	DeleteMembers struct{ UID types.UID }
	// AddClaimFinalizer adds the claim's finalizer.
	AddClaimFinalizer struct{ Claim ClaimRef }
	// MarkLeaving writes the leaving mark on the claim. Unmoved and NeverStarted are as in
	// claims.Claim.
	MarkLeaving struct {
		Claim                 ClaimRef
		Unmoved, NeverStarted bool
	}
	// CreateDrain creates the Job that drains the claim, and With the other claims of its unit, into
	// the Survivors.
	CreateDrain struct {
		Claim        ClaimRef
		With         []ClaimRef
		Survivors    Range
		NeverStarted bool
	}
	// RecordReceipt writes a receipt that adds up on the claim.
	RecordReceipt struct {
		Claim   ClaimRef
		Receipt *Receipt
	}
	// CountFailure writes on the claim how many attempts have failed.
	CountFailure struct {
		Claim    ClaimRef
		Attempts Attempts
	}
	// ClearRetry removes the retry annotation and the count of failures when the retry has begun.
	ClearRetry struct{ Claim ClaimRef }
	// CreateMove creates the Job that moves the items of the claim's member to their owners among
	// the first Members members, by the ring named Target. Items owned by Lost members are
	// discarded. Prepared: the Job waits for BeginMove, because clients are not told of that ring
	// yet. Leases: each key is moved under its lease. Out is as in ring.Ring.
	CreateMove struct {
		Claim    ClaimRef
		Target   string
		Members  int32
		Out      int32
		Lost     []int32
		Prepared bool
		Leases   bool
	}
	// BeginMove tells the pod of a prepared move by the ring Target to begin.
	BeginMove struct {
		Claim  ClaimRef
		Target string
		Leases bool
	}
	// RecordMoved writes on the claim that its member's items are moved by the ring with this
	// Serial. Receipt is the proof; nil if a person asked to skip the move.
	RecordMoved struct {
		Claim   ClaimRef
		Serial  int64
		Target  string
		Receipt *Receipt
	}
	// StampPod writes on the pod of a member without a volume that it was empty when clients began to use it by the
	// ring with this Serial.
	StampPod struct {
		Claim  ClaimRef
		Serial int64
	}
	// ClearMoveRetry is ClearRetry for a move.
	ClearMoveRetry struct{ Claim ClaimRef }
	// DeleteJob deletes a Job and its pods.
	DeleteJob struct {
		Name   string
		UID    types.UID
		Reason string
		// ClaimUID is of the claim that the Job drains, or whose member's items it moves.
		ClaimUID types.UID
		// Claim is only set for the mover of a leaving member. Moved is then the mover's receipt,
		// or nil, and NotMoved says why there is none.
		Claim    ClaimRef
		Moved    *Receipt
		NotMoved string
	}
	// DeleteClaim deletes the claim; the finalizer still keeps it.
	DeleteClaim struct {
		Claim ClaimRef
		Why   Release
	}
	// SetAside deletes the claim of a departed member. The finalizer keeps it until
	// another claim has its volume (ReserveVolume, CreateAside).
	SetAside struct{ Claim ClaimRef }
	// ReserveVolume reserves the volume of a claim that is being deleted for the claim
	// that takes it over.
	ReserveVolume struct {
		Claim      ClaimRef
		Volume, To string
	}
	// CreateAside creates the claim that takes the volume over. StoredBy is the serial of the last
	// ring by which clients stored items on the volume; 0 if it is not known.
	CreateAside struct {
		Claim      ClaimRef
		Volume, To string
		StoredBy   int64
	}
	// ReturnVolume binds a reserved volume to its first claim again, so that the volume is deleted with that
	// claim.
	ReturnVolume struct {
		Claim        ClaimRef
		Volume, From string
	}
	// GrowClaim asks for a volume of this Size, in bytes.
	GrowClaim struct {
		Claim ClaimRef
		Size  int64
	}
	// CarryOver notes on the aside claim that its marks, which were copied from the claim From, are its own
	// now.
	CarryOver struct{ Claim, From ClaimRef }
	// SkipToo annotates a claim of a hand-over with a skip, because a person has skipped the other one.
	SkipToo struct{ Claim ClaimRef }
	// NoteRestored notes that a backup has brought the claim back: the annotations on it are about another
	// claim, and only a person knows whether its data is wanted. Hold: its drain waits for that person.
	NoteRestored struct {
		Claim ClaimRef
		Hold  bool
	}
	// ReleaseClaim removes the claim's finalizer.
	ReleaseClaim struct {
		Claim ClaimRef
		Why   Release
	}
)

// RouterPart is one of the routers' objects.
type RouterPart string

// The parts of the routers.
const (
	RouterService    RouterPart = "Service"
	RouterPolicy     RouterPart = "NetworkPolicy"
	RouterDeployment RouterPart = "Deployment"
	RouterBudget     RouterPart = "PodDisruptionBudget"
)

// Attempts counts failed attempts in a row to drain a claim, or to move its member's
// items.
type Attempts struct {
	Failed int32
	// Last is the UID of the Job of the last attempt.
	Last types.UID
}

// Receipt is a drainer's report at its end.
type Receipt struct {
	// Source names the drained volumes: the UIDs of the claims, joined by commas. For a move it is
	// ring.Source.
	Source string
	// Err says why the receipt does not add up; nil if it does.
	Err error
	// Final: no later attempt can succeed. Unreadable: no drain can read the volume.
	Final, Unreadable bool
	// Reason and Message say why the drainer failed; empty if it did not say.
	Reason, Message string
	// Text is the part of the receipt that the claim keeps.
	Text string
	// SetVersion is that of the Job that drained it (claims.Job).
	SetVersion string
}

// AddsUp returns nil if the receipt proves that all these sources are drained, else an error that says
// which condition is missing.
func (r *Receipt) AddsUp(sources ...string) error {
	drained := strings.Split(r.Source, ",")
	for _, source := range sources {
		if !slices.Contains(drained, source) {
			return fmt.Errorf("the receipt is for %q, not for %q", r.Source, source)
		}
	}
	return r.Err
}

// PodRef names a pod. Ordinal is the member's, and 0 for a router.
type PodRef struct {
	Name    string
	UID     types.UID
	Ordinal int32
}

// ClaimRef names a claim.
type ClaimRef struct {
	Name    string
	UID     types.UID
	Ordinal int32
	// Unit is the UID of the claim that leads this one's unit; empty if it leads itself, or is alone.
	Unit types.UID
}

// unit is the UID of the claim that leads the unit.
func (c ClaimRef) unit() types.UID { return cmp.Or(c.Unit, c.UID) }

// Range are the ordinals of Count members, from Start on.
type Range struct{ Start, Count int32 }

// Has tells whether the ordinal is in the range.
func (r Range) Has(ordinal int32) bool { return r.Start <= ordinal && ordinal-r.Start < r.Count }

// Release is why a claim may be released: invariant 1.
type Release string

// The reasons to release a claim.
const (
	// ByReceipt: a receipt that adds up, for exactly this claim, is recorded on it.
	ByReceipt Release = "Drained"
	// BySkip: a person has given the items up by annotation.
	BySkip Release = "Skipped"
	// ByPolicyDelete and ByPolicyRetain: spec.drain.policy.
	ByPolicyDelete Release = "Deleted"
	ByPolicyRetain Release = "Retained"
	// ByOwnerDeletion: the Memcached is deleted, under spec.drain.whenDeleted.
	ByOwnerDeletion Release = "ClusterDeleted"
	// ByNamespace: the namespace is terminating.
	ByNamespace Release = "NamespaceTerminating"
	// ByStatefulSet: the StatefulSet owned the claim, and is gone.
	ByStatefulSet Release = "StatefulSetDeleted"
	// NeverBound: no volume was ever bound to the claim.
	NeverBound Release = "NeverBound"
	// ByUnrecoverable: no drain can read the volume, and spec.drain.onUnrecoverable is
	// Release.
	ByUnrecoverable Release = "Unrecoverable"
	// ByMove: a mover has found nothing more at a member without a volume. NotMoved: no mover has, and the
	// rest of the items goes with the pod.
	ByMove   Release = "Moved"
	NotMoved Release = "NotMoved"
	// BySetAside: another claim with the finalizer has the volume.
	BySetAside Release = "SetAside"
)

func (AddOwnerFinalizer) kind() Kind    { return Kind{Class: Cluster} }
func (RemoveOwnerFinalizer) kind() Kind { return Kind{Class: Cluster} }
func (ApplyService) kind() Kind         { return Kind{Class: Members} }
func (WriteList) kind() Kind            { return Kind{Class: Members} }
func (ApplyListService) kind() Kind     { return Kind{Class: Beside} }
func (WriteEndpoints) kind() Kind       { return Kind{Class: Members} }
func (ApplyDiscovery) kind() Kind       { return Kind{Class: Beside} }
func (TellMember) kind() Kind           { return Kind{Class: Members} }
func (ApplyRouters) kind() Kind         { return Kind{Class: Beside} }
func (WriteTable) kind() Kind           { return Kind{Class: Members, ReadsAgain: true} }
func (TellRouter) kind() Kind           { return Kind{Class: Beside} }
func (ApplyNetworkPolicy) kind() Kind   { return Kind{Class: Members} }
func (WriteBinding) kind() Kind         { return Kind{Class: Beside} }
func (StartEmpty) kind() Kind           { return Kind{Class: Beside} }
func (EndAside) kind() Kind             { return Kind{Class: Beside} }
func (ApplyStatefulSet) kind() Kind     { return Kind{Class: Members, Owns: true} }
func (ApplyDeployment) kind() Kind      { return Kind{Class: Members, Owns: true} }
func (ApplyBudget) kind() Kind          { return Kind{Class: Beside} }
func (ApplyServiceMonitor) kind() Kind  { return Kind{Class: Beside} }
func (OpenPartition) kind() Kind        { return Kind{Class: Beside} }
func (DeleteMembers) kind() Kind        { return Kind{Class: Cluster, ReadsAgain: true} }
func (a AddClaimFinalizer) kind() Kind {
	return Kind{Class: Claim, Claim: a.Claim.unit(), ReadsAgain: true}
}
func (a MarkLeaving) kind() Kind { return Kind{Class: Members, Claim: a.Claim.unit()} }
func (a CreateDrain) kind() Kind {
	return Kind{Class: Claim, Claim: a.Claim.unit(), MakesJob: true}
}
func (a RecordReceipt) kind() Kind {
	return Kind{Class: Claim, Claim: a.Claim.unit(), ReadsAgain: true}
}
func (a CountFailure) kind() Kind { return Kind{Class: Claim, Claim: a.Claim.unit(), ReadsAgain: true} }
func (a ClearRetry) kind() Kind {
	return Kind{Class: Claim, Claim: a.Claim.unit(), ReadsAgain: true, EndsJob: true}
}
func (a CreateMove) kind() Kind {
	return Kind{Class: Claim, Claim: a.Claim.unit(), MakesJob: true}
}
func (a BeginMove) kind() Kind { return Kind{Class: Claim, Claim: a.Claim.unit()} }
func (a RecordMoved) kind() Kind {
	return Kind{Class: Claim, Claim: a.Claim.unit(), ReadsAgain: true, EndsJob: true}
}
func (a StampPod) kind() Kind { return Kind{Class: Members, Claim: a.Claim.unit(), ReadsAgain: true} }
func (a ClearMoveRetry) kind() Kind {
	return Kind{Class: Claim, Claim: a.Claim.unit(), ReadsAgain: true, EndsJob: true}
}
func (a DeleteJob) kind() Kind {
	return Kind{Class: Claim, Claim: a.ClaimUID, ReadsAgain: true, EndsJob: true}
}
func (a DeleteClaim) kind() Kind { return Kind{Class: Claim, Claim: a.Claim.unit(), ReadsAgain: true} }
func (a SetAside) kind() Kind    { return Kind{Class: Claim, Claim: a.Claim.unit(), ReadsAgain: true} }
func (a ReserveVolume) kind() Kind {
	return Kind{Class: Claim, Claim: a.Claim.unit(), ReadsAgain: true}
}
func (a CreateAside) kind() Kind  { return Kind{Class: Claim, Claim: a.Claim.unit(), ReadsAgain: true} }
func (a ReturnVolume) kind() Kind { return Kind{Class: Claim, Claim: a.Claim.unit(), ReadsAgain: true} }
func (a GrowClaim) kind() Kind    { return Kind{Class: Claim, Claim: a.Claim.unit(), ReadsAgain: true} }
func (a CarryOver) kind() Kind    { return Kind{Class: Claim, Claim: a.From.unit(), ReadsAgain: true} }
func (a NoteRestored) kind() Kind {
	return Kind{Class: Claim, Claim: a.Claim.unit(), ReadsAgain: true}
}
func (a SkipToo) kind() Kind { return Kind{Class: Claim, Claim: a.Claim.unit(), ReadsAgain: true} }
func (a ReleaseClaim) kind() Kind {
	return Kind{Class: Claim, Claim: a.Claim.unit(), ReadsAgain: true, EndsJob: true}
}

func (AddOwnerFinalizer) String() string    { return "add the cluster's finalizer" }
func (RemoveOwnerFinalizer) String() string { return "remove the cluster's finalizer" }
func (ApplyService) String() string         { return "apply the Service" }
func (a WriteList) String() string          { return fmt.Sprintf("list %d members for clients", a.ListSize) }
func (ApplyListService) String() string     { return "apply the list's Service" }
func (a WriteEndpoints) String() string {
	return fmt.Sprintf("list %d members in DNS", a.ListSize)
}
func (ApplyDiscovery) String() string { return "apply the Service for discovery" }
func (a TellMember) String() string   { return "tell pod " + a.Pod.Name + " of the list" }
func (a ApplyRouters) String() string { return "apply the routers' " + string(a.Part) }
func (a WriteTable) String() string {
	return fmt.Sprintf("tell routers of %d members%s, %s", a.ListSize, without(a.Out), a.State)
}

// without names the member that is out.
func without(out int32) string {
	if out == 0 {
		return ""
	}
	return fmt.Sprintf(" without member %d", out-1)
}

func (a TellRouter) String() string       { return "bring the table to pod " + a.Pod.Name }
func (ApplyNetworkPolicy) String() string { return "apply the NetworkPolicy" }
func (WriteBinding) String() string       { return "write the binding" }
func (a ApplyStatefulSet) String() string {
	if a.Partition > 0 {
		return fmt.Sprintf("apply the StatefulSet, %d replicas, partition %d", a.Replicas, a.Partition)
	}
	return fmt.Sprintf("apply the StatefulSet, %d replicas", a.Replicas)
}
func (a StartEmpty) String() string {
	if a.Aside {
		return "tell pod " + a.Pod.Name + " to start empty, and not to be ready"
	}
	return "tell pod " + a.Pod.Name + " to start empty"
}
func (a EndAside) String() string { return "tell pod " + a.Pod.Name + " that it may be ready" }
func (a ApplyDeployment) String() string {
	return fmt.Sprintf("apply the Deployment, %d replicas", a.Replicas)
}
func (a ApplyBudget) String() string {
	if a.StepOut {
		return "apply the PodDisruptionBudget, which allows no eviction"
	}
	return "apply the PodDisruptionBudget"
}
func (ApplyServiceMonitor) String() string { return "apply the ServiceMonitor" }
func (OpenPartition) String() string       { return "let all members be replaced" }
func (DeleteMembers) String() string       { return "delete the StatefulSet" }
func (a AddClaimFinalizer) String() string { return "add the finalizer to claim " + a.Claim.Name }
func (a MarkLeaving) String() string       { return "mark claim " + a.Claim.Name + " as leaving" }
func (a CreateDrain) String() string {
	return fmt.Sprintf("drain claim %s into %d survivors", a.Claim.Name, a.Survivors.Count)
}
func (a RecordReceipt) String() string { return "record the receipt of claim " + a.Claim.Name }
func (a CountFailure) String() string {
	return fmt.Sprintf("count failure %d of claim %s", a.Attempts.Failed, a.Claim.Name)
}
func (a ClearRetry) String() string { return "clear the retry of claim " + a.Claim.Name }
func (a CreateMove) String() string {
	without := ""
	if len(a.Lost) > 0 {
		without = fmt.Sprintf(", without %d", a.Lost)
	}
	verb := "move"
	if a.Prepared {
		verb = "prepare to move"
	}
	return fmt.Sprintf("%s the items of the member of claim %s, by ring %s%s", verb, a.Claim.Name, a.Target, without)
}
func (a BeginMove) String() string {
	return fmt.Sprintf("begin to move the items of the member of claim %s, by ring %s", a.Claim.Name, a.Target)
}
func (a RecordMoved) String() string {
	return fmt.Sprintf("record that the items of the member of claim %s are moved by ring %s", a.Claim.Name, a.Target)
}
func (a StampPod) String() string {
	return fmt.Sprintf("note that pod %s was empty at ring %d", a.Claim.Name, a.Serial)
}
func (a ClearMoveRetry) String() string {
	return "clear the move's retry of claim " + a.Claim.Name
}
func (a DeleteJob) String() string { return "delete Job " + a.Name + ": " + a.Reason }
func (a DeleteClaim) String() string {
	return fmt.Sprintf("delete claim %s: %s", a.Claim.Name, a.Why)
}
func (a SetAside) String() string { return "set claim " + a.Claim.Name + " aside" }
func (a ReserveVolume) String() string {
	return fmt.Sprintf("reserve volume %s of claim %s for claim %s", a.Volume, a.Claim.Name, a.To)
}
func (a CreateAside) String() string {
	return fmt.Sprintf("create claim %s for volume %s of claim %s", a.To, a.Volume, a.Claim.Name)
}
func (a ReturnVolume) String() string {
	return fmt.Sprintf("return volume %s to claim %s", a.Volume, a.Claim.Name)
}
func (a GrowClaim) String() string {
	return fmt.Sprintf("grow claim %s to %d bytes", a.Claim.Name, a.Size)
}
func (a CarryOver) String() string {
	return fmt.Sprintf("carry the marks of claim %s over to claim %s", a.From.Name, a.Claim.Name)
}
func (a NoteRestored) String() string { return "note that claim " + a.Claim.Name + " was restored" }
func (a SkipToo) String() string      { return "annotate claim " + a.Claim.Name + " with skip" }
func (a ReleaseClaim) String() string {
	return fmt.Sprintf("release claim %s: %s", a.Claim.Name, a.Why)
}

// The actions on members' own Services.
type (
	// ApplyMemberService applies the Service of one member.
	ApplyMemberService struct{ Ordinal int32 }
	// RetireMemberService writes on the Service of a member since when the member is gone.
	RetireMemberService struct {
		Ordinal int32
		UID     types.UID
	}
	// DeleteMemberService deletes the Service of a member.
	DeleteMemberService struct {
		Ordinal int32
		UID     types.UID
	}
)

func (ApplyMemberService) kind() Kind  { return Kind{Class: Members} }
func (RetireMemberService) kind() Kind { return Kind{Class: Members} }
func (DeleteMemberService) kind() Kind { return Kind{Class: Members} }

func (a ApplyMemberService) String() string {
	return fmt.Sprintf("apply the Service of member %d", a.Ordinal)
}
func (a RetireMemberService) String() string {
	return fmt.Sprintf("note that member %d, which has a Service, is gone", a.Ordinal)
}
func (a DeleteMemberService) String() string {
	return fmt.Sprintf("delete the Service of member %d, which has left", a.Ordinal)
}
