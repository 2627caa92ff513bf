package plan

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/memcached-operator/controllers/internal/action"
)

func TestAMembersServiceComesBeforeTheListAndStaysForAWhileAfterIt(t *testing.T) {
	now := time.Unix(100_000, 0)
	for name, test := range map[string]struct {
		change func(*Observed)
		want   []string
		wake   time.Time
	}{
		"the spec does not ask": {func(o *Observed) { o.Cluster.StableAddresses = false }, nil, time.Time{}},
		"each member":           {func(*Observed) {}, []string{"apply 0", "apply 1"}, time.Time{}},
		"it left": {func(o *Observed) { o.MemberServices = []MemberService{{2, "s2", time.Time{}}} },
			[]string{"apply 0", "apply 1", "note 2"}, time.Time{}},
		"clients still know it": {func(o *Observed) {
			o.MemberServices, o.ListSize = []MemberService{{2, "s2", time.Time{}}}, 3
		}, []string{"apply 0", "apply 1"}, time.Time{}},
		"it lingers": {func(o *Observed) { o.MemberServices = []MemberService{{2, "s2", now.Add(-time.Minute)}} },
			[]string{"apply 0", "apply 1"}, now.Add(AddressLingers - time.Minute)},
		"its time is over": {func(o *Observed) { o.MemberServices = []MemberService{{2, "s2", now.Add(-AddressLingers)}} },
			[]string{"apply 0", "apply 1", "delete 2"}, time.Time{}},
		"it still serves those who come late": {func(o *Observed) {
			o.MemberServices, o.Pods = []MemberService{{2, "s2", time.Time{}}}, append(o.Pods, 2)
		}, []string{"apply 0", "apply 1"}, time.Time{}},
		"a time in the future": {func(o *Observed) { o.MemberServices = []MemberService{{2, "s2", now.Add(time.Hour)}} },
			[]string{"apply 0", "apply 1", "note 2"}, time.Time{}},
		"pods' addresses again": {func(o *Observed) {
			o.Cluster.StableAddresses = false
			o.MemberServices = []MemberService{{0, "s0", time.Time{}}, {1, "s1", now.Add(-AddressLingers)}}
		}, []string{"note 0", "delete 1"}, time.Time{}},
		"hibernated": {func(o *Observed) {
			o.Cluster.Size = 0
			o.MemberServices = []MemberService{{0, "s0", time.Time{}}, {1, "s1", time.Time{}}}
		}, []string{"apply 0", "apply 1"}, time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			s := at(2).with(func(o *Observed) { o.Now, o.Cluster.StableAddresses = now, true }).with(test.change)
			p := Next(&s.o)
			var got []string
			list := -1
			for i, a := range p.Actions {
				text := a.String()
				if _, is := a.(action.WriteList); is {
					list = i
				}
				if !strings.Contains(text, "member ") {
					continue
				}
				words := strings.Fields(text)
				if before := words[0] == "apply"; before == (list >= 0) {
					t.Errorf("%q: the list comes at %d", text, list)
				}
				at := slices.Index(words, "member")
				got = append(got, words[0]+" "+strings.TrimSuffix(words[at+1], ","))
			}
			if diff := cmp.Diff(test.want, got); diff != "" || !p.Wake.Equal(test.wake) {
				t.Errorf("it wakes at %v; -want +got:\n%s", p.Wake, diff)
			}
		})
	}
}
