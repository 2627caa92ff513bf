package claim_test

import (
	"testing"
	"time"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claim"
	"example.com/memcached-operator/drainer/contract"
)

// change of a claim that a test is about.
type change func(*claim.Claim)

// left is the claim of a departed member.
func left(changes ...change) *claim.Claim {
	c := &claim.Claim{Name: "data-2", UID: "uid-2", Ordinal: 2, Finalizer: true, Volume: "pv-2", LeavingSince: time.Unix(1, 0)}
	for _, do := range changes {
		do(c)
	}
	return c
}

func member(c *claim.Claim)   { c.LeavingSince = time.Time{} }
func deleting(c *claim.Claim) { c.Deleting = true }
func unheld(c *claim.Claim)   { c.Finalizer = false }
func inUse(c *claim.Claim)    { c.InUse = true }
func unbound(c *claim.Claim)  { c.Volume = "" }
func adopted(c *claim.Claim)  { c.Adopted = true }

func requested(r claim.Request) change { return func(c *claim.Claim) { c.Request = r } }
func where(w claim.Where) change       { return func(c *claim.Claim) { c.Where = w } }

func receipt(source string) change {
	return func(c *claim.Claim) {
		c.Receipt = &contract.Receipt{Version: 1, Source: source, Complete: true, Found: 4, Outcomes: contract.Outcomes{Added: 4}}
	}
}

// sized gives the claim what it asks for, and its volume, in bytes.
func sized(asked, capacity int64) change {
	return func(c *claim.Claim) { c.Asked, c.Capacity = asked, capacity }
}

