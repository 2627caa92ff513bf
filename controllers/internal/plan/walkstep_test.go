package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"example.com/memcached-operator/controllers/internal/action"
)

// replacing is the part of a walk that is about templates and steps.
type replacing struct {
	// wanted is the template in the spec, applied that of the StatefulSet, and seen the one that Kubernetes has seen.
	wanted, applied, seen int
	// has is the template of each member's pod, and empty the serial for which it has started empty. told is the
	// serial for which it was told to.
	has         map[int32]int
	empty, told map[int32]int64
	// aside has the members that are told not to be ready, and unready those that follow.
	aside, unready map[int32]bool
}

func newReplacing(size int32) replacing {
	r := replacing{has: map[int32]int{}, empty: map[int32]int64{}, told: map[int32]int64{}, aside: map[int32]bool{}, unready: map[int32]bool{}}
	for i := range size {
		r.has[i] = 0
	}
	return r
}

// lookAtTemplates sets the templates, and the state of pods by them, as package observe does.
func (w *walk) lookAtTemplates() {
	w.StatefulSet.Seen, w.StatefulSet.Outdated, w.Tellable, w.Empty, w.Aside = w.seen == w.applied, nil, nil, nil, nil
	w.MemberPods = nil
	for _, i := range w.Pods {
		w.MemberPods = append(w.MemberPods, action.PodRef{Name: "pod", Ordinal: i})
	}
	replaced := true
	for i := range w.StatefulSet.Replicas {
		replaced = replaced && w.PodExists(i) && w.has[i] == w.seen
	}
	for i := range w.StatefulSet.Replicas {
		if w.PodExists(i) && w.has[i] != w.seen || !w.PodExists(i) && !replaced && slices.ContainsFunc(w.Pods, func(j int32) bool { return w.has[j] != w.seen }) {
			w.StatefulSet.Outdated = append(w.StatefulSet.Outdated, i)
		}
		if w.PodExists(i) {
			w.Tellable = append(w.Tellable, i)
		}
		if w.PodExists(i) && w.empty[i] == w.Record.Serial && w.Record.Ring.IsOut(i) {
			w.Empty = append(w.Empty, i)
		}
		if w.PodExists(i) && (w.aside[i] || w.unready[i]) && w.Record.Ring.IsOut(i) {
			w.Aside = append(w.Aside, i)
		}
	}
}

// replaced tells whether all members have the template of the spec.
func (w *walk) replaced() bool {
	return w.seen == w.wanted && w.StatefulSet.Partition == 0 && !slices.ContainsFunc(w.Pods, func(i int32) bool { return w.has[i] != w.wanted })
}

// applyTemplate applies the template as package apply does.
func (w *walk) applyTemplate(a action.ApplyStatefulSet) bool {
	partition := a.Partition
	if a.Steps && w.applied != w.wanted {
		partition = a.Replicas
	}
	changed := w.StatefulSet.Partition != partition || w.applied != w.wanted
	if w.StatefulSet.Partition, w.applied = partition, w.wanted; a.Replicas == 0 {
		w.seen = w.applied
	}
	return changed
}

func (w *walk) tellEmpty(a action.StartEmpty) bool {
	i := a.Pod.Ordinal
	changed := w.told[i] != a.Serial || w.aside[i] != a.Aside
	w.told[i], w.aside[i] = a.Serial, a.Aside
	return changed
}

// evictions are the events of nodes that are drained: a member that is told so is not ready, and is evicted then. Its
// next pod is on another node.
func (w *walk) evictions(add func(string, func())) {
	for _, i := range w.Pods {
		if is := w.aside[i] && w.told[i] > 0 && w.empty[i] == w.told[i]; is != w.unready[i] {
			add(fmt.Sprintf("member %d follows its word", i), func() {
				w.unready[i] = is
				if at := slices.Index(w.Ready, i); is && at >= 0 {
					w.Ready = slices.Delete(w.Ready, at, at+1)
					w.Away = append(w.Away, Away{i, w.Now})
				}
			})
		}
		if w.unready[i] && w.drainedNow(i) {
			add(fmt.Sprintf("pod %d is evicted", i), func() { w.losePod(i) })
		}
	}
}

func (w *walk) drainedNow(i int32) bool {
	return slices.ContainsFunc(w.Cordoned, func(c Cordoned) bool { return c.Ordinal == i })
}

// cordons are deeds of people: they cordon nodes, which have two members each, or uncordon them.
func (w *walk) cordons(add func(string, func())) {
	for n := range int32(2) {
		node := fmt.Sprintf("node-%d", n)
		on := func(c Cordoned) bool { return c.Node == node }
		if slices.ContainsFunc(w.Cordoned, on) {
			add("uncordons "+node, func() { w.Cordoned = slices.DeleteFunc(w.Cordoned, on) })
			continue
		}
		add("cordons "+node, func() {
			for _, i := range w.Pods {
				if i%2 == n && !w.drainedNow(i) {
					w.Cordoned = append(w.Cordoned, Cordoned{i, node, w.Now})
				}
			}
		})
	}
}

