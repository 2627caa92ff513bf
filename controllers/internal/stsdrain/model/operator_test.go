package model

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/remembered"
	"example.com/memcached-operator/controllers/internal/stsdrain"
	"example.com/memcached-operator/controllers/internal/stsdrain/apply"
	"example.com/memcached-operator/controllers/internal/stsdrain/observe"
)

// container is the drainer's.
const container = "drain"

var (
	clock = testingclock.NewFakePassiveClock(now)
	quiet = logf.IntoContext(context.Background(), logr.Discard())
	key   = client.ObjectKey{Namespace: namespace, Name: name}
)

// reconciled is the result of a reconcile.
type reconciled struct {
	to     *state
	writes int
	steps  []string
	// status is the new status of the StatefulSetDrain; nil without one, or if it can't be observed.
	status *cachev1alpha1.StatefulSetDrainStatus
	plan   *stsdrain.Plan
	err    error
	// wrong has the errors in the reconcile's writes.
	wrong []string
}

// reconcile is a reconcile by the real operator, from caches as they are at its beginning. Its status is not written.
func (m *model) reconcile(from *state, f fault, check func(before, after *state)) *reconciled {
	d := from.drain()
	r := &reconciled{to: from.clone()}
	if d == nil {
		return r
	}
	s := &server{live: r.to, before: from, volumes: !m.noVolumes, fault: f}
	s.wrote = func(before *state, raced bool) {
		m.settle(s.live)
		check(before, s.live)
		if !raced {
			r.wrong = append(r.wrong, m.wrote(before, s.live)...)
		}
	}
	cached := view{state: from, volumes: !m.noVolumes}
	reader, woken := m.reader(from, s)
	seen, err := reader.Observe(quiet, d.DeepCopy())
	if err != nil {
		r.err = err
		return r
	}
	if f.event != nil && f.at == 0 {
		s.race()
	}
	in := seen.Input(observe.RuleRefused(d))
	p := stsdrain.Decide(&in)
	for _, step := range p.Actions {
		r.steps = append(r.steps, step.String())
	}
	applier := &apply.Applier{
		Client: writer{view: cached, server: s}, Reader: reader, Events: &events.FakeRecorder{}, Clock: clock, Made: &remembered.Matches{},
	}
	done, err := applier.Apply(quiet, seen, &p, in.Drain.TemplateRefused)
	r.writes, r.err, r.plan = s.writes, err, &p
	is := stsdrain.ComputeStatus(&stsdrain.StatusInput{
		Drain: d, Observed: &in, Plan: &p, Rows: claims.Rows{Now: now, Marked: done.Marked, Started: seen.Started(), Waits: seen.Waits, Member: seen.Member},
	})
	r.status = &is
	if s.dead {
		r.to.woken, r.to.obstructed = nil, nil
		return r
	}
	woken.Use(key, func(w *observe.Woken) { r.to.woken = slices.Clone(w.Ordinals) })
	r.to.obstructed = nil
	for uid, why := range reader.Obstructed.Known(key, now) {
		if r.to.obstructed == nil {
			r.to.obstructed = map[types.UID]claims.Obstruction{}
		}
		r.to.obstructed[uid] = why
	}
	for _, what := range s.unlocked {
		r.err = errors.Join(r.err, fmt.Errorf("%w: %s", errUnlocked, what))
	}
	return r
}

var errUnlocked = errors.New("a write has no lock")

// reader reads as the operator does that remembers what the state says.
func (m *model) reader(from *state, s *server) (*observe.Reader, *remembered.ByObject[observe.Woken]) {
	woken, obstructed := &remembered.ByObject[observe.Woken]{}, &remembered.Obstructions{}
	woken.Use(key, func(w *observe.Woken) { *w = observe.Woken{By: from.drain().UID, Ordinals: from.woken} })
	for uid, why := range from.obstructed {
		obstructed.Note(key, uid, why)
	}
	cached := view{state: from}
	live := view{server: s, volumes: !m.noVolumes}
	return &observe.Reader{
		Cache: cached, Objects: labelled{cached}, Live: live, Clock: clock, Seen: &remembered.Names{}, Obstructed: obstructed, Looked: &observe.Looked{},
		NotCreated: &read.MissingPods{}, Woken: woken,
		See: func(client.ObjectKey, types.UID, string) observe.Seen {
			out := observe.Seen{Known: true, Set: from.set()}
			for _, pod := range from.pods() {
				if out.Set != nil && pod.Labels["app"] == name {
					out.Pods = append(out.Pods, pod)
				}
			}
			return out
		},
	}, woken
}

// labelled is the cache of the objects with the label of StatefulSetDrains.
type labelled struct{ view }

func (l labelled) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if err := l.view.Get(ctx, key, into, options...); err != nil {
		return err
	}
	if into.GetLabels()[cachev1alpha1.LabelStatefulSetDrain] == "" {
		return apierrors.NewNotFound(groupResource(into), key.Name)
	}
	return nil
}
