package controllers

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
)

// collector reports the Memcacheds and StatefulSetDrains that exist, as the cache has them at each scrape, so
// a deleted object has no series. A replica that is not the leader has no objects in its cache, and reports nothing.
type collector struct {
	// reader has the Memcacheds and their claims, and the StatefulSetDrains. drained has the claims of
	// StatefulSetDrains; nil if no controller looks after them.
	reader, drained client.Reader
	leftAt          func(*corev1.PersistentVolumeClaim) time.Time
	now             func() time.Time
}

func existingDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(metricsNamespace, "", name), help,
		append([]string{"namespace", "kind", "name"}, labels...), nil)
}

var (
	membersWanted = existingDesc("members_wanted", "Members that the spec wants.")
	membersReady  = existingDesc("members_ready", "Members that are ready.")
	conditionDesc = existingDesc("condition", "Conditions of the status with their reason: 1 for true, 0 for false.", "type", "reason")
	adviceDesc    = existingDesc("advice", "Advice of the status by reason, always 1; a cluster without advice has no series.", "reason")
	drainsOpen    = existingDesc("drains_open", "Claims to drain and delete, by phase; a phase without claims has no series.", "phase")
	drainProgress = existingDesc("drain_progress_ratio", "Share of the running drains that is done, from 0 to 1: of the bytes, or of what the drainers count.")
	membersToMove = existingDesc("members_to_move", "Members that may have items which clients look for elsewhere.")
	lateRequests  = existingDesc("late_requests_ratio", "Share of a member's requests that clients still make by an earlier list while items move, from 0 to 1; the largest of all members.")
	claimsHeld    = existingDesc("claims_held", "Claims that the finalizer keeps although their member is leaving or departed, or they were deleted.")
	warmings      = existingDesc("warmings", "What spec.warmFrom has come to, by phase, always 1; a cluster without it has no series.", "phase")
	warmItems     = existingDesc("warming_items", "Items of the Jobs of the warming that have ended, by outcome.", "outcome")
	warmDone      = existingDesc("warming_items_done", "Items of the warming's present Job that have an outcome; no series if none is at work.")
	warmProgress  = existingDesc("warming_progress_ratio", "Share of the items that the warming's present Job expects that is done, from 0 to 1.")
	warmAge       = existingDesc("warming_last_job_age_seconds", "Time since the last Job of the warming has ended; no series before.")
	oldestHeld    = existingDesc("oldest_held_claim_age_seconds", "Time since the first held claim was deleted, or its member left; no series if no claim is held.")
)

// Describe implements prometheus.Collector.
func (c *collector) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{membersWanted, membersReady, conditionDesc, adviceDesc, drainsOpen, drainProgress, membersToMove, lateRequests, claimsHeld, oldestHeld,
		warmings, warmItems, warmDone, warmProgress, warmAge} {
		descs <- d
	}
}

// Collect implements prometheus.Collector, and reports nothing until the caches are filled.
func (c *collector) Collect(metrics chan<- prometheus.Metric) {
	const patience = 2 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	// The objects are only read here, and copying all of them at each scrape is expensive.
	has := func(reader client.Reader, list client.ObjectList) bool {
		return reader.List(ctx, list, client.UnsafeDisableDeepCopy) == nil
	}
	var clusters cachev1alpha1.MemcachedList
	var drains cachev1alpha1.StatefulSetDrainList
	var claims corev1.PersistentVolumeClaimList
	if has(c.reader, &clusters) && has(c.reader, &claims) {
		c.collect(metrics, ofMemcached, memcacheds(clusters.Items), c.held(claims.Items, clusterOfClaim))
	}
	if c.drained != nil && has(c.reader, &drains) && has(c.drained, &claims) {
		c.collect(metrics, ofStatefulSetDrain, statefulSetDrains(drains.Items), c.held(claims.Items, drainOfClaim))
	}
}

// existing has the reported numbers of a Memcached or a StatefulSetDrain.
type existing struct {
	key           client.ObjectKey
	wanted, ready int32
	conditions    []metav1.Condition
	advice        []cachev1alpha1.Advice
	// drains are the open drains that status lists; unlisted is how many more status counts.
	drains   []openDrain
	unlisted int
	// storage: the cluster has claims. moving is nil if no items are ever moved.
	storage bool
	moving  *int32
	// latePercent is that of the status.
	latePercent int32
	// warm is that of the status; nil if the spec has no warmFrom.
	warm *cachev1alpha1.WarmStatus
}

type openDrain struct {
	phase       cachev1alpha1.DrainPhase
	claims      int
	done, total int64
}

func memcacheds(all []cachev1alpha1.Memcached) (out []existing) {
	for i := range all {
		m := &all[i]
		e := existing{
			key: client.ObjectKeyFromObject(m), wanted: ptr.Deref(m.Spec.Size, 1), ready: m.Status.ReadySize,
			conditions: m.Status.Conditions, advice: m.Status.Advice, unlisted: int(m.Status.Draining) - len(m.Status.Drains),
			storage: m.Spec.Storage != nil, latePercent: m.Status.LatePercent, warm: m.Status.Warm,
		}
		if e.storage {
			e.moving = &m.Status.Moving
		}
		for _, d := range m.Status.Drains {
			e.drains = append(e.drains, openDrain{d.Phase, 1, d.BytesDone, d.BytesTotal})
		}
		out = append(out, e)
	}
	return out
}

