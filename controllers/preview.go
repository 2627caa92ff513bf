package controllers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/ask"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/forecast"
	"example.com/memcached-operator/controllers/internal/observe"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/controllers/internal/remembered"
	"example.com/memcached-operator/controllers/internal/status"
	"example.com/memcached-operator/drainer/routing"
)

type (
	// Holds is what a member holds.
	Holds = forecast.Holds
	// Class is a size class of a member's memory.
	Class = forecast.Class
)

// Classes reads a member's size classes from its answers to "stats slabs" and "stats items".
func Classes(slabs, items map[string]string) map[int64]Class { return forecast.Classes(slabs, items) }

// Flow is what goes from one member to another.
type Flow struct {
	From string `json:"from"`
	To   string `json:"to"`
	Holds
}

// Reason is a reason of docs/runbook.md, in the operator's own words.
type Reason struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// Forecast has the operator's next steps for a cluster, and their costs.
type Forecast struct {
	// Leave, Join and Restart are members, in order. Warm: members that restart keep their items.
	Leave   []string `json:"leave,omitempty"`
	Join    []string `json:"join,omitempty"`
	Restart []string `json:"restart,omitempty"`
	Warm    bool     `json:"warm,omitempty"`
	// Hibernates: all members stop, and their volumes keep the items.
	Hibernates bool `json:"hibernates,omitempty"`
	// Grow are claims whose volumes grow.
	Grow []string `json:"grow,omitempty"`
	// Flows are what moves or is drained, and Moved is their sum. Retained stays on volumes that no member
	// reads; Stays is left where clients no longer look; Evicted has to go for lack of memory; Lost goes with
	// its member.
	Flows    []Flow `json:"flows,omitempty"`
	Moved    Holds  `json:"moved"`
	Retained Holds  `json:"retained,omitzero"`
	Stays    Holds  `json:"stays,omitzero"`
	Evicted  Holds  `json:"evicted,omitzero"`
	Lost     Holds  `json:"lost,omitzero"`
	// Uncounted are members that go with their items, whose number is not known.
	Uncounted []string `json:"uncounted,omitempty"`
	// Fill is what a new or changed spec.warmFrom does, in order: sentences. The source's items are not known before it
	// is asked.
	Fill []string `json:"fill,omitempty"`
	// Elsewhere is the share of all keys, from 0 to 1, that clients look for at another member; KeysElsewhere the
	// share of the keys that were given.
	Elsewhere     float64  `json:"elsewhere"`
	KeysElsewhere *float64 `json:"keysElsewhere,omitempty"`
	// Takes is an estimate of the duration, by the last receipts; nil if there is none.
	Takes *metav1.Duration `json:"takes,omitempty"`
	// Unknown are members whose items are not known, so that the numbers are too low.
	Unknown []string `json:"unknown,omitempty"`
	// Blocked is the reason why something else comes first; nil if the change can begin now. Trouble and
	// Advice are those of status.
	Blocked *Reason  `json:"blocked,omitempty"`
	Trouble *Reason  `json:"trouble,omitempty"`
	Advice  []Reason `json:"advice,omitempty"`
}

// Loses tells whether items would be lost or evicted, as far as is known: members that were not asked count as full.
func (f *Forecast) Loses() bool {
	return f.Lost.Items+f.Evicted.Items > 0 || f.Evicted.Bytes > 0 || len(f.Uncounted) > 0
}

// Preview returns the operator's steps if before became after. after is a changed spec with the API server's
// defaults. Preview observes the cluster through reader, and lets the plan decide about it, as a reconcile
// does; it writes nothing. holds has the members' contents, by their pods' names. keys are a person's own;
// nil for none.
func Preview(ctx context.Context, reader client.Reader, before, after *cachev1alpha1.Memcached, holds map[string]Holds, keys [][]byte) (*Forecast, error) {
	if after.Spec.Size == nil {
		after = after.DeepCopy()
		after.Spec.Size = before.Spec.Size
	}
	if after.Spec.Size == nil || before.Spec.Size == nil {
		return nil, fmt.Errorf("there is no size yet of Memcached %s: the operator writes one", before.Name)
	}
	observer := observe.Reader{
		Cache: observe.Uncached(reader), Live: reader, Clock: clock.RealClock{}, NotCreated: &read.MissingPods{}, GrowthRefused: &remembered.Answers[string]{}, Missing: &remembered.Missing[int32]{}, Idle: &remembered.Missing[types.UID]{},
	}
	state, err := observer.Observe(ctx, after)
	if err != nil {
		return nil, err
	}
	in := state.Input()
	if in.ScaleDownBegins() && !build.Secured(after) {
		state.Room = state.RoomBy(ctx, &in, in.Wanted(), answersOf(holds))
	}
	p := &preview{State: state, before: before, after: after, holds: holds, plan: state.Plan(), in: in}
	if err := p.members(); err != nil {
		return nil, err
	}
	if err := p.items(ctx, keys); err != nil {
		return nil, err
	}
	p.fill()
	p.words()
	return &p.Forecast, nil
}

