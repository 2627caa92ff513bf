package controllers

import (
	"context"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/drainer/contract"
)

var scraped = time.Unix(10_000, 0)

// snapshot has all existing objects, in caches: the manager's, and that of StatefulSetDrains' claims.
type snapshot struct {
	clusters []cachev1alpha1.Memcached
	claims   []corev1.PersistentVolumeClaim
	drains   []cachev1alpha1.StatefulSetDrain
	drained  []corev1.PersistentVolumeClaim
}

func (s *snapshot) Describe(d chan<- *prometheus.Desc) { (&collector{}).Describe(d) }
func (s *snapshot) Collect(m chan<- prometheus.Metric) {
	c := &collector{reader: listed{s, s.claims}, drained: listed{s, s.drained}, leftAt: left, now: func() time.Time { return scraped }}
	c.Collect(m)
}

// listed is a cache of the snapshot, with these claims.
type listed struct {
	*snapshot
	claims []corev1.PersistentVolumeClaim
}

func (l listed) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.New("metrics only list")
}

func (l listed) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch list := list.(type) {
	case *cachev1alpha1.MemcachedList:
		list.Items = l.clusters
	case *cachev1alpha1.StatefulSetDrainList:
		list.Items = l.drains
	case *corev1.PersistentVolumeClaimList:
		list.Items = l.claims
	}
	return nil
}

// left is the time in the claim's mark.
func left(c *corev1.PersistentVolumeClaim) time.Time {
	at, _ := time.Parse(time.RFC3339, c.Annotations[cachev1alpha1.AnnotationLeaving])
	return at
}

// held is a claim of the cluster "cache" with the finalizer, whose member left at this time.
func held(name string, leaving int64) corev1.PersistentVolumeClaim {
	c := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: name, Finalizers: []string{cachev1alpha1.ClaimFinalizer},
		Labels: map[string]string{cachev1alpha1.LabelInstance: "cache"},
	}}
	if leaving > 0 {
		c.Annotations = map[string]string{cachev1alpha1.AnnotationLeaving: time.Unix(leaving, 0).UTC().Format(time.RFC3339)}
	}
	return c
}

// queueClaim is held, as a claim of the StatefulSetDrain "queue".
func queueClaim(name string, leaving int64) corev1.PersistentVolumeClaim {
	c := held(name, leaving)
	c.Labels = map[string]string{cachev1alpha1.LabelStatefulSetDrain: "queue"}
	return c
}

// draining is a StatefulSetDrain with drains in several phases.
func draining() cachev1alpha1.StatefulSetDrain {
	d := cachev1alpha1.StatefulSetDrain{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "queue"}}
	d.Status = cachev1alpha1.StatefulSetDrainStatus{
		Replicas: 3, ReadyReplicas: 2, Draining: 40,
		Conditions: []metav1.Condition{{Type: cachev1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: cachev1alpha1.ReasonUnprotected}},
		Drains: []cachev1alpha1.MemberDrain{
			{Ordinal: 5, Claims: []string{"data-queue-5"}, Phase: cachev1alpha1.DrainLeaving},
			{Ordinal: 4, Claims: []string{"data-queue-4"}, Phase: cachev1alpha1.DrainAdding, Done: 1, Total: 2},
			{Ordinal: 3, Claims: []string{"data-queue-3", "logs-queue-3"}, Phase: cachev1alpha1.DrainFailed},
		},
	}
	return d
}

