package controllers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/rollout"
)

const (
	// defaultRollouts is how many clusters are rolled out at once by an upgrade.
	defaultRollouts = 3
	// turnInterval is how often a cluster that waits for its turn asks for it, should
	// nobody tell it.
	turnInterval = time.Minute
	// unreadyPatience is how long a cluster whose members aren't ready waits at least:
	// by then an operator that starts has seen those that are, and they go first.
	unreadyPatience = time.Minute
)

// rollouts hands out the turns of roll-outs that an upgrade of the operator begins. Who
// has one is on the objects (rollout.Record); this is the same, and never behind: it has
// what this operator wrote, and what was there, read live, before it gave the first one.
type rollouts struct {
	mu sync.Mutex
	// looking is held while turns are looked for that an earlier operator gave.
	looking sync.Mutex
	// turns that were given and not given back.
	turns map[client.ObjectKey]rollout.Mark
	// waiting are the clusters that wait for one.
	waiting map[client.ObjectKey]waiter
	// ended are the marks that this operator took off: a cache that is behind has them.
	ended map[client.ObjectKey]rollout.Mark
	// looked: the turns that an earlier operator gave are among them.
	looked bool
}

type waiter struct {
	// since when it waits, and when it asked last.
	since, asked time.Time
	// ready are all of its members.
	ready bool
}

// waits tells whether it still does: one that doesn't ask any more has other troubles.
func (w waiter) waits(now time.Time) bool { return now.Sub(w.asked) < 3*turnInterval }

// members are what the template of a StatefulSet or a Deployment is decided by.
type members struct {
	object metav1.Object
	// live is the template as it is, applied what we have applied of it, and desired
	// what it is to be.
	live             *corev1.PodTemplateSpec
	applied, desired *coreac.PodTemplateSpecApplyConfiguration
	// replicas that there are, and that there are to be.
	replicas, wanted int32
	// ready: all are there, of this template, and ready.
	ready bool
	// kept: the plan lets them keep their template.
	kept bool
}

// decided is what is to be applied of a template, and how.
type decided struct {
	template *coreac.PodTemplateSpecApplyConfiguration
	record   rollout.Record
	// was is the mark before, or nil; began: this begins a roll-out by an upgrade.
	was   *rollout.Mark
	began bool
	// settled: the template is the wanted one, and nothing is under way.
	settled bool
}

// born is what is decided of members that there are none of yet.
func born(c *cachev1alpha1.Memcached) *decided {
	return &decided{record: rollout.Record{Generation: c.Generation, Spec: build.TemplateSpec(c)}, settled: true}
}

// annotations of the object.
func (d *decided) annotations() map[string]string {
	return map[string]string{cachev1alpha1.AnnotationTemplate: d.record.String()}
}

// decide what becomes of the members' template: whether they are to have the wanted one
// now, or when it is their turn.
func (r *MemcachedReconciler) decide(ctx context.Context, o *observed, m *members) (*decided, error) {
	key, now := client.ObjectKeyFromObject(o.cluster), r.Clock.Now()
	was := rollout.Parse(m.object.GetAnnotations()[cachev1alpha1.AnnotationTemplate])
	of := rollout.Members{
		Differs:  !m.kept && !equality.Semantic.DeepEqual(m.desired, m.applied),
		Recorded: was, Generation: o.cluster.Generation, Spec: build.TemplateSpec(o.cluster),
		None: m.replicas == 0 || m.wanted == 0, Ready: m.ready,
	}
	d := &decided{template: m.desired, record: rollout.Record{Generation: of.Generation, Spec: of.Spec}}
	if m.kept {
		d.record = rollout.Record{Generation: ptr.Deref(was, rollout.Record{}).Generation, Spec: ptr.Deref(was, rollout.Record{}).Spec}
	} else if was != nil && was.Spec == of.Spec && m.wanted != *o.cluster.Spec.Size {
		d.record.Generation = was.Generation // it goes with the size, when that is applied
	}
	d.record.Mark = r.rollouts.mark(key, was)
	d.was = d.record.Mark
	keep := m.kept
	switch rollout.Next(&of, d.record.Mark, now) {
	case rollout.Apply:
		d.record.Mark, d.settled = nil, !m.kept
	case rollout.GoOn:
		r.rollouts.goOn(key, *d.record.Mark)
		if d.record.Mark.Unready {
			o.waits.atMost(d.record.Mark.Since.Add(rollout.UnreadyTime).Sub(now))
		}
	case rollout.Ask:
		mark, why, err := r.turn(ctx, key, m.ready)
		if err != nil {
			return nil, err
		}
		d.record.Mark, d.began, keep = mark, mark != nil, mark == nil
		if o.rolloutWaits = why; why != "" {
			o.waits.atMost(turnInterval)
		}
	}
	if keep {
		var err error
		d.template, err = m.present()
		return d, err
	}
	return d, nil
}

