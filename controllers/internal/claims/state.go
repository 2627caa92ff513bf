package claims

import (
	"time"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
)

// DrainPhase is the state of a departed member's volume.
type DrainPhase string

// The states of a departed member's volume.
const (
	// Leaving: the member still runs, and its items are moved.
	Leaving   DrainPhase = "Leaving"
	Waiting   DrainPhase = "Waiting"
	Draining  DrainPhase = "Draining"
	Releasing DrainPhase = "Releasing"
	Held      DrainPhase = "Held"
	Failed    DrainPhase = "Failed"
	// Kept: the claim is retained, or its deletion is not up to the operator. Such a claim is not in
	// Volumes.Drains.
	Kept DrainPhase = "Kept"
)

// Reasons of a drain's state.
const (
	PodPresent     = cachev1alpha1.ReasonPodPresent
	InTurn         = cachev1alpha1.ReasonInTurn
	Hibernating    = cachev1alpha1.ReasonHibernating
	HeldByRequest  = cachev1alpha1.ReasonHeld
	ReceiptInvalid = cachev1alpha1.ReasonReceiptInvalid
	JobGaveUp      = cachev1alpha1.ReasonJobFailed
	ClaimDeleted   = cachev1alpha1.ReasonClaimDeleted
	SettingAside   = cachev1alpha1.ReasonSettingAside
	InTheWay       = cachev1alpha1.ReasonBlockedByVolume
	Retrying       = cachev1alpha1.ReasonRetrying
	NameTaken      = cachev1alpha1.ReasonNameTaken
	Refused        = cachev1alpha1.ReasonRefused
	JobVanished    = cachev1alpha1.ReasonJobVanished
)

// DrainState is the state of the claim of one leaving or departed member.
type DrainState struct {
	Claim   Claim
	Phase   DrainPhase
	Reason  string
	Message string
	// Why is set while Releasing, and when a member without a volume goes.
	Why action.Release
	// RetryAt is when a failed drain is tried again; zero if only a person can decide.
	// Claim.Attempts has how often it failed before.
	RetryAt time.Time
	// Job drains the claim; nil if there is none. Mover is the Job that moves the items of its
	// member while the member is leaving.
	Job, Mover *Job
}

// DeletedClaim is a claim that another client deleted.
type DeletedClaim struct {
	Claim action.ClaimRef
	// Message says what the operator does with the volume, or what a person has to do.
	Message string
}

// Volumes is the decision about the claims that are no longer just a member's.
type Volumes struct {
	// Drains has an entry for each claim that is to be drained or released, highest
	// ordinal first.
	Drains []DrainState
	// DeletedClaims are claims that another client deleted: those of members that stay, and those
	// whose volume the operator can't set aside.
	DeletedClaims []DeletedClaim
}

// Given has the decisions before Decide.
type Given struct {
	*Terms
	// Parallelism is how many drains may run at once.
	Parallelism int32
	// Wanted are the members that are wanted. Survivors are those that stay: drains give data to them.
	// Without any, the drains wait.
	Wanted, Survivors action.Range
	// Leaves tells how a member leaves that still runs; the phase is empty if it doesn't run.
	Leaves func(*Claim) (phase DrainPhase, reason, message string)
	// Waits tells what the drain of a departed member waits for; the reason is empty if it may begin.
	// WaitsUntil is when to ask again if no event comes; it may be in the past.
	Waits      func(*Claim) (reason, message string)
	WaitsUntil time.Time
	// WaitsForReturn says that drains wait for a member that returns empty, so that running ones are
	// ended; empty if there is none.
	WaitsForReturn string
	// AsideFirst: a volume is set aside before its drain, so that its member can return meanwhile.
	AsideFirst bool
	// MovesNow names the drains and moves at work that give items to members; empty if none does.
	MovesNow string
}

// decision is the decision about one claim, with the Job that drains it.
type decision struct {
	*Facts
	*Given
	c   *Claim
	job *Job
	Work
}

func (s DrainState) is(phase DrainPhase, reason, message string) DrainState {
	s.Phase, s.Reason, s.Message = phase, reason, message
	return s
}
