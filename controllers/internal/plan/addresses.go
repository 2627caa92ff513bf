package plan

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"example.com/memcached-operator/controllers/internal/action"
)

// AddressLingers is how long the Service of a member stays after the member is gone. A late client
// is then refused at once, and does not hang.
const AddressLingers = 10 * time.Minute

// MemberService is the Service of one member.
type MemberService struct {
	Ordinal int32
	UID     types.UID
	// Unlisted is when the operator first saw that the member is neither on the clients' list nor
	// running; zero while the member is either.
	Unlisted time.Time
}

// addressed is how many members have a Service: all that exist or will exist, and those on the
// clients' list. A hibernated cluster keeps its Services, because clients may hash their addresses.
func (p *Plan) addressed(o *Observed) int32 {
	if !o.Cluster.StableAddresses {
		return 0
	}
	return max(p.Replicas, p.ListSize, o.Record.Ring.Size)
}

// applyAddresses comes before the list, so the list never names a Service that doesn't exist.
func (p *Plan) applyAddresses(o *Observed) {
	for i := range p.addressed(o) {
		p.add(action.ApplyMemberService{Ordinal: i})
	}
}

// retireAddresses comes after the list. The Service of a member that is gone stays for
// AddressLingers. A leaving member still serves late clients, so the time begins when its pod is
// gone.
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

// retired tells whether the Service's annotation says that the member is gone. Any client of the
// API can write the annotation, so a time in the future does not count.
func (s *MemberService) retired(now time.Time) bool {
	return !s.Unlisted.IsZero() && !s.Unlisted.After(now)
}

// MayDeleteMemberService is asked about the live Service right before it is deleted: its member
// must have been gone for AddressLingers.
func MayDeleteMemberService(s *MemberService, now time.Time) error {
	switch end := s.Unlisted.Add(AddressLingers); {
	case !s.retired(now):
		return fmt.Errorf("the Service of member %d is on the clients' list", s.Ordinal)
	case end.After(now):
		return fmt.Errorf("the Service of member %d stays until %s", s.Ordinal, end.UTC().Format(time.RFC3339))
	}
	return nil
}
