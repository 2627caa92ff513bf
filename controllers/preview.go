package controllers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
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
	"example.com/memcached-operator/controllers/internal/observe"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/controllers/internal/remembered"
	"example.com/memcached-operator/controllers/internal/ring"
	"example.com/memcached-operator/controllers/internal/status"
	"example.com/memcached-operator/drainer/routing"
)

// Holds is what a member holds: its items, their bytes, and the limit of those.
type Holds struct {
	Items int64 `json:"items"`
	Bytes int64 `json:"bytes"`
	Limit int64 `json:"limit,omitempty"`
	// Classes are the size classes of its memory, by the size of their chunks; nil if they are not known.
	Classes map[int64]Class `json:"-"`
}

func (h Holds) share(part float64) Holds {
	of := func(n int64) int64 { return int64(float64(n)*part + 0.5) }
	shared := Holds{Items: of(h.Items), Bytes: of(h.Bytes)}
	for size, c := range h.Classes {
		if c.Chunks > 0 {
			shared.class(size, Class{PerPage: c.PerPage, Chunks: of(c.Chunks), Items: of(c.Items), Bytes: of(c.Bytes)})
		}
	}
	return shared
}

func (h *Holds) add(other Holds) {
	h.Items, h.Bytes = h.Items+other.Items, h.Bytes+other.Bytes
	for size, c := range other.Classes {
		h.class(size, c)
	}
}

// class adds what a class has; its pages stay as they are.
func (h *Holds) class(size int64, c Class) {
	if h.Classes == nil {
		h.Classes = map[int64]Class{}
	}
	has := h.Classes[size]
	has.PerPage = c.PerPage
	has.Chunks, has.Items, has.Bytes = has.Chunks+c.Chunks, has.Items+c.Items, has.Bytes+c.Bytes
	h.Classes[size] = has
}

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

// Forecast is what the operator would do about a cluster, and what that costs.
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
	// Flows are what moves or is drained, Moved is their sum. Retained stays on volumes that no member reads,
	// Stays is where clients no longer look, Evicted has to go for lack of memory, Lost goes with its member.
	Flows    []Flow `json:"flows,omitempty"`
	Moved    Holds  `json:"moved"`
	Retained Holds  `json:"retained,omitzero"`
	Stays    Holds  `json:"stays,omitzero"`
	Evicted  Holds  `json:"evicted,omitzero"`
	Lost     Holds  `json:"lost,omitzero"`
	// Uncounted are members that go with their items, whose number is not known.
	Uncounted []string `json:"uncounted,omitempty"`
	// Elsewhere is the share of all keys, from 0 to 1, that clients look for at another member; KeysElsewhere the
	// share of the keys that were given.
	Elsewhere     float64  `json:"elsewhere"`
	KeysElsewhere *float64 `json:"keysElsewhere,omitempty"`
	// Takes is how long it takes by the last receipts; nil if that is not known.
	Takes *metav1.Duration `json:"takes,omitempty"`
	// Unknown are members whose items are not known, so that the numbers are too low.
	Unknown []string `json:"unknown,omitempty"`
	// Blocked is what comes first; nil if it can begin now. Trouble and Advice are what status would say.
	Blocked *Reason  `json:"blocked,omitempty"`
	Trouble *Reason  `json:"trouble,omitempty"`
	Advice  []Reason `json:"advice,omitempty"`
}

// Loses tells whether items would be lost or evicted, as far as is known: members that were not asked count as full.
func (f *Forecast) Loses() bool {
	return f.Lost.Items+f.Evicted.Items > 0 || f.Evicted.Bytes > 0 || len(f.Uncounted) > 0
}

// Preview returns what the operator would do if before became after, which is what the API server would make of a
// changed spec. Preview observes the cluster through reader, and lets the plan decide about it, as a reconcile
// does; it writes nothing. holds has what members hold, by their pods' names. keys are a person's own; nil for
// none.
func Preview(ctx context.Context, reader client.Reader, before, after *cachev1alpha1.Memcached, holds map[string]Holds, keys [][]byte) (*Forecast, error) {
	if after.Spec.Size == nil {
		after = after.DeepCopy()
		after.Spec.Size = before.Spec.Size
	}
	if after.Spec.Size == nil || before.Spec.Size == nil {
		return nil, fmt.Errorf("there is no size yet of Memcached %s: the operator writes one", before.Name)
	}
	observer := observe.Reader{
		Cache: observe.Uncached(reader), Live: reader, Clock: clock.RealClock{}, NotCreated: &read.MissingPods{}, GrowthRefused: &remembered.Answers[string]{},
	}
	state, err := observer.Observe(ctx, after)
	if err != nil {
		return nil, err
	}
	in := state.Input()
	if in.ScaleDownBegins() && !build.Secured(after) {
		state.Room = state.RoomBy(func(ordinal int32) bool { return ordinal >= *state.Cluster.Spec.Size }, answersOf(holds))
	}
	p := &preview{State: state, before: before, after: after, holds: holds, plan: state.Plan(), in: in}
	if err := p.members(); err != nil {
		return nil, err
	}
	if err := p.items(ctx, keys); err != nil {
		return nil, err
	}
	p.words()
	return &p.Forecast, nil
}

