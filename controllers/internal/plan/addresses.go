package plan

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"example.com/memcached-operator/controllers/internal/action"
)

// AddressLingers is how long the Service of a member stays after the member is gone: a
// client that learns of it late is refused at once, and does not hang.
const AddressLingers = 10 * time.Minute

// MemberService is the Service of one member.
type MemberService struct {
	Ordinal int32
	UID     types.UID
	// Unlisted is when it was seen that the member is neither on the clients' list nor
	// running; zero while it is.
	Unlisted time.Time
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
		p.add(action.ApplyMemberService{Ordinal: i})
	}
}

// retireAddresses comes after the list: of members that are gone, the Services stay for a
// while. A leaving member still serves clients that come late, so its time begins when its
// pod is gone.
func (p *Plan) retireAddresses(o *Observed) {
	from := p.addressed(o)
	if o.Cluster.StableAddresses {
		from = max(from, o.ListSize)
	}
	for _, s := range o.MemberServices {
		switch {
		case s.Ordinal < from:
		case o.Cluster.StableAddresses && o.podExists(s.Ordinal):
		case !s.retired(o.Now):
			p.add(action.RetireMemberService{Ordinal: s.Ordinal, UID: s.UID})
		case MayDeleteMemberService(&s, o.Now) != nil:
			p.wakeAt(s.Unlisted.Add(AddressLingers))
		default:
			p.add(action.DeleteMemberService{Ordinal: s.Ordinal, UID: s.UID})
		}
	}
}

// retired tells whether it is written that the member is gone. Anybody can write that; a time
// to come does not count.
func (s *MemberService) retired(now time.Time) bool {
	return !s.Unlisted.IsZero() && !s.Unlisted.After(now)
}

// MayDeleteMemberService is asked before the Service of a member is deleted, of the live one:
// its member is gone, for long enough.
func MayDeleteMemberService(s *MemberService, now time.Time) error {
	switch end := s.Unlisted.Add(AddressLingers); {
	case !s.retired(now):
		return fmt.Errorf("the Service of member %d is on the clients' list", s.Ordinal)
	case end.After(now):
		return fmt.Errorf("the Service of member %d stays until %s", s.Ordinal, end.UTC().Format(time.RFC3339))
	}
	return nil
}