// forgetPod removes all that is known of the pod.
func (w *walk) forgetPod(i int32) {
	delete(w.told, i)
	delete(w.aside, i)
	delete(w.unready, i)
	w.Cordoned = slices.DeleteFunc(w.Cordoned, func(c Cordoned) bool { return c.Ordinal == i })
}

// newPod makes a pod as the StatefulSet's controller does: below the partition it has the template of before.
func (w *walk) newPod(i int32) {
	if w.Cluster.InPods { // what its supervisor was told, and has noted, went with the pod before
		delete(w.told, i)
		delete(w.empty, i)
	}
	if i >= w.StatefulSet.Partition || w.seen == 0 {
		w.has[i] = w.seen
	} else if _, had := w.has[i]; !had {
		w.has[i] = w.seen - 1
	}
}

func (w *walk) templateEvents(add func(string, func())) {
	w.evictions(add)
	if w.seen != w.applied {
		add("Kubernetes sees the template", func() { w.seen = w.applied })
	}
	for _, i := range slices.Backward(slices.Sorted(maps.Keys(w.has))) {
		if i >= w.StatefulSet.Replicas || !w.PodExists(i) || i < w.StatefulSet.Partition {
			continue
		}
		if w.has[i] != w.seen {
			add(fmt.Sprintf("pod %d is replaced", i), func() { w.losePod(i) })
		}
		if w.has[i] != w.seen || !slices.Contains(w.Ready, i) {
			break // one at a time
		}
	}
	for _, i := range slices.Sorted(maps.Keys(w.told)) {
		if w.PodExists(i) && w.empty[i] != w.told[i] {
			add(fmt.Sprintf("member %d starts empty", i), func() {
				if w.empty[i] = w.told[i]; w.Cluster.InPods {
					delete(w.holds, w.memberClaim(i).UID)
				}
			})
		}
	}
}

// hasItems tells whether the member that is out may have items. A pod without a volume has none if it was made meanwhile.
func (w *walk) hasItems(i int32) bool {
	if w.Cluster.InPods {
		c := w.memberClaim(i)
		return c != nil && w.holds[c.UID]
	}
	return w.empty[i] != w.Record.Serial
}

// checkStep fails if a member that is out returns with its items while only routers call the members, or if it is told
// to start empty while it has items.
func (w *walk) checkStep(t *testing.T, a action.Action) {
	t.Helper()
	broken := ""
	switch a := a.(type) {
	case action.WriteList:
		was := w.Record.Ring
		if back := was.Out > 0 && a.Record.Ring.Has(was.Out-1); back && w.Cluster.Exclusive && w.hasItems(was.Out-1) {
			broken = fmt.Sprintf("member %d returns with its items", was.Out-1)
		}
	case action.StartEmpty:
		if c := w.memberClaim(a.Pod.Ordinal); c != nil && !w.Cluster.MovesOff && c.Moved < w.Record.Serial {
			broken = fmt.Sprintf("member %d drops its items", a.Pod.Ordinal)
		}
	}
	if broken != "" {
		t.Fatalf("%s:\n%s\n  %s\n%s", broken, strings.Join(w.story, "\n"), a, describe(&w.Observed))
	}
}

// moves is a walk of three members whose template changes, with exclusive routers and a client that keeps the keys of
// members that stay.
func moves(t *testing.T) *walk {
	t.Helper()
	return newWalk(3, "libmemcached-ketama", true).replaced3()
}

func (w *walk) replaced3() *walk {
	w.Cluster.Moved, w.Cluster.Exclusive = true, true
	w.wanted++
	return w
}

// TestMembersStepOutOneByOne: each is out, has started empty and is replaced before the next one, highest ordinal
// first, and no item is left where no router looks.
func TestMembersStepOutOneByOne(t *testing.T) { stepOutOneByOne(t, moves(t)) }

// TestMembersWithoutVolumesStepOutOneByOne: the same, with pods as holders of the items. A new pod has none, and is told to
// start empty like a volume's member.
func TestMembersWithoutVolumesStepOutOneByOne(t *testing.T) {
	stepOutOneByOne(t, newPodWalk(3, "libmemcached-ketama", true).replaced3())
}

func stepOutOneByOne(t *testing.T, w *walk) {
	t.Helper()
	var outs []int32
	for range 500 {
		p, changed := w.operate(t)
		if o := w.Record.Ring.Out; o > 0 && (len(outs) == 0 || outs[len(outs)-1] != o-1) {
			outs = append(outs, o-1)
		}
		w.lookAtTemplates()
		for i := range int32(3) {
			if !w.PodExists(i) && !w.Record.Ring.IsOut(i) {
				t.Fatalf("member %d is away, and in the ring:\n%s", i, strings.Join(w.story, "\n"))
			}
		}
		if changed {
			continue
		}
		next := slices.DeleteFunc(w.kubernetes(), func(e happens) bool { return e.what == notTold })
		if len(next) == 0 && w.settled(&p) {
			break
		}
		if w.Now = w.Now.Add(1e9); len(next) > 0 {
			w.note("%s", next[0].what)
			next[0].do()
		}
	}
	if !slices.Equal(outs, []int32{2, 1, 0}) || !w.replaced() || w.Record.Ring.Out != 0 {
		t.Errorf("members were out in the order %v, %s:\n%s", outs, w.Record, strings.Join(w.story, "\n"))
	}
}