// answersOf answers for the members as they would.
func answersOf(holds map[string]Holds) func(func(*corev1.Pod) int32, []*corev1.Pod) map[types.UID]ask.Answer {
	return func(_ func(*corev1.Pod) int32, pods []*corev1.Pod) map[types.UID]ask.Answer {
		answers := map[types.UID]ask.Answer{}
		for _, pod := range pods {
			h, known := holds[pod.Name]
			answer := ask.Answer{Holds: h}
			if !known {
				answer.Err = "it was not asked"
			}
			answers[pod.UID] = answer
		}
		return answers
	}
}

// preview works a Forecast out.
type preview struct {
	Forecast
	*observe.State
	before, after *cachev1alpha1.Memcached
	holds         map[string]Holds
	plan          plan.Plan
	in            plan.Observed
}

// present is how many members there are now.
func (p *preview) present() int32 {
	if p.Deployment != nil {
		return ptr.Deref(p.Deployment.Spec.Replicas, 1)
	}
	return p.in.StatefulSet.Replicas
}

// members works out which members leave, join and restart.
func (p *preview) members() error {
	now, wanted := p.present(), *p.after.Spec.Size
	name := func(i int32) string { return build.PodName(p.after.Name, i) }
	for i := wanted; i < now; i++ {
		p.Leave = append(p.Leave, name(i))
	}
	for i := now; i < wanted; i++ {
		p.Join = append(p.Join, name(i))
	}
	p.Hibernates = wanted == 0 && p.after.Spec.HasVolumes()
	replaced, err := p.replaces()
	if err != nil {
		return err
	}
	for i := int32(0); replaced && i < min(now, wanted); i++ {
		p.Restart = append(p.Restart, name(i))
	}
	p.Warm = p.after.Spec.HasVolumes()
	for _, c := range p.plan.SmallClaims {
		p.Grow = append(p.Grow, c.Name)
	}
	return nil
}

// replaces tells whether the members' pods of the two specs differ, as package build makes them.
func (p *preview) replaces() (bool, error) {
	o := p.options()
	var templates [2][]byte
	for i, c := range []*cachev1alpha1.Memcached{p.before, p.after} {
		var template any
		if c.Spec.Storage != nil {
			template = build.StatefulSet(c, o, 1).Spec.Template
		} else {
			template = build.Deployment(c, o).Spec.Template
		}
		var err error
		if templates[i], err = json.Marshal(template); err != nil {
			return false, err
		}
	}
	return !bytes.Equal(templates[0], templates[1]), nil
}

// options are those of the operator that made the present members, as far as their pods tell.
func (p *preview) options() (o Options) {
	var pod *corev1.PodSpec
	switch {
	case p.StatefulSet != nil:
		pod = &p.StatefulSet.Spec.Template.Spec
	case p.Deployment != nil:
		pod = &p.Deployment.Spec.Template.Spec
	default:
		return o
	}
	for _, c := range pod.InitContainers {
		if c.Name == build.ContainerInstall {
			o.OperatorImage = c.Image
		}
	}
	for _, c := range pod.Containers {
		if c.Name == build.ContainerMemcached && p.before.Spec.Image == "" {
			o.MemcachedImage = c.Image
		}
	}
	return o
}

// items works out where items go.
func (p *preview) items(ctx context.Context, keys [][]byte) error {
	for i := range p.present() {
		if _, known := p.holds[build.PodName(p.after.Name, i)]; !known && p.after.Spec.Storage != nil {
			p.Unknown = append(p.Unknown, build.PodName(p.after.Name, i))
		}
	}
	switch {
	case p.after.Spec.Storage == nil:
		p.plainItems()
		return nil
	case p.Hibernates:
		return nil
	case p.after.Spec.InPods() && *p.after.Spec.Size == 0:
		for _, name := range p.Leave {
			p.lose(name, p.holds[name])
		}
		return nil
	}
	if p.in.Record.Ring.Size == 0 || *p.after.Spec.Size == 0 {
		return nil
	}
	change, err := p.Change(ctx, &p.in, p.in.Wanted())
	if err != nil {
		return err
	}
	p.flows(change)
	if len(keys) > 0 {
		others, owners := 0, change.Owners()
		for _, key := range keys {
			if was, is := owners(key); was != is {
				others++
			}
		}
		share := float64(others) / float64(len(keys))
		p.KeysElsewhere = &share
	}
	p.takes()
	return nil
}

// lose adds what goes with the member.
func (p *preview) lose(name string, part Holds) {
	if _, known := p.holds[name]; !known && !slices.Contains(p.Uncounted, name) {
		p.Uncounted = append(p.Uncounted, name)
	}
	p.Lost.Add(part)
}

// plainItems: without storage, a member's items go with it.
func (p *preview) plainItems() {
	now, gone := p.present(), int32(len(p.Leave)+len(p.Restart))
	if now == 0 || gone == 0 {
		return
	}
	var all Holds
	for i := range p.Pods {
		has, known := p.holds[p.Pods[i].Name]
		if all.Add(has); !known && p.Pods[i].Status.Phase == corev1.PodRunning {
			p.Uncounted = append(p.Uncounted, p.Pods[i].Name)
		}
	}
	p.Lost = all.Share(min(1, float64(gone)/float64(now)))
}