// present is the template as it is: what we have applied of it, or, should nobody know
// that any more, all of it.
func (m *members) present() (*coreac.PodTemplateSpecApplyConfiguration, error) {
	if m.applied != nil {
		return m.applied, nil
	}
	b, err := json.Marshal(m.live)
	if err != nil {
		return nil, err
	}
	template := &coreac.PodTemplateSpecApplyConfiguration{}
	return template, json.Unmarshal(b, template)
}

// decidedApplied tells how the write of what was decided ended: with the mark off, the
// turn is given back, and also where the API server refused to begin.
func (r *MemcachedReconciler) decidedApplied(o *observed, d *decided, err error) {
	key := client.ObjectKeyFromObject(o.cluster)
	switch {
	case err == nil && d.record.Mark == nil && o.rolloutWaits == "":
		r.leave(key, d.was)
	case d.began && notApplied(err):
		r.leave(key, nil)
	}
}

// notApplied tells whether the error says for sure that the API server did nothing.
func notApplied(err error) bool {
	var answer apierrors.APIStatus
	return errors.Is(err, errRefused) || errors.Is(err, errBehind) || errors.As(err, &answer) &&
		answer.Status().Code >= http.StatusBadRequest && answer.Status().Code < http.StatusInternalServerError
}

// mark of the cluster's roll-out: the one on its object, or the one that this operator
// wrote, and the cache doesn't have yet.
func (t *rollouts) mark(key client.ObjectKey, recorded *rollout.Record) *rollout.Mark {
	t.mu.Lock()
	defer t.mu.Unlock()
	ended, isEnded := t.ended[key]
	switch {
	case recorded == nil || recorded.Mark == nil:
		delete(t.ended, key)
	case !isEnded || ended != *recorded.Mark:
		return recorded.Mark
	}
	if mark, ok := t.turns[key]; ok {
		return &mark
	}
	return nil
}

// goOn keeps that the cluster has a turn.
func (t *rollouts) goOn(key client.ObjectKey, mark rollout.Mark) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.give(key, mark)
}

func (t *rollouts) give(key client.ObjectKey, mark rollout.Mark) {
	if t.turns == nil {
		t.turns = map[client.ObjectKey]rollout.Mark{}
	}
	t.turns[key] = mark
	delete(t.waiting, key)
}

// turn asks for the cluster's turn, whose members are ready or not. It returns the mark
// of its roll-out, or why it has to wait.
func (r *MemcachedReconciler) turn(ctx context.Context, key client.ObjectKey, ready bool) (*rollout.Mark, string, error) {
	if err := r.findTurns(ctx); err != nil {
		return nil, "", err
	}
	t, now := &r.rollouts, r.Clock.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	defer func() { r.Metrics.Rollouts(len(t.turns), len(t.waiting)) }()
	since := now
	if w, waits := t.waiting[key]; waits {
		since = w.since
	}
	if t.waiting == nil {
		t.waiting = map[client.ObjectKey]waiter{}
	}
	t.waiting[key] = waiter{since, now, ready}
	if !ready && (now.Sub(since) < unreadyPatience || t.someReady(now)) {
		r.callNext(ctx, key)
		return nil, "the operator's version changes the members; not all of them are ready, and clusters whose members are go first", nil
	}
	limit := cmp.Or(r.RolloutsAtOnce, defaultRollouts)
	if n := r.underWay(ctx); n >= limit {
		return nil, fmt.Sprintf("the operator's version changes the members; %d other clusters go first, and %d may at once", n, limit), nil
	}
	mark := rollout.Mark{Since: now.UTC().Truncate(time.Second), Unready: !ready}
	t.give(key, mark)
	return &mark, "", nil
}

func (t *rollouts) someReady(now time.Time) bool {
	for _, w := range t.waiting {
		if w.ready && w.waits(now) {
			return true
		}
	}
	return false
}

// underWay is how many roll-outs hold up the next one. That of a cluster which is
// paused, or on its way out, or gone, does not.
func (r *MemcachedReconciler) underWay(ctx context.Context) int {
	n := 0
	for key, mark := range r.rollouts.turns {
		cluster := &cachev1alpha1.Memcached{}
		err := r.Get(ctx, key, cluster)
		out := apierrors.IsNotFound(err) || err == nil && (paused(cluster) || cluster.DeletionTimestamp != nil)
		if !out && !mark.Over(r.Clock.Now()) {
			n++
		}
	}
	return n
}

// findTurns adds those that an earlier operator gave, once: the cache may be behind.
// Clusters that this operator doesn't watch have turns of their own.
func (r *MemcachedReconciler) findTurns(ctx context.Context) error {
	t := &r.rollouts
	t.looking.Lock()
	defer t.looking.Unlock()
	t.mu.Lock()
	looked := t.looked
	t.mu.Unlock()
	if looked {
		return nil
	}
	found := map[client.ObjectKey]rollout.Mark{}
	if err := r.lookForTurns(ctx, found); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, mark := range found {
		if _, since := t.ended[key]; !since {
			t.give(key, mark)
		}
	}
	t.looked = true
	return nil
}