// busy is a cluster that has a value for every gauge, and a StatefulSetDrain.
func busy() *snapshot {
	cluster := apitest.MakeMemcached("cache").Namespace("shop").Storage("128Mi").Size(2).Obj()
	cluster.Status = cachev1alpha1.MemcachedStatus{
		ReadySize: 1, LatePercent: 40,
		Warm: &cachev1alpha1.WarmStatus{Phase: cachev1alpha1.WarmCopying, ItemsDone: 30, ItemsTotal: 120,
			Last: &cachev1alpha1.WarmReceipt{Jobs: 1, Added: 7, AlreadyPresent: 6, Expired: 5, Invalidated: 4, Rejected: 3, EndedAt: metav1.Unix(9_960, 0)}},
		Conditions: []metav1.Condition{
			{Type: cachev1alpha1.ConditionAvailable, Status: metav1.ConditionFalse, Reason: cachev1alpha1.ReasonMembersNotReady},
			{Type: cachev1alpha1.ConditionDraining, Status: metav1.ConditionTrue, Reason: cachev1alpha1.ReasonDraining},
		},
		Advice: []cachev1alpha1.Advice{{Reason: cachev1alpha1.ReasonStartedCold}},
		Drains: []cachev1alpha1.DrainStatus{
			{Claim: "data-cache-5", Phase: cachev1alpha1.DrainAdding, BytesDone: 10, BytesTotal: 100},
			{Claim: "data-cache-4", Phase: cachev1alpha1.DrainAdding, BytesDone: 40, BytesTotal: 100},
			{Claim: "data-cache-3", Phase: cachev1alpha1.DrainWaiting},
		},
	}
	deleted := held("data-cache-1", 0)
	deleted.DeletionTimestamp = &metav1.Time{Time: time.Unix(9_900, 0)}
	letGo := held("data-cache-2", 1_000)
	letGo.Finalizers = nil
	return &snapshot{
		clusters: []cachev1alpha1.Memcached{*cluster},
		claims:   []corev1.PersistentVolumeClaim{held("data-cache-0", 0), deleted, letGo, held("data-cache-3", 9_000), held("data-cache-4", 9_500)},
		drains:   []cachev1alpha1.StatefulSetDrain{draining(), {ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "idle"}}},
		drained: []corev1.PersistentVolumeClaim{
			queueClaim("data-queue-0", 0), queueClaim("data-queue-3", 8_000), queueClaim("logs-queue-3", 8_000), orphan(),
		},
	}
}

// orphan is a deleted claim whose StatefulSetDrain is gone.
func orphan() corev1.PersistentVolumeClaim {
	c := queueClaim("data-spool-0", 0)
	c.Labels[cachev1alpha1.LabelStatefulSetDrain] = "spool"
	c.DeletionTimestamp = &metav1.Time{Time: time.Unix(7_000, 0)}
	return c
}

// TestDrainsThatStatusHasNoRoomForAreCounted, so that the phases add up.
func TestDrainsThatStatusHasNoRoomForAreCounted(t *testing.T) {
	all := busy()
	all.clusters[0].Status.Draining = 40
	registry := prometheus.NewRegistry()
	registry.MustRegister(all)
	want := strings.NewReader(`
# HELP memcached_operator_drains_open Claims to drain and delete, by phase; a phase without claims has no series.
# TYPE memcached_operator_drains_open gauge
memcached_operator_drains_open{kind="Memcached",name="cache",namespace="shop",phase="Adding"} 2
memcached_operator_drains_open{kind="Memcached",name="cache",namespace="shop",phase="Unlisted"} 37
memcached_operator_drains_open{kind="Memcached",name="cache",namespace="shop",phase="Waiting"} 1
memcached_operator_drains_open{kind="StatefulSetDrain",name="queue",namespace="shop",phase="Adding"} 1
memcached_operator_drains_open{kind="StatefulSetDrain",name="queue",namespace="shop",phase="Failed"} 2
memcached_operator_drains_open{kind="StatefulSetDrain",name="queue",namespace="shop",phase="Leaving"} 1
memcached_operator_drains_open{kind="StatefulSetDrain",name="queue",namespace="shop",phase="Unlisted"} 38
`)
	if err := testutil.GatherAndCompare(registry, want, "memcached_operator_drains_open"); err != nil {
		t.Error(err)
	}
}

// gathered registers everything and returns it.
func gathered(t *testing.T) (*Metrics, *prometheus.Registry, map[string]*dto.MetricFamily) {
	t.Helper()
	registry := prometheus.NewRegistry()
	m, err := NewMetrics(prometheus.NewRegistry(), nil) // the collector of clusters would read from the API server
	if err != nil {
		t.Fatal(err)
	}
	registry.MustRegister(m.drains, m.releases, m.items, m.bytes, m.duration, m.phaseDuration, m.moves, m.movedItems,
		m.rolloutsUnderWay, m.rolloutsWaiting, busy())
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]*dto.MetricFamily{}
	for _, f := range families {
		byName[f.GetName()] = f
	}
	return m, registry, byName
}