// answersOf answers for the members as they would.
func answersOf(holds map[string]Holds) func(func(*corev1.Pod) int32, []*corev1.Pod) map[types.UID]ask.Answer {
	return func(_ func(*corev1.Pod) int32, pods []*corev1.Pod) map[types.UID]ask.Answer {
		answers := map[types.UID]ask.Answer{}
		for _, pod := range pods {
			h, known := holds[pod.Name]
			answer := ask.Answer{Memory: ask.Memory{Used: h.Bytes, Limit: h.Limit}}
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

// members works out who leaves, joins and restarts.
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
	from, to := p.in.Record.Ring, p.in.Cluster.Ring.Of(*p.after.Spec.Size)
	if from.Size == 0 || to.Size == 0 {
		return nil
	}
	before, err := p.list(ctx, p.before, from)
	if err != nil {
		return err
	}
	after, err := p.list(ctx, p.after, to)
	if err != nil {
		return err
	}
	p.flows(before, after)
	if len(keys) > 0 {
		c := 0
		for _, key := range keys {
			if before.Owner.Owner(key) != after.Owner.Owner(key) {
				c++
			}
		}
		share := float64(c) / float64(len(keys))
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
	p.Lost.add(part)
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
		if all.add(has); !known && p.Pods[i].Status.Phase == corev1.PodRunning {
			p.Uncounted = append(p.Uncounted, p.Pods[i].Name)
		}
	}
	p.Lost = all.share(min(1, float64(gone)/float64(now)))
}

// list is where clients look, by a ring of the cluster.
func (p *preview) list(ctx context.Context, c *cachev1alpha1.Memcached, r ring.Ring) (routing.List, error) {
	return listOf(ctx, c, r, func(_ context.Context, host string) ([]netip.Addr, error) {
		name, _, _ := strings.Cut(host, ".")
		for i := range p.Pods {
			if address, err := netip.ParseAddr(p.Pods[i].Status.PodIP); err == nil && p.Pods[i].Name == name {
				return []netip.Addr{address}, nil
			}
		}
		// A member that joins has no address yet, and any address takes a like share of the keys.
		ordinal, _ := build.PodOrdinal(c.Name, name)
		return []netip.Addr{netip.AddrFrom4([4]byte{198, 18, byte(ordinal >> 8), byte(ordinal)})}, nil
	})
}

func listOf(ctx context.Context, c *cachev1alpha1.Memcached, r ring.Ring, lookup routing.Lookup) (routing.List, error) {
	servers, err := routing.Resolve(ctx, r.Client, build.RingServers(c, r), lookup)
	if err != nil {
		return routing.List{}, err
	}
	owner, err := routing.New(r.Client, servers)
	if err == nil && r.KeyPrefix != "" {
		owner, err = routing.WithoutPrefix(r.Client, owner, r.KeyPrefix)
	}
	return routing.List{Servers: servers, Owner: owner}, err
}

// sampled is how many keys stand for all: enough for a share to be within a percent.
const sampled = 100_000

// flows compares the lists by a sample of keys. Items are counted at the members that have them: a share of a
// member's keys is that share of its items.
func (p *preview) flows(before, after routing.List) {
	counts := make([][]int, len(before.Servers))
	of := make([]int, len(before.Servers))
	elsewhere := 0
	for i := range counts {
		counts[i] = make([]int, len(after.Servers))
	}
	for i := range sampled {
		key := fmt.Appendf(nil, "key:%d", i)
		was, is := before.Owner.Owner(key), after.Owner.Owner(key)
		counts[was][is]++
		of[was]++
		if was != is {
			elsewhere++
		}
	}
	p.Elsewhere = float64(elsewhere) / sampled
	afterwards := make([]Holds, len(after.Servers))
	name := func(i int) string { return build.PodName(p.after.Name, int32(i)) }
	for was := range counts {
		has := p.holds[name(was)]
		leaves := int32(was) >= *p.after.Spec.Size
		goes := leaves && p.after.Spec.Drain.Policy == cachev1alpha1.PolicyDelete
		if p.after.Spec.InPods() {
			goes = goes || leaves && p.in.Cluster.MovesOff || slices.Contains(p.Restart, name(was))
		}
		for is, n := range counts[was] {
			if n == 0 {
				continue
			}
			part := has.share(float64(n) / float64(of[was]))
			to := is
			switch {
			case goes:
				p.lose(name(was), part)
				continue
			case was == is && !leaves:
			case leaves && p.after.Spec.Drain.Policy == cachev1alpha1.PolicyRetain:
				p.Retained.add(part)
				continue
			case !leaves && p.in.Cluster.MovesOff:
				p.Stays.add(part)
				to = was
			default:
				p.Flows = append(p.Flows, Flow{name(was), name(is), part})
				p.Moved.add(part)
			}
			afterwards[to].add(part)
		}
	}
	p.evictions(afterwards)
}

// evictions compares what members would hold with the memory that they would have. A member that joins, or restarts with
// another memory, takes its pages anew.
func (p *preview) evictions(held []Holds) {
	limit := build.Memory(p.after)
	var known map[int64]Class
	for _, has := range p.holds {
		if len(has.Classes) > len(known) {
			known = has.Classes
		}
	}
	for i, h := range held {
		has := p.holds[build.PodName(p.after.Name, int32(i))]
		pages := pagesOf(known, true)
		if len(has.Classes) > 0 && has.Limit/pageSize == limit/pageSize {
			pages = pagesOf(has.Classes, false)
		}
		p.Evicted.add(h.evicted(pages, limit))
	}
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

// words are those that status would have.
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
	return listOf(ctx, c, build.RingOf(c, n), lookup)
}
