package plan

import (
	"fmt"
	"time"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
)

// AddressLingers is how long the Service of a member stays after the member is gone. A late client
// is then refused at once, and does not hang.
const AddressLingers = 10 * time.Minute

// decideAddresses decides which members have a Service: all that exist or will exist, and those on the
// clients' list. A hibernated cluster keeps its Services, because clients may hash their addresses. apply
// comes before the list, so the list never names a Service that doesn't exist. retire comes after the list.
// The Service of a member that is gone stays for AddressLingers. A leaving member still serves late clients,
// so the time begins when its pod is gone.
func decideAddresses(o *Observed, replicas, listSize int32) (apply, retire claims.Work) {
	from := int32(0)
	if o.Cluster.StableAddresses {
		addressed := max(replicas, listSize, o.Record.Ring.Size)
		for i := range addressed {
			apply.Do(action.ApplyMemberService{Ordinal: i})
		}
		from = max(addressed, o.ListSize)
	}
	for _, s := range o.MemberServices {
		switch {
		case s.Ordinal < from:
		case o.Cluster.StableAddresses && o.PodExists(s.Ordinal):
		case !s.retired(o.Now):
			retire.Do(action.RetireMemberService{Ordinal: s.Ordinal, UID: s.UID})
		case MayDeleteMemberService(&s, o.Now) != nil:
			retire.WakeAt(s.Unlisted.Add(AddressLingers))
		default:
			retire.Do(action.DeleteMemberService{Ordinal: s.Ordinal, UID: s.UID})
		}
	}
	return apply, retire
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
