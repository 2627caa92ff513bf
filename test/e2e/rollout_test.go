package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/test/internal/app"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// TestRollOutsKeepTheCache replaces one member after the other, and the next one only when the last has its
// items again. So an application that reads all the time misses the items of one member at a time, and finds
// all items at once when the last member is ready. This holds after a change with which memcached can restart
// from its warm file, and after changes for which the file has to be replayed.
func TestRollOutsKeepTheCache(t *testing.T) {
	tier.Second(t, "TestJourneyOfASecuredCluster")
	t.Parallel()
	f := setup(t, persistent(2))
	objects := f.objects()
	f.fill(2, objects)
	ring := f.servers(2)

	for what, change := range map[string]func(*cachev1alpha1.MemcachedSpec){
		"a template":     func(s *cachev1alpha1.MemcachedSpec) { s.PodTemplate.Annotations = map[string]string{"changed": "yes"} },
		"another memory": func(s *cachev1alpha1.MemcachedSpec) { s.Memory = ptr.To(resource.MustParse("208Mi")) },
		"other flags": func(s *cachev1alpha1.MemcachedSpec) {
			s.MaxItemSize, s.ExtraArgs = ptr.To(resource.MustParse("2Mi")), []string{"-f", "1.3"}
		},
	} {
		f.Logf("rolling out %s", what)
		old, absences := f.podUIDs(), f.watchItems(2, objects)
		mc := f.memcached()
		before := mc.DeepCopy()
		change(&mc.Spec)
		f.must(kube.Patch(f.ctx, mc, client.MergeFrom(before)))
		f.eventually(what+" is rolled out", func() bool {
			return f.rolling(old) == 2
		})
		f.expectAll(2, objects)
		f.expectOneByOne(absences())
		f.expectRing(ring)
		f.settled(2)
	}
}

func (f *fixture) podUIDs() map[types.UID]bool {
	f.Helper()
	uids := map[types.UID]bool{}
	for _, pod := range f.pods() {
		uids[pod.UID] = true
	}
	return uids
}

func (f *fixture) expectRing(before []string) {
	f.Helper()
	if after := f.servers(len(before)); !slices.Equal(after, before) {
		f.Fatalf("the ring was %v and is %v", before, after)
	}
}

// absence is a time in which an application never found all of a member's items, with the first ones that it
// found.
type absence struct {
	from, to time.Time
	why      string
}

// watchItems reads from each member, again and again, items that the member has now. stop ends it, and returns
// the absences.
func (f *fixture) watchItems(members int, objects []app.Object) (stop func() [][]absence) {
	f.Helper()
	ctx, cancel := context.WithCancel(f.ctx)
	f.Cleanup(cancel)
	seen := make([][]absence, members)
	var readers sync.WaitGroup
	const sample = 400 // fits into a request
	all := make([]string, 0, sample)
	for _, o := range objects[:sample] {
		all = append(all, o.Key)
	}
	for ordinal := range members {
		keys, err := f.readFrom(ctx, ordinal, all)
		f.must(err)
		if len(keys) == 0 {
			f.Fatalf("member %d holds nothing", ordinal)
		}
		readers.Go(func() { seen[ordinal] = f.absences(ctx, ordinal, keys) })
	}
	return func() [][]absence {
		cancel()
		readers.Wait()
		return seen
	}
}

func (f *fixture) absences(ctx context.Context, ordinal int, keys []string) (seen []absence) {
	away := false
	for ; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		began := time.Now()
		found, err := f.readFrom(ctx, ordinal, keys)
		switch {
		case ctx.Err() != nil:
		case err == nil && len(found) == len(keys):
			away = false
		case away:
			seen[len(seen)-1].to = began
		default:
			now := time.Now()
			seen, away = append(seen, absence{now, now, fmt.Sprintf("%d of %d keys, %v", len(found), len(keys), err)}), true
		}
	}
	return seen
}

// readFrom returns the keys that the member has.
func (f *fixture) readFrom(ctx context.Context, ordinal int, keys []string) (found []string, err error) {
	pod := &corev1.Pod{}
	if err := kube.Get(ctx, f.key(fmt.Sprintf("%s-%d", f.name, ordinal)), pod); err != nil {
		return nil, err
	}
	member := memcache.New(pod.Status.PodIP + ":11211")
	member.DialContext, member.Timeout = dialSoon, wait.Long // a member that exists may be slow
	defer func() { _ = member.Close() }()
	items, err := member.GetMulti(keys)
	return slices.Sorted(maps.Keys(items)), err
}

// expectOneByOne checks that every member was absent, because it was replaced, and never two at once.
func (f *fixture) expectOneByOne(seen [][]absence) {
	f.Helper()
	for i, absences := range seen {
		f.Logf("items of member %d were missing: %v", i, absences)
		if len(absences) == 0 {
			f.Errorf("no read has seen that member %d was replaced", i)
		}
		for _, others := range seen[i+1:] {
			for _, a := range absences {
				for _, b := range others {
					if a.from.Before(b.to) && b.from.Before(a.to) {
						f.Errorf("items of two members were missing: %v and %v", a, b)
					}
				}
			}
		}
	}
}

func (a absence) String() string {
	const clock = "15:04:05.000"
	return fmt.Sprintf("%s to %s (%s)", a.from.Format(clock), a.to.Format(clock), a.why)
}

// rolling counts the members that are replaced and ready. rolling fails the test if more than one is not
// ready.
func (f *fixture) rolling(old map[types.UID]bool) (replaced int) {
	f.Helper()
	present := 0
	for _, pod := range f.pods() {
		if !ready(&pod) || pod.DeletionTimestamp != nil {
			continue
		}
		present++
		if !old[pod.UID] {
			replaced++
		}
	}
	if present < 1 {
		f.Fatalf("at %s both members are away", time.Now().Format(time.TimeOnly))
	}
	return replaced
}