func (r *MemcachedReconciler) lookForTurns(ctx context.Context, found map[client.ObjectKey]rollout.Mark) error {
	var clusters cachev1alpha1.MemcachedList
	if err := r.List(ctx, &clusters, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	watched, namespaces := map[client.ObjectKey]bool{}, map[string]bool{}
	for i := range clusters.Items {
		watched[client.ObjectKeyFromObject(&clusters.Items[i])] = true
		namespaces[clusters.Items[i].Namespace] = true
	}
	for _, kind := range []string{kindStatefulSet, kindDeployment} {
		err := r.lookForTurnsOf(ctx, kind, watched, found)
		if apierrors.IsForbidden(err) { // an operator for some namespaces
			err = nil
			for namespace := range namespaces {
				err = errors.Join(err, r.lookForTurnsOf(ctx, kind, watched, found, client.InNamespace(namespace)))
			}
		}
		if err != nil {
			return fmt.Errorf("look for roll-outs under way: %w", err)
		}
	}
	return nil
}

func (r *MemcachedReconciler) lookForTurnsOf(
	ctx context.Context, kind string, watched map[client.ObjectKey]bool, marks map[client.ObjectKey]rollout.Mark, options ...client.ListOption,
) error {
	const page = 200
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind(kind + "List"))
	for more := true; more; more = list.Continue != "" {
		options := append(slices.Clone(options), client.HasLabels{cachev1alpha1.LabelCluster}, client.Limit(page), client.Continue(list.Continue))
		if err := r.Live.List(ctx, list, options...); err != nil {
			return err
		}
		for i := range list.Items {
			key := client.ObjectKeyFromObject(&list.Items[i])
			found := rollout.Parse(list.Items[i].Annotations[cachev1alpha1.AnnotationTemplate])
			if found != nil && found.Mark != nil && watched[key] {
				marks[key] = *found.Mark
			}
		}
	}
	return nil
}

// leave gives the cluster's turn back, or its place among those that wait for one, and
// tells who is next. The mark is the one that was taken off, or nil.
func (r *MemcachedReconciler) leave(key client.ObjectKey, mark *rollout.Mark) {
	t := &r.rollouts
	t.mu.Lock()
	defer t.mu.Unlock()
	_, had := t.turns[key]
	_, waited := t.waiting[key]
	if !had && !waited {
		return
	}
	if mark != nil {
		if t.ended == nil {
			t.ended = map[client.ObjectKey]rollout.Mark{}
		}
		t.ended[key] = *mark
	}
	delete(t.turns, key)
	delete(t.waiting, key)
	r.Metrics.Rollouts(len(t.turns), len(t.waiting))
	r.callNext(context.Background(), key)
}

// standAside lets others go before a cluster that a person has paused.
func (r *MemcachedReconciler) standAside(key client.ObjectKey) {
	t := &r.rollouts
	t.mu.Lock()
	defer t.mu.Unlock()
	_, had := t.turns[key]
	_, waited := t.waiting[key]
	delete(t.waiting, key)
	if had || waited {
		r.callNext(context.Background(), key)
	}
}

// callNext tells as many clusters as there are turns to ask again: those whose members
// are ready, or, if no such one waits, those that have been patient; of these the ones that
// have waited longest. One that would not get a turn is not called: it would call others.
func (r *MemcachedReconciler) callNext(ctx context.Context, but client.ObjectKey) {
	free := cmp.Or(r.RolloutsAtOnce, defaultRollouts) - r.underWay(ctx)
	if free <= 0 {
		return
	}
	now := r.Clock.Now()
	unready := !r.rollouts.someReady(now)
	var next []client.ObjectKey
	for key, w := range r.rollouts.waiting {
		if key != but && w.waits(now) && (w.ready || unready && now.Sub(w.since) >= unreadyPatience) {
			next = append(next, key)
		}
	}
	slices.SortFunc(next, func(a, b client.ObjectKey) int {
		return r.rollouts.waiting[a].since.Compare(r.rollouts.waiting[b].since)
	})
	for _, key := range next[:min(free, len(next))] {
		r.wakes.now(key)
	}
}

// statefulSetReady: all members are there, of the present template, and ready.
func statefulSetReady(s *appsv1.StatefulSet) bool {
	n := ptr.Deref(s.Spec.Replicas, 1)
	return s.Status.ObservedGeneration == s.Generation && s.Status.UpdateRevision == s.Status.CurrentRevision &&
		s.Status.Replicas == n && s.Status.ReadyReplicas == n && s.Status.UpdatedReplicas == n
}

// deploymentReady is statefulSetReady for a Deployment.
func deploymentReady(d *appsv1.Deployment) bool {
	n := ptr.Deref(d.Spec.Replicas, 1)
	return d.Status.ObservedGeneration == d.Generation &&
		d.Status.Replicas == n && d.Status.ReadyReplicas == n && d.Status.UpdatedReplicas == n
}
