// Package status computes a cluster's status from the observed state and the plan. The package is pure, and
// no other one computes a status.
package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"example.com/memcached-operator/controllers/internal/claims"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/controllers/internal/ring"
	"example.com/memcached-operator/drainer/contract"
)

// Input is everything that a status depends on.
type Input struct {
	Cluster     *cachev1alpha1.Memcached
	StatefulSet *appsv1.StatefulSet
	Deployment  *appsv1.Deployment
	// Pods are the members' pods, in any order.
	Pods []corev1.Pod
	// Routers is the Deployment of spec.router, and RouterPods its pods; nil if there is none.
	Routers    *appsv1.Deployment
	RouterPods []corev1.Pod
	// RoutersBehind are the routers that have not acknowledged the table of the rings, as far as is
	// known.
	RoutersBehind []RouterBehind
	// Drainers are the pods of drains and moves that have not ended, in any order.
	Drainers []corev1.Pod
	// Kept are deleted objects of the cluster that another owner's finalizer keeps.
	Kept []Kept
	// Plan is the plan of a cluster with storage.
	Plan plan.Plan
	// Room is for a scale-down that is about to begin; nil if none is.
	Room *plan.Room
	// Servers are the servers on the clients' list, and Record is the record of its rings.
	Servers []string
	// Listed are the members that the list in DNS has; empty if they are not known. MemberServices
	// are the Services of single members, by their ordinals.
	Listed         []build.Endpoint
	MemberServices map[int32]corev1.Service
	Ring           ring.Record
	// Warmed is the record of the copy from the source of spec.warmFrom, WarmAttempts how many attempts have
	// failed in a row.
	Warmed       action.WarmRecord
	WarmAttempts int32
	// Monitoring is the state of the ServiceMonitor.
	Monitoring Monitoring
	// Binding is the state of the Secret of spec.binding; nil if it was not read.
	Binding *Binding
	// GrowthRefused is why volumes may not grow; empty if they may.
	GrowthRefused string
	// Marked has the claims that this reconcile marked as leaving, and when, because the plan
	// doesn't have the time.
	Marked map[types.UID]time.Time
	// Progress is that of running drains and moves, by the UID of the claim.
	Progress map[types.UID]contract.Progress
	// JobStarted has the creation time of the drains' Jobs, by the UID of the claim.
	JobStarted map[types.UID]metav1.Time
	// Waits says why the drainer of an active Job is not at work, by the UID of the
	// claim.
	Waits map[types.UID]claims.Wait
	// Err is the error of this reconcile; nil if it succeeded.
	Err error
	// Refused is a step that was refused, and since when; nil if none was.
	Refused *Refusal
	// NotCreated is a pod that Kubernetes can't create; nil if there is none.
	NotCreated *NotCreated
	// MembersWritten: this reconcile wrote the StatefulSet or the Deployment, so their observed
	// state is older.
	MembersWritten bool
	// RollOutWaits says what the roll-out of an upgrade waits for; empty if it doesn't wait.
	RollOutWaits string
	// SizeChanged says how admission has changed the number of members or routers; empty if it has not.
	SizeChanged string
	// Certificates are those that pods serve with, as far as is known. CertificatesSilent: pods
	// were asked, and none has answered.
	Certificates       []Certificate
	CertificatesSilent bool
	// OtherOperator is another installation of the operator that watches the cluster's namespace;
	// empty if none is known.
	OtherOperator string
	// NodesUnknown says why it is not known which nodes are drained; empty if it is, or if that doesn't matter.
	NodesUnknown string
	Now          time.Time

	dueIn time.Duration
}

// DueIn is how long after Compute the same input gives another status, which no event will report;
// zero for never.
func (in *Input) DueIn() time.Duration { return in.dueIn }

// Compute returns the status. Compute starts from the present status: conditions keep their transition times,
// and receipts stay.
func Compute(in *Input) cachev1alpha1.MemcachedStatus {
	s := *in.Cluster.Status.DeepCopy()
	s.ObservedGeneration = in.Cluster.Generation
	s.Selector = labels.SelectorFromSet(build.Selector(in.Cluster)).String()
	members(in, &s)
	setBinding(in, &s)
	s.ServiceMonitor = serviceMonitor(in)
	w := waits{now: in.Now}
	s.Router = routers(in, &w)
	s.Drains = drains(in)
	s.Draining = int32(len(s.Drains))
	s.Moving = int32(len(in.Plan.Moves))
	s.LatePercent = latePercent(in)
	for i := range s.Drains {
		if s.Drains[i].Phase == cachev1alpha1.DrainLeaving {
			s.Moving++
		}
	}
	if s.Progress = progressLine(s.Drains); s.Progress == "" {
		s.Progress = cmp.Or(stepLine(in), moveLine(in))
	}
	s.Warm = warm(in)
	s.Progress = cmp.Or(s.Progress, warmLine(s.Warm))
	s.LastDrains = lastDrains(in, s.LastDrains)
	s.Advice = advice(in, &s)
	setConditions(in, &s, conditions(in, &s, &w))
	in.dueIn = w.next
	s.Phase = phase(in, &s)
	s.Drains = claims.Shown(s.Drains, RowOf)
	return s
}