func TestMetricsFollowTheConventions(t *testing.T) {
	_, registry, _ := gathered(t)
	problems, err := testutil.GatherAndLint(registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// labelsOf returns the names of a series' labels, sorted.
func labelsOf(m *dto.Metric) []string {
	names := []string{}
	for _, l := range m.GetLabel() {
		names = append(names, l.GetName())
	}
	slices.Sort(names)
	return names
}

func TestEveryMetricIsDocumentedWithTypeAndLabels(t *testing.T) {
	text, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	type entry struct {
		Type   string
		Labels []string
	}
	documented, exist := map[string]entry{}, map[string]entry{}
	_, objects, _ := strings.Cut(string(text), "## What there is")
	row := regexp.MustCompile("(?m)^- `(memcached_operator_[a-z_]+)`(?: \\(([^)]*)\\))?: ")
	for _, match := range row.FindAllStringSubmatch(string(text), -1) {
		e := entry{Type: "gauge", Labels: []string{}}
		switch {
		case strings.HasPrefix(match[2], "histogram"):
			e.Type = "histogram"
		case strings.HasSuffix(match[1], "_total"):
			e.Type = "counter"
		}
		for _, label := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(match[2], -1) {
			e.Labels = append(e.Labels, label[1])
		}
		if strings.Contains(objects, match[0]) && match[2] != "no labels" {
			e.Labels = append(e.Labels, "kind", "name", "namespace")
		}
		slices.Sort(e.Labels)
		documented[match[1]] = e
	}
	_, _, families := gathered(t)
	for name, f := range families {
		exist[name] = entry{strings.ToLower(f.GetType().String()), labelsOf(f.GetMetric()[0])}
	}
	if diff := cmp.Diff(exist, documented); diff != "" {
		t.Errorf("docs/metrics.md differs from what is registered (-registered +documented):\n%s", diff)
	}
}

// series has the family's values by the values of their labels, in the order of
// the labels' names.
func series(f *dto.MetricFamily) map[string]float64 {
	values := map[string]float64{}
	for _, m := range f.GetMetric() {
		var key []string
		for _, l := range m.GetLabel() {
			key = append(key, l.GetValue())
		}
		values[strings.Join(key, " ")] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
	}
	return values
}

func TestGaugesTellOfMemcachedsAndStatefulSetDrains(t *testing.T) {
	_, _, families := gathered(t)
	const mc, sts = "Memcached cache shop", "StatefulSetDrain queue shop"
	for name, want := range map[string]map[string]float64{ // by kind, name, namespace
		"members_wanted":                {mc: 2, sts: 3, "StatefulSetDrain idle shop": 0},
		"members_ready":                 {mc: 1, sts: 2, "StatefulSetDrain idle shop": 0},
		"condition":                     {mc + " MembersNotReady Available": 0, mc + " Draining Draining": 1, sts + " Unprotected Ready": 0},
		"advice":                        {mc + " StartedCold": 1},
		"drains_open":                   {mc + " Adding": 2, mc + " Waiting": 1, sts + " Leaving": 1, sts + " Adding": 1, sts + " Failed": 2, sts + " Unlisted": 38},
		"drain_progress_ratio":          {mc: 0.25, sts: 0.5},
		"members_to_move":               {mc: 0},
		"late_requests_ratio":           {mc: 0.4},
		"warmings":                      {mc + " Copying": 1},
		"warming_items":                 {mc + " added": 7, mc + " already_present": 6, mc + " expired": 5, mc + " invalidated": 4, mc + " rejected": 3},
		"warming_items_done":            {mc: 30},
		"warming_progress_ratio":        {mc: 0.25},
		"warming_last_job_age_seconds":  {mc: 40},
		"claims_held":                   {mc: 3, sts: 2, "StatefulSetDrain idle shop": 0, "StatefulSetDrain spool shop": 1},
		"oldest_held_claim_age_seconds": {mc: 1000, sts: 2000, "StatefulSetDrain spool shop": 3000},
	} {
		if diff := cmp.Diff(want, series(families[metricsNamespace+"_"+name])); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}

// A rate sees a first event only if there was a sample before it, and the number of
// series must not grow with the clusters.
func TestCountersHaveEverySeriesFromTheStart(t *testing.T) {
	m, registry, before := gathered(t)
	for kind, whys := range endingReleases {
		always := []action.Release{action.ByOwnerDeletion, action.ByNamespace, action.BySetAside}
		if kind == ofStatefulSetDrain {
			always = append(always, action.ByStatefulSet)
		}
		for _, why := range append(always, whys...) {
			m.Released(kind, action.ReleaseClaim{Why: why}, map[string]time.Duration{"Releasing": time.Second})
		}
		m.Drained(kind, plan.ReceiptOf(&contract.Receipt{Version: 1, Outcomes: contract.Outcomes{Added: 1}}), time.Second, map[string]time.Duration{"Adding": time.Second})
	}
	drains := []claims.DrainState{{Claim: claims.Claim{Name: "a"}, Job: &claims.Job{}}}
	m.StatusWritten(&cachev1alpha1.MemcachedStatus{}, &cachev1alpha1.MemcachedStatus{Drains: []cachev1alpha1.DrainStatus{{Claim: "a", Phase: cachev1alpha1.DrainFailed}}},
		&plan.Plan{Volumes: claims.Volumes{Drains: drains}})
	m.DrainStatusWritten(&cachev1alpha1.StatefulSetDrainStatus{},
		&cachev1alpha1.StatefulSetDrainStatus{Drains: []cachev1alpha1.MemberDrain{{Claims: []string{"a"}, Phase: cachev1alpha1.DrainFailed}}}, drains)
	after, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range after {
		if was := before[f.GetName()]; len(was.GetMetric()) != len(f.GetMetric()) {
			t.Errorf("%s had %v and has %v", f.GetName(), series(was), series(f))
		}
	}
}

func TestAFailedDrainIsCountedWhenStatusFirstTellsOfIt(t *testing.T) {
	failedDrain := []cachev1alpha1.DrainStatus{{Claim: "a", Phase: cachev1alpha1.DrainFailed}}
	p := &plan.Plan{Volumes: claims.Volumes{Drains: []claims.DrainState{{
		Claim: claims.Claim{Name: "a"},
		Job:   &claims.Job{Receipt: plan.ReceiptOf(&contract.Receipt{Version: 1, Outcomes: contract.Outcomes{Added: 9, Rejected: 2, Failed: 1}})},
	}}}}
	noJob := &plan.Plan{Volumes: claims.Volumes{Drains: []claims.DrainState{{Claim: claims.Claim{Name: "a"}}}}}
	for name, test := range map[string]struct {
		before, after []cachev1alpha1.DrainStatus
		plan          *plan.Plan
		want          map[string]float64
	}{
		"fails":           {nil, failedDrain, p, map[string]float64{"drains_total Memcached Failed": 1, "drain_items_total rejected": 2, "drain_items_total failed": 1}},
		"failed before":   {failedDrain, failedDrain, p, map[string]float64{}},
		"retried":         {failedDrain, []cachev1alpha1.DrainStatus{{Claim: "a", Phase: cachev1alpha1.DrainAdding}}, p, map[string]float64{}},
		"never had a Job": {nil, failedDrain, noJob, map[string]float64{}},
	} {
		t.Run(name, func(t *testing.T) {
			m, registry, _ := gathered(t)
			m.StatusWritten(&cachev1alpha1.MemcachedStatus{Drains: test.before}, &cachev1alpha1.MemcachedStatus{Drains: test.after}, test.plan)
			if diff := cmp.Diff(test.want, counted(t, registry)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// counted has the counters that are not 0, and the histograms' numbers of observations, by name and the
// values of their labels, in the order of the labels' names.
func counted(t *testing.T, registry prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		if f.GetType() == dto.MetricType_GAUGE {
			continue
		}
		for key, value := range series(f) {
			if value > 0 {
				got[strings.TrimSpace(strings.TrimPrefix(f.GetName(), metricsNamespace+"_")+" "+key)] = value
			}
		}
	}
	return got
}

// TestDrainsOfAStatefulSetDrainAreCountedOnceEach, however many claims are drained together.
func TestDrainsOfAStatefulSetDrainAreCountedOnceEach(t *testing.T) {
	released := func(m *Metrics, why action.Release) { // as claims does: the one that leads is the last one
		phases := map[string]time.Duration{"Releasing": time.Second}
		m.Released(ofStatefulSetDrain, action.ReleaseClaim{Claim: action.ClaimRef{UID: "b", Unit: "a"}, Why: why}, phases)
		m.Released(ofStatefulSetDrain, action.ReleaseClaim{Claim: action.ClaimRef{UID: "a"}, Why: why}, phases)
	}
	row := cachev1alpha1.MemberDrain{Claims: []string{"data-queue-2", "logs-queue-2"}, Phase: cachev1alpha1.DrainFailed}
	for name, test := range map[string]struct {
		do   func(*Metrics)
		want map[string]float64
	}{
		"drained": {func(m *Metrics) {
			m.Drained(ofStatefulSetDrain, &action.Receipt{Text: `{"version":1,"added":7}`}, time.Minute, map[string]time.Duration{"Adding": time.Second})
			released(m, action.ByReceipt)
		}, map[string]float64{
			"drains_total StatefulSetDrain Drained": 1, "claims_released_total StatefulSetDrain Drained": 2, "drain_duration_seconds StatefulSetDrain": 1,
			"drain_phase_duration_seconds StatefulSetDrain Adding": 1, "drain_phase_duration_seconds StatefulSetDrain Releasing": 1,
		}},
		"skipped": {func(m *Metrics) { released(m, action.BySkip) }, map[string]float64{"drains_total StatefulSetDrain Skipped": 1, "claims_released_total StatefulSetDrain Skipped": 2}},
		"failed": {func(m *Metrics) {
			before, after := &cachev1alpha1.StatefulSetDrainStatus{}, &cachev1alpha1.StatefulSetDrainStatus{Drains: []cachev1alpha1.MemberDrain{row}}
			drains := []claims.DrainState{{Claim: claims.Claim{Name: "data-queue-2"}, Job: &claims.Job{}}}
			m.DrainStatusWritten(before, after, drains)
			m.DrainStatusWritten(after, after, drains)
		}, map[string]float64{"drains_total StatefulSetDrain Failed": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			m, registry, _ := gathered(t)
			test.do(m)
			if diff := cmp.Diff(test.want, counted(t, registry)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// A second failed attempt of a move is counted again; starting an attempt is not counted.
func TestEachFailureOfAMoveIsCountedOnce(t *testing.T) {
	m, err := NewMetrics(prometheus.NewRegistry(), nil)
	if err != nil {
		t.Fatal(err)
	}
	degraded := func(message string) *cachev1alpha1.MemcachedStatus {
		return &cachev1alpha1.MemcachedStatus{Conditions: []metav1.Condition{{
			Type: cachev1alpha1.ConditionDegraded, Status: metav1.ConditionTrue, Reason: cachev1alpha1.ReasonMoveFailed, Message: message,
		}}}
	}
	healthy := &cachev1alpha1.MemcachedStatus{}
	failed := &plan.Plan{Moves: []plan.MoveState{{Phase: plan.MoveFailed}}}
	runs := &plan.Plan{Moves: []plan.MoveState{{Phase: plan.MoveRuns}}}
	for _, step := range []struct {
		before, after *cachev1alpha1.MemcachedStatus
		plan          *plan.Plan
		counted       float64
	}{
		{healthy, degraded("attempt 1"), failed, 1},
		{degraded("attempt 1"), degraded("attempt 1"), failed, 1},
		{degraded("attempt 1"), degraded("it is tried again"), runs, 1},
		{degraded("it is tried again"), degraded("attempt 2"), failed, 2},
		{degraded("attempt 2"), healthy, &plan.Plan{}, 2},
	} {
		m.StatusWritten(step.before, step.after, step.plan)
		if n := testutil.ToFloat64(m.moves.WithLabelValues(resultFailed)); n != step.counted {
			t.Errorf("%v is counted, want %v", n, step.counted)
		}
	}
}
