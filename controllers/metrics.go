package controllers

import (
	"errors"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/controllers/internal/status"
	"example.com/memcached-operator/controllers/internal/stsdrain"
	"example.com/memcached-operator/controllers/internal/stsdrain/apply"
	"example.com/memcached-operator/controllers/internal/stsdrain/observe"
	"example.com/memcached-operator/drainer/contract"
)

// metricsNamespace begins the name of every metric.
const metricsNamespace = "memcached_operator"

// ownerKind is the kind of the objects that drains and claims belong to: the label kind.
type ownerKind string

// The kinds.
const (
	ofMemcached        ownerKind = "Memcached"
	ofStatefulSetDrain ownerKind = "StatefulSetDrain"
)

// resultFailed is a drain or a move that ended without a receipt that adds up. The
// other results of drains are those of plan.Release.
const resultFailed = "Failed"

// The results of moves: a receipt was recorded, or a person skipped the move.
const (
	resultMoved   = "Moved"
	resultSkipped = "Skipped"
)

// The phases of a drain whose durations are measured: Waiting, Starting and
// Releasing as in status.drains; Connecting and Adding as in a Memcached's receipt. Another drainer is
// Adding as long as it runs.
var measuredPhases = map[ownerKind][]string{
	ofMemcached: {
		string(cachev1alpha1.DrainWaiting), string(cachev1alpha1.DrainStarting), string(contract.PhaseConnecting), string(contract.PhaseAdding),
		string(cachev1alpha1.DrainReleasing),
	},
	ofStatefulSetDrain: {
		string(cachev1alpha1.DrainWaiting), string(cachev1alpha1.DrainStarting), string(cachev1alpha1.DrainAdding), string(cachev1alpha1.DrainReleasing),
	},
}

// Metrics counts events of drains, moves and roll-outs, each one once, after the write that made it
// so. A nil Metrics counts nothing.
type Metrics struct {
	drains        *prometheus.CounterVec   // by kind and result
	releases      *prometheus.CounterVec   // by kind and reason
	items         *prometheus.CounterVec   // by outcome
	bytes         prometheus.Counter       // added
	duration      *prometheus.HistogramVec // seconds by kind
	phaseDuration *prometheus.HistogramVec // seconds by kind and phase

	moves      *prometheus.CounterVec // by result
	movedItems *prometheus.CounterVec // by outcome

	rolloutsUnderWay, rolloutsWaiting prometheus.Gauge

	existing *collector
}

// durationBuckets, in seconds, range from a drain of a few items to the default of
// spec.drain.activeDeadline.
var durationBuckets = []float64{0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600}

// NewMetrics registers the operator's metrics (docs/metrics.md). The objects that exist are read at each scrape
// from the reader, the manager's cache. NewMetrics fails if one of the metrics is registered already.
func NewMetrics(registry prometheus.Registerer, reader client.Reader) (*Metrics, error) {
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: metricsNamespace, Name: name, Help: help}, labels)
	}
	histogram := func(name, help string) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{Namespace: metricsNamespace, Name: name, Help: help, Buckets: durationBuckets}
	}
	m := &Metrics{
		drains:   counters("drains_total", "Drains that ended, by result.", "kind", "result"),
		releases: counters("claims_released_total", "Claims that were released, by the reason that allowed it.", "kind", "reason"),
		items:    counters("drain_items_total", "Items on the volumes that were drained, by outcome.", "outcome"),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{Namespace: metricsNamespace, Name: "drain_added_bytes_total",
			Help: "Bytes of keys and values of the items that drains added to the survivors."}),
		duration: prometheus.NewHistogramVec(histogram("drain_duration_seconds",
			"Time from a member's leaving until the receipt of its drain is recorded."), []string{"kind"}),
		phaseDuration: prometheus.NewHistogramVec(histogram("drain_phase_duration_seconds",
			"Time that a drain that succeeded spent in each phase."), []string{"kind", "phase"}),
		moves:      counters("moves_total", "Moves that ended, by result.", "result"),
		movedItems: counters("move_items_total", "Items that members had for others, by outcome.", "outcome"),
		existing:   &collector{reader: reader, leftAt: read.MarkedAt, now: time.Now},
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: metricsNamespace, Name: name, Help: help})
	}
	m.rolloutsUnderWay = gauge("rollouts_under_way", "Clusters whose members an upgrade of the operator is replacing.")
	m.rolloutsWaiting = gauge("rollouts_waiting", "Clusters whose members wait for their turn to be replaced.")
	m.beginAtZero()
	return m, errors.Join(
		registry.Register(m.drains), registry.Register(m.releases), registry.Register(m.items), registry.Register(m.bytes),
		registry.Register(m.duration), registry.Register(m.phaseDuration),
		registry.Register(m.moves), registry.Register(m.movedItems),
		registry.Register(m.rolloutsUnderWay), registry.Register(m.rolloutsWaiting),
		registry.Register(m.existing))
}