func members(in *Input, s *cachev1alpha1.MemcachedStatus) {
	s.Size, s.ReadySize, s.Nodes = 0, 0, nil
	for _, pod := range byOrdinal(in) {
		if !lives(pod) {
			continue
		}
		s.Size++
		if len(s.Nodes) < maxNodes {
			s.Nodes = append(s.Nodes, pod.Name)
		}
		if claims.PodReady(pod) {
			s.ReadySize++
		}
	}
	s.Servers = in.Servers
}

// drains returns an entry for every claim that is to be drained.
func drains(in *Input) []cachev1alpha1.DrainStatus {
	rows := claims.Rows{Now: in.Now, Marked: in.Marked, Started: in.JobStarted, Waits: in.Waits, Member: in.member}
	for i := range in.Cluster.Status.Drains {
		rows.Before = append(rows.Before, RowOf(&in.Cluster.Status.Drains[i]))
	}
	var out []cachev1alpha1.DrainStatus
	for i := range in.Plan.Drains {
		d := &in.Plan.Drains[i]
		p, progress := progressOf(in, d)
		row := rows.Row(d, progress)
		s := cachev1alpha1.DrainStatus{}
		switch {
		case row.Kept:
			s = *before(in, d)
		case d.Phase == claims.Leaving:
			followLeaving(in, d, &row)
			s.ItemsDone, s.ItemsTotal = p.ItemsDone, p.ItemsTotal
		case row.Phase == cachev1alpha1.DrainAdding:
			s.ItemsDone, s.ItemsTotal = p.ItemsDone, p.ItemsTotal
			s.BytesDone, s.BytesTotal = p.BytesDone, p.BytesTotal
			s.TimeLeft = timeLeft(p)
		}
		s.ItemsMoved = itemsMoved(in, d)
		rows.End(&row)
		s.Claim, s.Ordinal, s.Phase, s.Reason, s.Message = row.Claim, row.Ordinal, row.Phase, row.Reason, row.Message
		s.Since, s.LeavingSince, s.StartedAt = row.Since, row.LeavingSince, row.StartedAt
		out = append(out, s)
	}
	return out
}

// RowOf returns package claims' row of a drain.
func RowOf(s *cachev1alpha1.DrainStatus) claims.Row {
	return claims.Row{
		Claim: s.Claim, Ordinal: s.Ordinal, Phase: s.Phase, Reason: s.Reason, Message: s.Message,
		Since: s.Since, LeavingSince: s.LeavingSince, StartedAt: s.StartedAt,
	}
}

// member returns the pod of the member with this ordinal, or nil.
func (in *Input) member(ordinal int32) *corev1.Pod {
	i := slices.IndexFunc(in.Pods, func(p corev1.Pod) bool { return p.Name == build.PodName(in.Cluster.Name, ordinal) })
	if i < 0 {
		return nil
	}
	return &in.Pods[i]
}

// before returns the drain's entry of the present status, or nil.
func before(in *Input, d *claims.DrainState) *cachev1alpha1.DrainStatus {
	drains := in.Cluster.Status.Drains
	i := slices.IndexFunc(drains, func(s cachev1alpha1.DrainStatus) bool { return s.Claim == d.Claim.Name })
	if i < 0 {
		return nil
	}
	return &drains[i]
}

