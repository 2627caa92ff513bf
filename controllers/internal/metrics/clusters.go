package metrics

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

// clusterCollector reports the clusters that exist. It reads them from the cache at each scrape, so
// a deleted cluster has no series. A replica that is not the leader has no Memcached in its cache,
// and reports none.
type clusterCollector struct {
	reader client.Reader
	leftAt func(*corev1.PersistentVolumeClaim) time.Time
	now    func() time.Time
}

func clusterDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help,
		append([]string{"namespace", "memcached"}, labels...), nil)
}

var (
	membersWanted = clusterDesc("members_wanted", "Members that the spec wants.")
	membersReady  = clusterDesc("members_ready", "Members that are ready.")
	conditionDesc = clusterDesc("condition", "Conditions of the status with their reason: 1 for true, 0 for false.", "type", "reason")
	adviceDesc    = clusterDesc("advice", "Advice of the status by reason, always 1; a cluster without any has no series.", "reason")
	drainsOpen    = clusterDesc("drains_open", "Claims to drain and delete, by phase; a phase without any has no series.", "phase")
	drainProgress = clusterDesc("drain_progress_ratio", "Share of the volumes being drained that is done, by bytes, from 0 to 1.")
	membersToMove = clusterDesc("members_to_move", "Members that may have items which clients look for elsewhere.")
	claimsHeld    = clusterDesc("claims_held", "Claims that the finalizer keeps although their member is leaving or departed, or they were deleted.")
	oldestHeld    = clusterDesc("oldest_held_claim_age_seconds", "Time since the first of these claims' members left, or the first was deleted; no series if there is none.")
)

// Describe implements prometheus.Collector.
func (c *clusterCollector) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{membersWanted, membersReady, conditionDesc, adviceDesc, drainsOpen, drainProgress, membersToMove, claimsHeld, oldestHeld} {
		descs <- d
	}
}

// Collect implements prometheus.Collector.
func (c *clusterCollector) Collect(metrics chan<- prometheus.Metric) {
	const patience = 2 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var clusters cachev1alpha1.MemcachedList
	var claims corev1.PersistentVolumeClaimList
	// The objects are only read here, and copying all of them at each scrape is expensive.
	if c.reader.List(ctx, &clusters, client.UnsafeDisableDeepCopy) != nil ||
		c.reader.List(ctx, &claims, client.UnsafeDisableDeepCopy) != nil {
		return // the caches are not filled yet
	}
	c.collect(metrics, clusters.Items, claims.Items)
}

func (c *clusterCollector) collect(
	metrics chan<- prometheus.Metric, clusters []cachev1alpha1.Memcached, claims []corev1.PersistentVolumeClaim,
) {
	kept, now := c.unreleasedClaims(claims), c.now()
	for i := range clusters {
		cluster := &clusters[i]
		key := client.ObjectKeyFromObject(cluster)
		send := sender(metrics, key)
		sendCluster(send, cluster)
		if cluster.Spec.Storage != nil {
			send(membersToMove, float64(cluster.Status.Moving))
		}
		if cluster.Spec.Storage != nil && kept[key] == nil {
			send(claimsHeld, 0)
		}
	}
	for key, since := range kept { // kept also has claims of Memcacheds that are gone
		send := sender(metrics, key)
		send(claimsHeld, float64(len(since)))
		oldest := slices.MinFunc(since, time.Time.Compare)
		send(oldestHeld, max(0, now.Sub(oldest).Seconds()))
	}
}

// send reports one value. The given labels follow namespace and name.
type send func(d *prometheus.Desc, value float64, labels ...string)

func sender(metrics chan<- prometheus.Metric, key client.ObjectKey) send {
	return func(d *prometheus.Desc, value float64, labels ...string) {
		labels = append([]string{key.Namespace, key.Name}, labels...)
		metrics <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
}

func sendCluster(send send, cluster *cachev1alpha1.Memcached) {
	send(membersWanted, float64(ptr.Deref(cluster.Spec.Size, 1)))
	send(membersReady, float64(cluster.Status.ReadySize))
	for _, condition := range cluster.Status.Conditions {
		value := 0.0
		if condition.Status == metav1.ConditionTrue {
			value = 1
		}
		send(conditionDesc, value, condition.Type, condition.Reason)
	}
	for _, a := range cluster.Status.Advice {
		send(adviceDesc, 1, a.Reason)
	}
	open := map[cachev1alpha1.DrainPhase]int{}
	var done, total int64
	for _, d := range cluster.Status.Drains {
		open[d.Phase]++
		if d.Phase == cachev1alpha1.DrainAdding {
			done, total = done+d.BytesDone, total+d.BytesTotal
		}
	}
	if n := int(cluster.Status.Draining) - len(cluster.Status.Drains); n > 0 {
		open[unlisted] = n
	}
	for phase, n := range open {
		send(drainsOpen, float64(n), string(phase))
	}
	if total > 0 {
		send(drainProgress, float64(done)/float64(total))
	}
}

// unlisted is the phase of drains that status counts, but doesn't list.
const unlisted = "Unlisted"

// unreleasedClaims returns, by cluster, since when each claim with a finalizer has been waiting for
// its release.
func (c *clusterCollector) unreleasedClaims(claims []corev1.PersistentVolumeClaim) map[client.ObjectKey][]time.Time {
	kept := map[client.ObjectKey][]time.Time{}
	for i := range claims {
		claim := &claims[i]
		since := c.leftAt(claim)
		if since.IsZero() && claim.DeletionTimestamp != nil {
			since = claim.DeletionTimestamp.Time
		}
		if since.IsZero() || !slices.Contains(claim.Finalizers, cachev1alpha1.ClaimFinalizer) {
			continue
		}
		name, ok := build.ClaimCluster(claim.Name)
		if !ok {
			continue
		}
		key := client.ObjectKey{Namespace: claim.Namespace, Name: name}
		kept[key] = append(kept[key], since)
	}
	return kept
}
