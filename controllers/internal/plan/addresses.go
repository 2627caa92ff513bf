package plan

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// AddressLingers is how long the Service of a member stays after the member has left: a
// client that learns of it late is refused at once, and does not hang.
const AddressLingers = 10 * time.Minute

// MemberService is the Service of one member.
type MemberService struct {
	Ordinal int32
	UID     types.UID
	// Unlisted is when the member had left the clients' list; zero while it is there.
	Unlisted time.Time
}

// The actions on members' Services.
type (
	// ApplyMemberService applies the Service of one member.
	ApplyMemberService struct{ Ordinal int32 }
	// RetireMemberService writes on it that the member has left the list.
	RetireMemberService struct {
		Ordinal int32
		UID     types.UID
	}
	// DeleteMemberService deletes it.
	DeleteMemberService struct {
		Ordinal int32
		UID     types.UID
	}
)

func (ApplyMemberService) action()  {}
func (RetireMemberService) action() {}
func (DeleteMemberService) action() {}

func (a ApplyMemberService) String() string {
	return fmt.Sprintf("apply the Service of member %d", a.Ordinal)
}
func (a RetireMemberService) String() string {
	return fmt.Sprintf("note that member %d, which has a Service, has left the list", a.Ordinal)
}
func (a DeleteMemberService) String() string {
	return fmt.Sprintf("delete the Service of member %d, which has left", a.Ordinal)
}

// addressed is how many members have a Service: all that there are or will be, and those
// that clients know. A hibernated cluster keeps them, because the clients of its ring may
// hash them.
func (p *Plan) addressed(o *Observed) int32 {
	if !o.Cluster.StableAddresses {
		return 0
	}
	return max(p.Replicas, p.ListSize, o.Record.Ring.Size)
}

// applyAddresses comes before the list: clients are told of no Service that isn't there.
func (p *Plan) applyAddresses(o *Observed) {
	for i := range p.addressed(o) {
		p.add(ApplyMemberService{i})
	}
}

// retireAddresses comes after the list: of members that have left it, the Services stay for
// a while.
func (p *Plan) retireAddresses(o *Observed) {
	from := p.addressed(o)
	if o.Cluster.StableAddresses {
		from = max(from, o.ListSize)
	}
	for _, s := range o.MemberServices {
		switch end := s.Unlisted.Add(AddressLingers); {
		case s.Ordinal < from:
		case s.Unlisted.IsZero() || s.Unlisted.After(o.Now):
			p.add(RetireMemberService{s.Ordinal, s.UID})
		case end.After(o.Now):
			p.wakeAt(end)
		case !o.podExists(s.Ordinal):
			p.add(DeleteMemberService{s.Ordinal, s.UID})
		}
	}
}