// WithClaimsOf makes the metrics report StatefulSetDrains, too; drains reads their claims. A manager calls
// WithClaimsOf before the first scrape.
func (m *Metrics) WithClaimsOf(drains client.Reader) {
	if m != nil {
		m.existing.drained = drains
	}
}

// Rollouts sets how many roll-outs of an upgrade are under way, and how many clusters
// wait for theirs.
func (m *Metrics) Rollouts(underWay, waiting int) {
	if m != nil {
		m.rolloutsUnderWay.Set(float64(underWay))
		m.rolloutsWaiting.Set(float64(waiting))
	}
}

// beginAtZero creates every series, because a rate shows the first event only if there was a sample
// before it.
func (m *Metrics) beginAtZero() {
	for kind, phases := range measuredPhases {
		for _, why := range append([]action.Release{resultFailed}, endingReleases[kind]...) {
			m.drains.WithLabelValues(string(kind), string(why))
		}
		for _, why := range append([]action.Release{action.ByOwnerDeletion, action.ByNamespace, action.BySetAside}, endingReleases[kind]...) {
			m.releases.WithLabelValues(string(kind), string(why))
		}
		for _, phase := range phases {
			m.phaseDuration.WithLabelValues(string(kind), phase)
		}
		m.duration.WithLabelValues(string(kind))
	}
	m.releases.WithLabelValues(string(ofStatefulSetDrain), string(action.ByStatefulSet))
	addItems(m.items, contract.Outcomes{})
	addItems(m.movedItems, contract.Outcomes{})
	for _, result := range []string{resultMoved, resultSkipped, resultFailed} {
		m.moves.WithLabelValues(result)
	}
}

// endingReleases are the reasons for a release that end a drain. The other reasons
// release any claim, whether its member has left or not.
var endingReleases = map[ownerKind][]action.Release{
	ofMemcached: {
		action.ByReceipt, action.BySkip, action.ByPolicyDelete, action.ByPolicyRetain, action.ByUnrecoverable, action.NeverBound,
	},
	ofStatefulSetDrain: {action.ByReceipt, action.BySkip, action.ByPolicyDelete, action.ByPolicyRetain, action.NeverBound},
}

func addItems(to *prometheus.CounterVec, o contract.Outcomes) {
	for outcome, n := range map[string]int64{
		"added": o.Added, "already_present": o.AlreadyPresent, "expired": o.Expired, "invalidated": o.Invalidated,
		"no_text_form": o.NoTextForm, "rejected": o.Rejected, "failed": o.Failed,
	} {
		to.WithLabelValues(outcome).Add(float64(max(0, n)))
	}
}

// Drained counts a drain whose receipt was recorded. total is the time since its member left; 0 if
// it is not known. phases has the durations that are known.
func (m *Metrics) Drained(kind ownerKind, drained *action.Receipt, total time.Duration, phases map[string]time.Duration) {
	if m == nil {
		return
	}
	m.drains.WithLabelValues(string(kind), string(action.ByReceipt)).Inc()
	if kind == ofMemcached {
		r := plan.ReceiptNumbers(drained)
		addItems(m.items, r.Outcomes)
		m.bytes.Add(float64(max(0, r.Bytes)))
	}
	if total > 0 {
		m.duration.WithLabelValues(string(kind)).Observe(total.Seconds())
	}
	m.observePhases(kind, phases)
}

func (m *Metrics) observePhases(kind ownerKind, phases map[string]time.Duration) {
	for phase, d := range phases {
		m.phaseDuration.WithLabelValues(string(kind), phase).Observe(max(0, d.Seconds()))
	}
}

