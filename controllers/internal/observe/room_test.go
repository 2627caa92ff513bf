package observe

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"example.com/memcached-operator/controllers/internal/ask"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/forecast"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/controllers/internal/ring"
)

// A member of 64Mi with a file of items has a page of each of 39 size classes, and 25 more.
const (
	limit            = 64 << 20
	perPage, perItem = 230, 4070
)

// inPages is the answer of a member with n pages of items of 4 KB.
func inPages(n int64) ask.Answer {
	h := forecast.Holds{Items: n * perPage, Bytes: n * perPage * perItem, Limit: limit, Classes: map[int64]forecast.Class{
		4544: {PerPage: perPage, Pages: max(1, n), Chunks: n * perPage, Items: n * perPage, Bytes: n * perPage * perItem},
	}}
	for i := range int64(38) {
		h.Classes[96+8*i] = forecast.Class{PerPage: 1 << 20 / (96 + 8*i), Pages: 1}
	}
	return ask.Answer{Holds: h}
}

// inBytes is the answer of a member that does not tell its size classes.
func inBytes(n int64) ask.Answer { return ask.Answer{Holds: forecast.Holds{Bytes: n, Limit: limit}} }

// Items of one size get 26 MiB of a member of 64Mi, so that members are full at less than half of their bytes.
func TestRoomIsCountedInPagesOfSizeClasses(t *testing.T) {
	const pages = perPage * perItem
	all := func(a ask.Answer) []ask.Answer { return []ask.Answer{a, a, a} }
	for name, test := range map[string]struct {
		to      int32
		answers []ask.Answer
		change  func(*State)
		want    plan.Room
		// evicts is how many bytes members evict, within a twentieth.
		evicts int64
	}{
		"full at less than half of their bytes": {2, all(inPages(26)), nil, plan.Room{Leaving: 26 * pages, Paged: true}, 26 * pages},
		"half of the pages":                     {2, all(inPages(13)), nil, plan.Room{Leaving: 13 * pages, Paged: true}, 0},
		"two leave, half of the pages":          {1, all(inPages(13)), nil, plan.Room{Leaving: 26 * pages, Paged: true}, 13 * pages},
		"those that leave are empty":            {2, []ask.Answer{inPages(26), inPages(26), inPages(0)}, nil, plan.Room{Paged: true}, 0},
		"one tells no classes":                  {2, []ask.Answer{inPages(26), inBytes(26 << 20), inPages(26)}, nil, plan.Room{Leaving: 26 * pages}, 0},
		"none tells classes, and they fit":      {2, all(inBytes(32 << 20)), nil, plan.Room{Leaving: 32 << 20}, 0},
		"none tells classes, and they don't":    {2, all(inBytes(limit)), nil, plan.Room{Leaving: limit}, limit},
		"one has not answered": {
			2, []ask.Answer{inPages(26), inPages(26), {Wait: time.Second}}, nil, plan.Room{Pending: true}, 0,
		},
		"one can't be asked": {
			2, []ask.Answer{inPages(26), {Err: "timeout"}, inPages(26)}, nil, plan.Room{Leaving: 26 * pages, Unknown: "pod cache-1: timeout"}, 0,
		},
		"none can be asked, and where clients look is not known": { // nothing is worked out
			2, all(ask.Answer{Err: "timeout"}), func(o *State) { o.Cluster.Spec.Routing.Client = "unknown" }, plan.Room{Unknown: "pod cache-2: timeout"}, 0,
		},
		"a survivor has no pod": {
			2, all(inPages(26)), func(o *State) { o.Pods = o.Pods[1:] }, plan.Room{Leaving: 26 * pages, Unknown: "pod cache-0 does not run"}, 0,
		},
		"the list is damaged": {
			2, all(inPages(26)), func(o *State) { o.ServerList = &corev1.ConfigMap{} }, plan.Room{Leaving: 26 * pages, Paged: true}, 26 * pages,
		},
		// A client that takes the hash modulo the number of servers looks for most keys elsewhere.
		"other keys move, and are full": {
			2, all(inPages(26)), func(o *State) { o.Cluster.Spec.Routing.Client = "gomemcache" }, plan.Room{Leaving: 26 * pages, Paged: true}, 26 * pages,
		},
		"a replica too many in the StatefulSet": {
			2, all(inPages(26)), func(o *State) { *o.StatefulSet.Spec.Replicas = 1 << 30 }, plan.Room{Leaving: 26 * pages, Unknown: "pod cache-511 does not run"}, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := cacheOf3()
			if test.change != nil {
				test.change(o)
			}
			if o.ServerList.Data != nil {
				o.list(3, ring.Record{Serial: 1, Ring: build.RingOf(o.Cluster, 3)}.String())
			}
			*o.Cluster.Spec.Size = test.to
			in := o.Input()
			got := *o.RoomBy(t.Context(), &in, in.Wanted(), func(_ func(*corev1.Pod) int32, pods []*corev1.Pod) map[types.UID]ask.Answer {
				answers := map[types.UID]ask.Answer{}
				for _, pod := range pods {
					answers[pod.UID] = test.answers[o.ordinal(pod)]
				}
				return answers
			})
			if off := got.Evicted - test.evicts; off > test.evicts/20 || off < -test.evicts/20 {
				t.Errorf("they evict %d, want %d", got.Evicted, test.evicts)
			}
			if got.Evicted = 0; got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

// A member that steps out has any ordinal. The others keep theirs in a ring without it.
func TestRoomForAMemberThatStepsOutIsThatOfTheOthers(t *testing.T) {
	for name, test := range map[string]struct {
		out    int32
		holds  []int64 // pages
		limits []int64 // of memory; nil is the same for all
		evicts int64   // pages
	}{
		"the first, and the others are empty":             {0, []int64{26, 0, 0}, nil, 0},
		"the first, and the second is full":               {0, []int64{26, 26, 0}, nil, 13},
		"the middle, and the last is full":                {1, []int64{0, 26, 26}, nil, 13},
		"the last, and the others are full":               {2, []int64{26, 26, 26}, nil, 26},
		"the first, and the others have twice the memory": {0, []int64{26, 26, 26}, []int64{limit, 2 * limit, 2 * limit}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			o := cacheOf3()
			in := o.Input()
			got := o.RoomBy(t.Context(), &in, in.Record.Ring.Without(test.out), func(_ func(*corev1.Pod) int32, pods []*corev1.Pod) map[types.UID]ask.Answer {
				answers := map[types.UID]ask.Answer{}
				for _, pod := range pods {
					answer := inPages(test.holds[o.ordinal(pod)])
					if test.limits != nil {
						answer.Holds.Limit = test.limits[o.ordinal(pod)]
					}
					answers[pod.UID] = answer
				}
				return answers
			})
			if want := test.holds[test.out] * perPage * perItem; got.Leaving != want {
				t.Errorf("it holds %d, want %d", got.Leaving, want)
			}
			// The library does not divide a member's keys into equal halves.
			if pages := float64(got.Evicted) / (perPage * perItem); pages < float64(test.evicts)*0.7 || pages > float64(test.evicts)*1.3 {
				t.Errorf("the others evict %.1f pages, want %d", pages, test.evicts)
			}
		})
	}
}

// cacheOf3 has three members that run.
func cacheOf3() *State {
	o := ringed(3, ring.Record{})
	for i := range int32(3) {
		o.Pods = append(o.Pods, corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: build.PodName("cache", i), UID: types.UID(fmt.Sprint(i))},
			Status:     corev1.PodStatus{PodIP: fmt.Sprintf("10.0.0.%d", i+1), Phase: corev1.PodRunning},
		})
	}
	o.list(3, ring.Record{Serial: 1, Ring: build.RingOf(o.Cluster, 3)}.String())
	return o
}