// progressLine sums up the drains for the printer column.
func progressLine(drains []cachev1alpha1.DrainStatus) string {
	if len(drains) == 0 {
		return ""
	}
	var items, total, bytes, bytesTotal int64
	words := map[cachev1alpha1.DrainPhase]int{}
	for _, d := range drains {
		items, total = items+d.ItemsDone, total+d.ItemsTotal
		bytes, bytesTotal = bytes+d.BytesDone, bytesTotal+d.BytesTotal
		words[d.Phase]++
	}
	if bytesTotal > 0 {
		line := fmt.Sprintf("%d%% (%d items%s)", bytes*100/bytesTotal, items, longest(drains))
		if total > 0 {
			line = fmt.Sprintf("%d%% (%d/%d items%s)", bytes*100/bytesTotal, items, total, longest(drains))
		}
		return line
	}
	if leaving := words[cachev1alpha1.DrainLeaving]; leaving == len(drains) && items > 0 {
		return fmt.Sprintf("%s (%d items)", cachev1alpha1.DrainLeaving, items)
	}
	var parts []string
	for _, p := range []cachev1alpha1.DrainPhase{
		cachev1alpha1.DrainFailed, cachev1alpha1.DrainHeld, cachev1alpha1.DrainReleasing,
		cachev1alpha1.DrainAdding, cachev1alpha1.DrainStarting, cachev1alpha1.DrainLeaving, cachev1alpha1.DrainWaiting,
	} {
		switch n := words[p]; {
		case n == 1 && len(drains) == 1:
			return string(p)
		case n > 0:
			parts = append(parts, fmt.Sprintf("%d %s", n, p))
		}
	}
	return strings.Join(parts, ", ")
}

// lastDrains adds the drains whose claims are being released.
func lastDrains(in *Input, last []cachev1alpha1.DrainReceipt) []cachev1alpha1.DrainReceipt {
	for i := range in.Plan.Drains {
		if d := &in.Plan.Drains[i]; d.Phase == claims.Releasing || goesWithItsPod(in, d, last) {
			last = claims.AddLast(last, drained(in, d), func(r *cachev1alpha1.DrainReceipt) (claim, result string) { return r.ClaimUID, r.Result })
		}
	}
	return last
}

// goesWithItsPod tells whether a member without a volume leaves now, for good, and no receipt says so yet. Its mover's
// Job is deleted afterwards, so the first receipt counts.
func goesWithItsPod(in *Input, d *claims.DrainState, last []cachev1alpha1.DrainReceipt) bool {
	if !d.Claim.InPod || d.Why == "" || slices.ContainsFunc(last, func(r cachev1alpha1.DrainReceipt) bool { return r.ClaimUID == string(d.Claim.UID) }) {
		return false
	}
	return in.MembersWritten || d.Claim.Deleting || in.StatefulSet != nil && ptr.Deref(in.StatefulSet.Spec.Replicas, 1) <= d.Claim.Ordinal
}

func drained(in *Input, d *claims.DrainState) cachev1alpha1.DrainReceipt {
	out := cachev1alpha1.DrainReceipt{
		Claim:    d.Claim.Name,
		ClaimUID: string(d.Claim.UID),
		Result:   string(d.Why),
		EndedAt:  metav1.NewTime(in.Now),
		Moved:    itemsMoved(in, d),
	}
	if at, told := d.Claim.LeavingAt(); told {
		out.Duration = &metav1.Duration{Duration: max(0, in.Now.Sub(at).Truncate(time.Second))}
	}
	if d.Claim.Receipt != nil && d.Why == action.ByReceipt {
		r := plan.ReceiptNumbers(d.Claim.Receipt)
		out.Found, out.Added, out.AlreadyPresent = r.Found, r.Added, r.AlreadyPresent
		out.Expired, out.Invalidated, out.Bytes = r.Expired, r.Invalidated, r.Bytes
		out.Unclean = !r.Clean
	}
	if d.Claim.InPod {
		countNotMoved(in, d, &out)
	}
	return out
}

// countNotMoved counts the items that a member without a volume leaves with: by its last mover's receipt, or
// by the last progress of that mover.
func countNotMoved(in *Input, d *claims.DrainState, out *cachev1alpha1.DrainReceipt) {
	var r contract.Receipt
	if d.Mover != nil {
		r = plan.ReceiptNumbers(d.Mover.Receipt)
	}
	out.Moved, out.AlreadyPresent, out.Expired = max(out.Moved, r.Added), r.AlreadyPresent, r.Expired
	out.Invalidated, out.Bytes = r.Invalidated, r.Bytes
	p := in.Progress[d.Claim.UID]
	switch {
	case d.Why == action.ByMove:
	case r.Complete:
		out.NotMoved = ptr.To(max(0, r.Found-r.Added-r.AlreadyPresent-r.Expired-r.Invalidated))
	case p.ItemsTotal > 0:
		out.NotMoved = ptr.To(max(0, p.ItemsTotal-p.ItemsDone))
	}
}