func statefulSetDrains(all []cachev1alpha1.StatefulSetDrain) (out []existing) {
	for i := range all {
		d := &all[i]
		e := existing{
			key: client.ObjectKeyFromObject(d), wanted: d.Status.Replicas, ready: d.Status.ReadyReplicas,
			conditions: d.Status.Conditions, unlisted: int(d.Status.Draining), storage: true,
		}
		for _, is := range d.Status.Drains {
			e.drains = append(e.drains, openDrain{is.Phase, len(is.Claims), is.Done, is.Total})
			if is.Phase != cachev1alpha1.DrainLeaving { // status.draining doesn't count members that still run
				e.unlisted--
			}
		}
		out = append(out, e)
	}
	return out
}

// collect reports the existing objects of one kind, and their claims: since when each has been waiting for
// its release.
func (c *collector) collect(metrics chan<- prometheus.Metric, kind ownerKind, all []existing, held map[client.ObjectKey][]time.Time) {
	for i := range all {
		e := &all[i]
		send := sender(metrics, kind, e.key)
		e.report(send)
		e.reportWarming(send, c.now())
		if e.storage && held[e.key] == nil {
			send(claimsHeld, 0)
		}
	}
	now := c.now()
	for key, since := range held { // also the claims of owners that are gone
		send := sender(metrics, kind, key)
		send(claimsHeld, float64(len(since)))
		oldest := slices.MinFunc(since, time.Time.Compare)
		send(oldestHeld, max(0, now.Sub(oldest).Seconds()))
	}
}

// send reports one value. The given labels follow namespace, kind and name.
type send func(d *prometheus.Desc, value float64, labels ...string)

func sender(metrics chan<- prometheus.Metric, kind ownerKind, key client.ObjectKey) send {
	return func(d *prometheus.Desc, value float64, labels ...string) {
		labels = append([]string{key.Namespace, string(kind), key.Name}, labels...)
		metrics <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
}

func (e *existing) report(send send) {
	send(membersWanted, float64(e.wanted))
	send(membersReady, float64(e.ready))
	for _, condition := range e.conditions {
		value := 0.0
		if condition.Status == metav1.ConditionTrue {
			value = 1
		}
		send(conditionDesc, value, condition.Type, condition.Reason)
	}
	for _, a := range e.advice {
		send(adviceDesc, 1, a.Reason)
	}
	open := map[cachev1alpha1.DrainPhase]int{}
	var done, total int64
	for _, d := range e.drains {
		open[d.phase] += d.claims
		if d.phase == cachev1alpha1.DrainAdding {
			done, total = done+d.done, total+d.total
		}
	}
	if e.unlisted > 0 {
		open[unlisted] = e.unlisted
	}
	for phase, n := range open {
		send(drainsOpen, float64(n), string(phase))
	}
	if total > 0 {
		send(drainProgress, float64(done)/float64(total))
	}
	if e.moving != nil {
		send(membersToMove, float64(*e.moving))
		send(lateRequests, float64(e.latePercent)/100)
	}
}

func (e *existing) reportWarming(send send, now time.Time) {
	w := e.warm
	if w == nil {
		return
	}
	send(warmings, 1, string(w.Phase))
	if w.Phase == cachev1alpha1.WarmCopying {
		send(warmDone, float64(w.ItemsDone))
		if w.ItemsTotal > 0 {
			send(warmProgress, min(1, float64(w.ItemsDone)/float64(w.ItemsTotal)))
		}
	}
	if last := w.Last; last != nil {
		for outcome, n := range map[string]int64{
			"added": last.Added, "already_present": last.AlreadyPresent, "expired": last.Expired, "invalidated": last.Invalidated, "rejected": last.Rejected,
		} {
			send(warmItems, float64(n), outcome)
		}
		send(warmAge, max(0, now.Sub(last.EndedAt.Time).Seconds()))
	}
}

// unlisted is the phase of drains that status counts, but doesn't list.
const unlisted = "Unlisted"

// clusterOfClaim returns the name of a claim's Memcached, which is a part of the claim's name.
func clusterOfClaim(claim *corev1.PersistentVolumeClaim) (name string, is bool) {
	return build.ClaimCluster(claim.Name)
}

// drainOfClaim returns the name of a claim's StatefulSetDrain, which is in the claim's label.
func drainOfClaim(claim *corev1.PersistentVolumeClaim) (name string, is bool) {
	name, is = claim.Labels[cachev1alpha1.LabelStatefulSetDrain]
	return name, is
}

// held returns since when each claim with the finalizer has been waiting for its release, by the claims'
// owners.
func (c *collector) held(claims []corev1.PersistentVolumeClaim, of func(*corev1.PersistentVolumeClaim) (string, bool)) map[client.ObjectKey][]time.Time {
	held := map[client.ObjectKey][]time.Time{}
	for i := range claims {
		claim := &claims[i]
		since := c.leftAt(claim)
		if since.IsZero() && claim.DeletionTimestamp != nil {
			since = claim.DeletionTimestamp.Time
		}
		if since.IsZero() || !slices.Contains(claim.Finalizers, cachev1alpha1.ClaimFinalizer) {
			continue
		}
		name, ok := of(claim)
		if !ok {
			continue
		}
		key := client.ObjectKey{Namespace: claim.Namespace, Name: name}
		held[key] = append(held[key], since)
	}
	return held
}