// refusals compares what a check says about each claim; "" if it allows it.
func refusals(t *testing.T, check func(*claim.Claim) error, claims map[*claim.Claim]string) {
	t.Helper()
	for c, want := range claims {
		got := ""
		if err := check(c); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestLiveAClaimGoesOnlyForAReasonThatHolds(t *testing.T) {
	t.Parallel()
	type scene struct {
		terms claim.Terms
		claim *claim.Claim
		want  string
	}
	for why, scenes := range map[action.Release][]scene{
		action.ByReceipt: {
			{claim.Terms{}, left(receipt("uid-2")), ""},
			{claim.Terms{}, left(), "claim data-2 has no receipt"},
			{claim.Terms{}, left(receipt("another")), `the receipt is for "another", not for "uid-2"`},
		},
		action.BySkip: {
			{claim.Terms{}, left(requested(claim.Skip)), ""},
			{claim.Terms{}, left(requested(claim.Hold)), "claim data-2 is not annotated with a skip"},
		},
		action.NeverBound: {
			{claim.Terms{}, left(unbound), ""},
			{claim.Terms{}, left(), "claim data-2 is bound to a volume"},
		},
		action.ByNamespace: {
			{claim.Terms{NamespaceTerminating: true}, left(), ""},
			{claim.Terms{}, left(), "the namespace of claim data-2 is not terminating"},
		},
		action.ByClusterDeletion: {
			{claim.Terms{Deleting: true}, left(), ""},
			{claim.Terms{}, left(), "the Memcached is not deleted"},
		},
		action.ByPolicyDelete: {
			{claim.Terms{Policy: claim.Delete}, left(), ""},
			{claim.Terms{}, left(), "the Memcached does not allow to release claim data-2 (Deleted)"},
			{claim.Terms{Policy: claim.Delete}, left(adopted), "the Memcached does not allow to release claim data-2 (Deleted)"},
			{claim.Terms{Policy: claim.Delete}, left(member), "claim data-2 is a member's"},
			{claim.Terms{Policy: claim.Delete, Deleting: true}, left(), "the Memcached is gone"},
		},
		action.ByPolicyRetain: {
			{claim.Terms{Policy: claim.Retain}, left(), ""},
			{claim.Terms{Policy: claim.Delete}, left(), "the Memcached does not allow to release claim data-2 (Retained)"},
			{claim.Terms{Policy: claim.Retain}, left(deleting), "the volume of claim data-2 is kept by another claim first"},
			{claim.Terms{Policy: claim.Retain}, left(deleting, where(claim.Here)), "the volume of claim data-2 is kept by another claim first"},
			{claim.Terms{Policy: claim.Retain}, left(deleting, where(claim.Promised)), "the volume of claim data-2 is kept by another claim first"},
			{claim.Terms{Policy: claim.Retain}, left(deleting, where(claim.Gone)), ""},
			{claim.Terms{Policy: claim.Retain}, left(deleting, where(claim.Forbidden)), ""},
			{claim.Terms{Policy: claim.Retain}, left(deleting, unbound), ""},
		},
		action.ByUnrecoverable: {
			{claim.Terms{ReleaseUnreadable: true}, left(), ""},
			{claim.Terms{}, left(), "the Memcached keeps volumes that can't be read"},
			{claim.Terms{ReleaseUnreadable: true}, left(adopted), "the Memcached keeps volumes that can't be read"},
			{claim.Terms{ReleaseUnreadable: true}, left(member), "claim data-2 is a member's"},
		},
	} {
		for _, s := range scenes {
			refusals(t, func(c *claim.Claim) error { return claim.MayRelease(&s.terms, c, why) }, map[*claim.Claim]string{s.claim: s.want})
		}
	}
}

func TestLiveAnAdoptedClaimIsDeletedOnlyWhenItIsDrainedOrGivenUp(t *testing.T) {
	t.Parallel()
	for why, want := range map[action.Release]string{
		action.ByReceipt: "", action.BySkip: "", action.NeverBound: "",
		action.ByPolicyRetain: "claim data-2 was there before its member, and no drain has read it",
	} {
		refusals(t, func(c *claim.Claim) error { return claim.MayDelete(c, why) }, map[*claim.Claim]string{left(adopted): want, left(): ""})
	}
}

func TestLiveAVolumeIsReservedOnlyIfNothingUsesItsClaim(t *testing.T) {
	t.Parallel()
	refusals(t, claim.MayReserve, map[*claim.Claim]string{
		left(where(claim.Here)):                          "claim data-2 is not being deleted",
		left(where(claim.Here), deleting):                "",
		left(where(claim.Reserved), deleting):            "",
		left(where(claim.Elsewhere), deleting):           "volume pv-2 is not bound to claim data-2",
		left(where(claim.Here), deleting, inUse):         "claim data-2 is in use",
		left(where(claim.Here), deleting, unheld):        "claim data-2 lacks the finalizer",
		left(where(claim.Forbidden), deleting):           "volume pv-2 is not bound to claim data-2",
		left(where(claim.NotLookedAt), deleting):         "volume pv-2 is not bound to claim data-2",
		left(where(claim.Gone), deleting, requested("")): "volume pv-2 is not bound to claim data-2",
	})
}

func TestLiveOnlyAMembersClaimAsksForMore(t *testing.T) {
	t.Parallel()
	const no = "claim data-2 does not have to grow"
	refusals(t, func(c *claim.Claim) error { return claim.MayGrow(c, 256) }, map[*claim.Claim]string{
		left(member, sized(128, 128)):           "",
		left(member, sized(256, 128)):           no,
		left(member, sized(256, 256)):           no,
		left(member, sized(128, 128), deleting): no,
		left(sized(128, 128)):                   no,
	})
}

// A mark that is about to be written has no time yet.
func TestAMarkThatIsNotWrittenYetIsNoTime(t *testing.T) {
	t.Parallel()
	c := left(member)
	if _, told := c.LeavingAt(); told || c.MarkPending() {
		t.Error("a member leaves")
	}
	c.PlanMark()
	if _, told := c.LeavingAt(); told || !c.MarkPending() || c.LeavingSince.IsZero() {
		t.Error("it does not leave, or at a time")
	}
	if at, told := left().LeavingAt(); !told || at.Unix() != 1 {
		t.Errorf("it left at %v, told=%t", at, told)
	}
}