// The pod of a member that is out is never made again. All sizes are reached, and when the pod is there at
// last, the roll-out ends.
func TestSizesGoOnWhenAMemberThatIsOutNeverReturns(t *testing.T) {
	for _, at := range []string{"moves", "is out"} {
		for _, size := range []int32{1, 2, 4, 5} {
			w := moves(t)
			w.until(t, "member 2 steps out", func() bool { return w.Record.Ring.IsOut(2) && (at == "moves" || w.told[2] > 0) })
			w.losePod(2)
			w.held = func(event string) bool { return event == "pod 2 is made" }
			w.Cluster.Size = size
			w.Now = w.Now.Add(lostAfter)
			w.until(t, fmt.Sprintf("size %d, %s", size, at), func() bool { return w.StatefulSet.Replicas == size && w.ListSize == size })
			w.held = nil
			w.rest(t)
		}
	}
}

// TestNoPartitionStaysWithoutAMemcached: a person deletes the Memcached in the middle of a step, and keeps the members.
func TestNoPartitionStaysWithoutAMemcached(t *testing.T) {
	for partition, opened := range map[int32]int{0: 0, 2: 1} {
		s := at(3).with(func(o *Observed) {
			o.Cluster.Deleting, o.Cluster.Orphan, o.StatefulSet.Partition = true, true, partition
		})
		if got := len(actions[action.OpenPartition](Next(&s.o))); got != opened {
			t.Errorf("partition %d: opened %d times", partition, got)
		}
	}
}

// TestMembersOfDrainedNodesStepOutOneByOne: each is evicted while it is out, and no member is away that is in the ring,
// although both nodes are cordoned from the beginning, and the one of the member that steps out first is drained last.
func TestMembersOfDrainedNodesStepOutOneByOne(t *testing.T) {
	w := moves(t)
	w.wanted--
	w.Cluster.StepsOutForEvictions = true
	w.cordons(func(what string, do func()) { do() })
	evicted := map[int32]bool{}
	w.held = func(event string) bool { return event == "pod 2 is evicted" && (!evicted[0] || !evicted[1]) }
	for range 1000 {
		p, changed := w.operate(t)
		w.lookAtTemplates()
		for i := range int32(3) {
			if !slices.Contains(w.Ready, i) && !w.Record.Ring.IsOut(i) {
				t.Fatalf("member %d is away, and in the ring:\n%s", i, strings.Join(w.story, "\n"))
			}
			evicted[i] = evicted[i] || !w.PodExists(i)
		}
		if changed {
			continue
		}
		next := slices.DeleteFunc(w.kubernetes(), func(e happens) bool { return e.what == notTold })
		if len(next) == 0 && w.settled(&p) && len(w.Cordoned) == 0 {
			break
		}
		if w.Now = w.Now.Add(1e9); len(next) > 0 {
			w.note("%s", next[0].what)
			next[0].do()
		}
	}
	if len(w.Cordoned) > 0 || len(evicted) != 3 || !evicted[0] || !evicted[1] || !evicted[2] || w.Record.Ring.Out != 0 {
		t.Errorf("evicted %v, %s, left %v:\n%s", evicted, w.Record, w.Cordoned, strings.Join(w.story, "\n"))
	}
}

// TestAMemberWhoseNodeTakesPodsAgainStepsIn, and an operator that sees a node flap begins no step.
func TestAMemberWhoseNodeTakesPodsAgainStepsIn(t *testing.T) {
	w := moves(t)
	w.wanted--
	w.Cluster.StepsOutForEvictions = true
	for range 20 {
		w.cordons(func(what string, do func()) { do() })
		if p, _ := w.operate(t); p.State != "" || len(w.Cordoned) > 0 && p.Wake.IsZero() {
			t.Fatalf("a node flaps: %+v", p.Step)
		}
		w.Now = w.Now.Add(1e9)
	}
	if len(w.Cordoned) > 0 {
		t.Fatalf("still cordoned: %v", w.Cordoned)
	}
	w.held = func(event string) bool { return strings.HasSuffix(event, "is evicted") }
	w.cordons(func(what string, do func()) {
		if strings.HasSuffix(what, "node-1") {
			do()
		}
	})
	w.until(t, "member 1 is out, and not ready", func() bool { return w.unready[1] })
	w.Cordoned = nil
	w.until(t, "member 1 is back", func() bool { return w.Record.Ring.Out == 0 && len(w.Ready) == 3 })
	w.rest(t)
}