// flows works out where items go, and what is evicted. A member that joins, or restarts with another memory, has the memory
// of the spec.
func (p *preview) flows(change *forecast.Change) {
	parts, elsewhere := change.Parts(forecast.Exact)
	p.Elsewhere = elsewhere
	name := func(i int) string { return build.PodName(p.after.Name, int32(i)) }
	now, then := make([]Holds, change.From.Size), make([]Holds, change.To.Size)
	for i := range now {
		has, known := p.holds[name(i)]
		if now[i] = has; !known && !change.To.Has(int32(i)) && p.after.Spec.Drain.Policy == cachev1alpha1.PolicyDelete {
			p.Uncounted = append(p.Uncounted, name(i))
		}
	}
	for _, to := range parts {
		part, leaves := now[to.From].Share(to.Share), !change.To.Has(int32(to.From))
		switch {
		case p.goes(name(to.From), leaves):
			p.lose(name(to.From), part)
			continue
		case to.Missed:
			p.Stays.Add(part)
		case to.From == to.To && !leaves:
		case leaves && p.after.Spec.Drain.Policy == cachev1alpha1.PolicyRetain:
			p.Retained.Add(part)
			continue
		default:
			p.Flows = append(p.Flows, Flow{name(to.From), name(to.To), part})
			p.Moved.Add(part)
		}
		then[to.To].Add(part)
	}
	p.Evicted, _ = forecast.Evicted(now, then, func(int) int64 { return build.Memory(p.after) })
}

// goes tells whether the member's items are given up.
func (p *preview) goes(member string, leaves bool) bool {
	if leaves && p.after.Spec.Drain.Policy == cachev1alpha1.PolicyDelete {
		return true
	}
	return p.after.Spec.InPods() && (leaves && p.in.Cluster.MovesOff || slices.Contains(p.Restart, member) && !p.stepsOut(member))
}

// stepsOut tells whether the member moves its items before it restarts.
func (p *preview) stepsOut(member string) bool {
	ordinal, is := build.PodOrdinal(p.after.Name, member)
	return is && p.in.StepsOut(ordinal)
}

// takes estimates by the receipt whose number of items is nearest. Members that leave together are moved side by
// side.
func (p *preview) takes() {
	most := int64(0)
	by := map[string]int64{}
	for _, f := range p.Flows {
		by[f.From] += f.Items
		most = max(most, by[f.From])
	}
	var nearest *cachev1alpha1.DrainReceipt
	items := func(r *cachev1alpha1.DrainReceipt) int64 { return r.Moved + r.Found }
	for i := range p.before.Status.LastDrains {
		r := &p.before.Status.LastDrains[i]
		apart := func(r *cachev1alpha1.DrainReceipt) int64 { return max(items(r)-most, most-items(r)) }
		if r.Duration != nil && items(r) > 0 && (nearest == nil || apart(r) < apart(nearest)) {
			nearest = r
		}
	}
	if nearest == nil || most == 0 {
		return
	}
	longer := max(1, float64(most)/float64(items(nearest)))
	p.Takes = &metav1.Duration{Duration: time.Duration(float64(nearest.Duration.Duration) * longer).Round(time.Second)}
}

// words adds what status would say.
func (p *preview) words() {
	if observe.Paused(p.after) {
		p.plan = p.PausedPlan(p.plan)
	}
	seen := &outcome{State: p.State}
	s := status.Compute(seen.statusInput(p.plan, nil, p.Now))
	if c := meta.FindStatusCondition(s.Conditions, cachev1alpha1.ConditionProgressing); c != nil && (p.plan.SizeBlocked != plan.NotBlocked || observe.Paused(p.after)) {
		p.Blocked = &Reason{c.Reason, c.Message}
	}
	if c := meta.FindStatusCondition(s.Conditions, cachev1alpha1.ConditionDegraded); c != nil && c.Status == metav1.ConditionTrue {
		p.Trouble = &Reason{c.Reason, c.Message}
	}
	for _, a := range s.Advice {
		if !slices.ContainsFunc(p.before.Status.Advice, func(known cachev1alpha1.Advice) bool { return known == a }) {
			p.Advice = append(p.Advice, Reason{a.Reason, a.Message})
		}
	}
}

// Where returns the list of servers by which clients of the cluster look for keys now, and its owner function. The
// server with index i is the member with ordinal i. lookup finds the addresses of hosts, for clients that hash them.
func Where(ctx context.Context, c *cachev1alpha1.Memcached, lookup routing.Lookup) (routing.List, error) {
	if c.Spec.Storage == nil {
		return routing.List{}, fmt.Errorf("cluster %s has no storage: its members have no names of their own", c.Name)
	}
	n := int32(min(len(c.Status.Servers), cachev1alpha1.MaxSize))
	if n == 0 {
		return routing.List{}, fmt.Errorf("no member is on the clients' list of Memcached %s", c.Name)
	}
	return forecast.List(ctx, c, build.RingOf(c, n), lookup)
}
