package plan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/ring"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/test/tier"
)

const warmHolder = "uid-cache"

// warmsFrom gives the cluster a source.
func (w *walk) warmsFrom() {
	from := Warm{Source: "source", Made: fmt.Sprintf("made%d", w.ids), HoldsList: w.r.IntN(2) == 0, OnMiss: w.r.IntN(3) == 0}
	from.Holder = claims.Claim{Name: "cache", UID: warmHolder}
	if w.r.IntN(3) == 0 { // claims, which are counted first
		from.Volumes, from.CountsFirst, from.OnMiss = true, true, false
		for i := range 1 + w.r.IntN(3) {
			name := fmt.Sprintf("%s-%d", from.Made, i)
			from.Left = append(from.Left, WarmClaim{action.ClaimRef{Name: name, UID: types.UID(name)}, name + "-copy", name + "-count"})
		}
	}
	if w.r.IntN(3) == 0 {
		from.Patience = time.Hour
	}
	w.Warm = &from
}

// actOnWarming takes a step about the warming; known is false for any other.
func (w *walk) actOnWarming(planned action.Action) (changed, known bool) {
	answered := func(answers string) {
		if w.Warm != nil && answers != "" && w.Warm.Asked == answers {
			w.Warm.Asked, w.Warm.Repeats, w.Warm.Holder.MoveRequest = "", false, claims.NoRequest
		}
	}
	switch a := planned.(type) {
	case action.CreateWarm:
		if w.Warm.Volumes && a.Volume.Name == "" {
			return false, true // no Job can read that
		}
		if w.counts == nil {
			w.counts = map[string]bool{}
		}
		w.counts[a.Target] = a.Counts
		w.Warms = append(w.Warms, claims.Job{Name: "warm", UID: w.newUID(), ClaimUID: warmHolder, Target: a.Target, Answers: a.Answers})
		return true, true
	case action.RecordWarm:
		if w.Warm != nil {
			if w.Warm.Record = a.Record; !a.Notes() {
				w.Warm.Holder.Attempts = action.Attempts{}
			}
			w.Warm.Left = slices.DeleteFunc(w.Warm.Left, func(c WarmClaim) bool { return slices.Contains(a.Record.Claims, ClaimHash(c.UID)) })
			answered(a.Answers)
		}
		return true, true
	case action.ClearWarm:
		before := w.Warm.Asked
		w.Warm.Holder.Attempts = action.Attempts{}
		answered(a.Answers)
		return before != w.Warm.Asked, true
	case action.CountFailure:
		if a.Claim.UID == warmHolder {
			changed = w.Warm.Holder.Attempts != a.Attempts
			w.Warm.Holder.Attempts = a.Attempts
			return changed, true
		}
	}
	return false, false
}

// warmEvents are those of the Jobs of the warming.
func (w *walk) warmEvents(add func(string, func())) {
	for _, j := range w.Warms {
		if j.State != claims.JobActive {
			continue
		}
		at := slices.IndexFunc(w.Drainers, func(d claims.Drainer) bool { return d.ClaimUID == j.ClaimUID && d.Target == j.Target })
		switch {
		case at < 0:
			add("a drainer of the warming is made", func() {
				w.Drainers = append(w.Drainers, claims.Drainer{Pod: "warm", ClaimUID: j.ClaimUID, Target: j.Target})
			})
		case !w.Drainers[at].Running:
			add("a drainer of the warming runs", func() { w.Drainers[at].Running = true })
		default:
			ends := copied
			if w.counts[j.Target] {
				ends = func(j *claims.Job) {
					j.State, j.Receipt = claims.JobComplete, ReceiptOf(&contract.Receipt{
						Version: 1, Source: ring.Source(j.ClaimUID, j.Target), Complete: true, Demand: make([]int64, w.Record.Ring.Size)})
				}
			}
			add("the warming ends well", func() { w.endWarm(j, ends) })
		}
	}
}

func (w *walk) endWarm(j claims.Job, how func(*claims.Job)) {
	for i := range w.Warms {
		if w.Warms[i].UID == j.UID {
			how(&w.Warms[i])
			w.Warms[i].Ended = w.Now
			w.dropDrainer(j.ClaimUID, j.Target)
		}
	}
}

func (w *walk) warmMishaps() (all []happens) {
	if w.Warm != nil && len(w.Warm.Left) > 0 && (len(w.Warm.Left) > 1 || len(w.Warm.Record.Claims) > 0) { // without any, it is not there
		all = append(all, happens{"A CLAIM OF THE SOURCE IS DELETED", func() { w.Warm.Left = w.Warm.Left[:len(w.Warm.Left)-1] }})
	}
	for _, j := range w.Warms {
		if j.State == claims.JobActive {
			for _, reason := range []string{cachev1alpha1.ReasonSourceUnreachable, contract.ReasonListingRefused, contract.ReasonTargetTooSmall} {
				exit := contract.ExitUsage
				if reason == cachev1alpha1.ReasonSourceUnreachable {
					exit = contract.ExitUnreachable
				}
				all = append(all, happens{"THE WARMING FAILS: " + reason, func() { w.endWarm(j, failedFor(reason, exit)) }})
			}
		}
	}
	return all
}

func (w *walk) warmDeeds(add func(string, func())) {
	if w.Warm == nil {
		return
	}
	add("names another source", w.warmsFrom)
	add("removes the source", func() { w.Warm = nil })
	for _, word := range []string{"again", "retry", "skip"} {
		add("says "+word+" of the warming", func() {
			w.Warm.Asked, w.Warm.Repeats = word, word == "again"
			w.Warm.Holder.MoveRequest = map[string]claims.Request{"again": claims.NoRequest, "retry": claims.Retry, "skip": claims.Skip}[word]
		})
	}
}

// The histories of TestNothingWaitsInACircle, with a source: a warming, drains, moves and the size never wait for each
// other, no item is copied while newer ones are to come, and the cluster ends warm and on its list.
func TestAWarmingWaitsInNoCircle(t *testing.T) {
	tier.Second(t, "TestNothingWaitsInACircle")
	ended := 0
	for seed := range (walks() + 2) / 3 {
		r := rand.New(rand.NewPCG(seed, 3))
		client := [...]string{"gomemcache", "libmemcached-ketama"}[r.IntN(2)]
		w := newWalk(1+r.Int32N(4), client, false)
		if r.IntN(3) == 0 {
			w = newPodWalk(1+r.Int32N(4), client, false)
		}
		w.r = r
		if r.IntN(3) == 0 {
			w.routers()
		}
		if w.warmsFrom(); r.IntN(2) == 0 { // a new cluster
			w.ListSize, w.Record = 0, ring.Record{Ring: w.Cluster.Ring.Of(0)}
			if w.Table != nil {
				w.Table = nil
				w.Cluster.Routers, w.Cluster.Exclusive = false, false
			}
		}
		w.note("seed %d: %d members, %s, routers %v", seed, w.Cluster.Size, w.Cluster.Ring.Client, w.Cluster.Routers)
		for range 1 + r.IntN(6) {
			deeds := w.deeds()
			e := deeds[r.IntN(len(deeds))]
			w.note("%s", e.what)
			e.do()
			for range r.IntN(25) {
				w.any(t)
			}
		}
		w.rest(t)
		if w.Warm != nil && w.Warm.Record.Result == action.WarmCopied {
			ended++
		}
	}
	if ended == 0 {
		t.Error("no cluster was ever filled")
	}
}