// Released counts a claim whose finalizer was removed, and the phases that ended with it. The drain
// of a claim that was released by a receipt was counted before. If claims are drained together,
// the leading one counts as the drain.
func (m *Metrics) Released(kind ownerKind, a action.ReleaseClaim, phases map[string]time.Duration) {
	if m == nil {
		return
	}
	m.releases.WithLabelValues(string(kind), string(a.Why)).Inc()
	switch leads := a.Claim.Unit == "" || a.Claim.Unit == a.Claim.UID; {
	case !leads || !slices.Contains(endingReleases[kind], a.Why):
	case a.Why == action.ByReceipt:
		m.observePhases(kind, phases)
	default:
		m.drains.WithLabelValues(string(kind), string(a.Why)).Inc()
	}
}

// Moved counts a member whose items were recorded as moved. The receipt is nil if a person skipped
// the move.
func (m *Metrics) Moved(r *action.Receipt) {
	switch {
	case m == nil:
	case r == nil:
		m.moves.WithLabelValues(resultSkipped).Inc()
	default:
		m.moves.WithLabelValues(resultMoved).Inc()
		addItems(m.movedItems, plan.ReceiptNumbers(r).Outcomes)
	}
}

// StatusWritten counts the drains and moves that failed between the two statuses, after the second
// one was written. p is the plan that the status was computed from.
func (m *Metrics) StatusWritten(before, after *cachev1alpha1.MemcachedStatus, p *plan.Plan) {
	if m == nil {
		return
	}
	for _, told := range claims.NewlyFailed(before.Drains, after.Drains, status.RowOf) {
		if failed := m.failed(ofMemcached, told.Claim, p.Drains); failed != nil {
			r := plan.ReceiptNumbers(failed.Receipt)
			addItems(m.items, contract.Outcomes{Rejected: r.Rejected, Failed: r.Failed})
		}
	}
	m.moveFailed(before, after, p)
}

// DrainStatusWritten counts the drains of a StatefulSetDrain that failed between the two statuses.
func (m *Metrics) DrainStatusWritten(before, after *cachev1alpha1.StatefulSetDrainStatus, drains []claims.DrainState) {
	if m == nil {
		return
	}
	for _, told := range claims.NewlyFailed(before.Drains, after.Drains, stsdrain.RowOf) {
		m.failed(ofStatefulSetDrain, stsdrain.RowOf(&told).Claim, drains)
	}
}

// failed counts the drain of the claim, which has failed, and returns its Job. Without a Job no drain has
// begun, and nothing is counted.
func (m *Metrics) failed(kind ownerKind, claim string, drains []claims.DrainState) *claims.Job {
	for i := range drains {
		if d := &drains[i]; d.Claim.Name == claim && d.Job != nil {
			m.drains.WithLabelValues(string(kind), resultFailed).Inc()
			return d.Job
		}
	}
	return nil
}

// moveFailed counts a move that failed between the two statuses. The message names the attempt, so
// another message is another failure.
func (m *Metrics) moveFailed(before, after *cachev1alpha1.MemcachedStatus, p *plan.Plan) {
	failure := func(s *cachev1alpha1.MemcachedStatus) string {
		c := meta.FindStatusCondition(s.Conditions, cachev1alpha1.ConditionDegraded)
		if c == nil || c.Status != metav1.ConditionTrue || c.Reason != cachev1alpha1.ReasonMoveFailed {
			return ""
		}
		return c.Message
	}
	has := slices.ContainsFunc(p.Moves, func(s plan.MoveState) bool { return s.Phase == plan.MoveFailed })
	if now := failure(after); has && now != "" && now != failure(before) {
		m.moves.WithLabelValues(resultFailed).Inc()
	}
}

// count counts what this reconcile has done.
func (r *MemcachedReconciler) count(o *outcome) {
	now := r.Clock.Now()
	for _, a := range o.done.Recorded {
		total, phases := o.DrainTimes(a.Claim, a.Receipt, now)
		r.Metrics.Drained(ofMemcached, a.Receipt, total, phases)
	}
	for _, a := range o.done.Released {
		r.Metrics.Released(ofMemcached, a, o.ReleaseTime(a.Claim, now))
	}
	for _, receipt := range o.done.Moved {
		r.Metrics.Moved(receipt)
	}
}

// count counts what this reconcile has done.
func (r *StatefulSetDrainReconciler) count(s *observe.State, done *apply.Done) {
	now := r.Clock.Now()
	for _, a := range done.Recorded {
		total, phases := s.DrainTimes(a.Claim, now)
		r.Metrics.Drained(ofStatefulSetDrain, a.Receipt, total, phases)
	}
	for _, a := range done.Released {
		r.Metrics.Released(ofStatefulSetDrain, a, s.ReleaseTime(a.Claim, now))
	}
}
