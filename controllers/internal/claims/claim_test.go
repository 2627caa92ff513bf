package claims_test

import (
	"testing"
	"time"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
)

// change changes a claim for a test.
type change func(*claims.Claim)

// left is the claim of a departed member.
func left(changes ...change) *claims.Claim {
	c := &claims.Claim{Name: "data-2", UID: "uid-2", Ordinal: 2, Finalizer: true, Volume: "pv-2", LeavingSince: time.Unix(1, 0)}
	for _, do := range changes {
		do(c)
	}
	return c
}

func member(c *claims.Claim)   { c.LeavingSince = time.Time{} }
func deleting(c *claims.Claim) { c.Deleting = true }
func unheld(c *claims.Claim)   { c.Finalizer = false }
func inUse(c *claims.Claim)    { c.InUse = true }
func unbound(c *claims.Claim)  { c.Volume = "" }
func adopted(c *claims.Claim)  { c.Adopted = true }

func requested(r claims.Request) change { return func(c *claims.Claim) { c.Request = r } }
func where(w claims.Where) change       { return func(c *claims.Claim) { c.Where = w } }

func receipt(source string) change {
	return func(c *claims.Claim) {
		c.Receipt = &action.Receipt{Source: source}
	}
}

// sized sets the size in the claim's request, and that of its volume, in bytes.
func sized(asked, capacity int64) change {
	return func(c *claims.Claim) { c.Asked, c.Capacity = asked, capacity }
}

// refusals compares a check's error about each claim; "" if the check allows the claim.
func refusals(t *testing.T, check func(*claims.Claim) error, claims map[*claims.Claim]string) {
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
		terms claims.Terms
		claim *claims.Claim
		want  string
	}
	for why, scenes := range map[action.Release][]scene{
		action.ByReceipt: {
			{claims.Terms{}, left(receipt("uid-2")), ""},
			{claims.Terms{}, left(), "claim data-2 has no receipt"},
			{claims.Terms{}, left(receipt("another")), `the receipt is for "another", not for "uid-2"`},
		},
		action.BySkip: {
			{claims.Terms{}, left(requested(claims.Skip)), ""},
			{claims.Terms{}, left(requested(claims.Hold)), "claim data-2 is not annotated with a skip"},
		},
		action.NeverBound: {
			{claims.Terms{}, left(unbound), ""},
			{claims.Terms{}, left(), "claim data-2 is bound to a volume"},
		},
		action.ByNamespace: {
			{claims.Terms{NamespaceTerminating: true}, left(), ""},
			{claims.Terms{}, left(), "the namespace of claim data-2 is not terminating"},
		},
		action.ByOwnerDeletion: {
			{claims.Terms{Deleting: true}, left(), ""},
			{claims.Terms{}, left(), "the Memcached is not deleted"},
		},
		action.ByPolicyDelete: {
			{claims.Terms{Policy: claims.Delete}, left(), ""},
			{claims.Terms{}, left(), "the Memcached does not allow to release claim data-2 (Deleted)"},
			{claims.Terms{Policy: claims.Delete}, left(adopted), "the Memcached does not allow to release claim data-2 (Deleted)"},
			{claims.Terms{Policy: claims.Delete}, left(member), "claim data-2 is a member's"},
			{claims.Terms{Policy: claims.Delete, Deleting: true}, left(), "the Memcached is gone"},
		},
		action.ByPolicyRetain: {
			{claims.Terms{Policy: claims.Retain}, left(), ""},
			{claims.Terms{Policy: claims.Delete}, left(), "the Memcached does not allow to release claim data-2 (Retained)"},
			{claims.Terms{Policy: claims.Retain}, left(deleting), "the volume of claim data-2 is kept by another claim first"},
			{claims.Terms{Policy: claims.Retain}, left(deleting, where(claims.Here)), "the volume of claim data-2 is kept by another claim first"},
			{claims.Terms{Policy: claims.Retain}, left(deleting, where(claims.Promised)), "the volume of claim data-2 is kept by another claim first"},
			{claims.Terms{Policy: claims.Retain}, left(deleting, where(claims.Gone)), ""},
			{claims.Terms{Policy: claims.Retain}, left(deleting, where(claims.Forbidden)), ""},
			{claims.Terms{Policy: claims.Retain}, left(deleting, unbound), ""},
		},
		action.ByUnrecoverable: {
			{claims.Terms{ReleaseUnreadable: true}, left(), ""},
			{claims.Terms{}, left(), "the Memcached keeps volumes that can't be read"},
			{claims.Terms{ReleaseUnreadable: true}, left(adopted), "the Memcached keeps volumes that can't be read"},
			{claims.Terms{ReleaseUnreadable: true}, left(member), "claim data-2 is a member's"},
		},
	} {
		for _, s := range scenes {
			refusals(t, func(c *claims.Claim) error { return claims.MayRelease(&s.terms, c, why, false) }, map[*claims.Claim]string{s.claim: s.want})
		}
	}
}

func TestLiveAnAdoptedClaimIsDeletedOnlyWhenItIsDrainedOrGivenUp(t *testing.T) {
	t.Parallel()
	for why, want := range map[action.Release]string{
		action.ByReceipt: "", action.BySkip: "", action.NeverBound: "",
		action.ByPolicyRetain: "claim data-2 was there before its member, and no drain has read it",
	} {
		refusals(t, func(c *claims.Claim) error { return claims.MayDelete(c, why) }, map[*claims.Claim]string{left(adopted): want, left(): ""})
	}
}

func TestLiveAVolumeIsReservedOnlyIfNothingUsesItsClaim(t *testing.T) {
	t.Parallel()
	refusals(t, claims.MayReserve, map[*claims.Claim]string{
		left(where(claims.Here)):                          "claim data-2 is not being deleted",
		left(where(claims.Here), deleting):                "",
		left(where(claims.Reserved), deleting):            "",
		left(where(claims.Elsewhere), deleting):           "volume pv-2 is not bound to claim data-2",
		left(where(claims.Here), deleting, inUse):         "claim data-2 is in use",
		left(where(claims.Here), deleting, unheld):        "claim data-2 lacks the finalizer",
		left(where(claims.Forbidden), deleting):           "volume pv-2 is not bound to claim data-2",
		left(where(claims.NotLookedAt), deleting):         "volume pv-2 is not bound to claim data-2",
		left(where(claims.Gone), deleting, requested("")): "volume pv-2 is not bound to claim data-2",
	})
}

func TestLiveOnlyAMembersClaimAsksForMore(t *testing.T) {
	t.Parallel()
	const no = "claim data-2 does not have to grow"
	refusals(t, func(c *claims.Claim) error { return claims.MayGrow(c, 256) }, map[*claims.Claim]string{
		left(member, sized(128, 128)):           "",
		left(member, sized(256, 128)):           no,
		left(member, sized(256, 256)):           no,
		left(member, sized(128, 128), deleting): no,
		left(sized(128, 128)):                   no,
	})
}

// A pending mark has no time yet.
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
