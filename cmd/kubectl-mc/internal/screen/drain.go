package screen

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// Drain is the output of kubectl mc status for programs on a StatefulSetDrain: its name, because there may be
// several, and its status.
type Drain struct {
	Namespace   string `json:"namespace"`
	Name        string `json:"name"`
	StatefulSet string `json:"statefulSet"`

	cachev1alpha1.StatefulSetDrainStatus `json:",inline"`
}

// DrainOf makes the Drain of a StatefulSetDrain.
func DrainOf(d *cachev1alpha1.StatefulSetDrain) Drain {
	return Drain{d.Namespace, d.Name, d.Spec.StatefulSetName, d.Status}
}

// DrainLines are the screen of a StatefulSetDrain, of that many columns at most.
func DrainLines(d *cachev1alpha1.StatefulSetDrain, width int, style Style, now time.Time) []string {
	s := &d.Status
	lines := []string{fmt.Sprintf("%s/%s  StatefulSet %s  %d of %d ready, %d to drain", d.Namespace, d.Name, d.Spec.StatefulSetName, s.ReadyReplicas, s.Replicas, s.Draining)}
	for i := range s.Drains {
		m := &s.Drains[i]
		w := Work{Of: strings.Join(m.Claims, ","), Phase: string(m.Phase), Done: m.Done, Total: m.Total, Share: -1}
		if m.Total > 0 {
			w.Share = min(1, float64(m.Done)/float64(m.Total))
		}
		if m.StartedAt != nil && m.Phase == cachev1alpha1.DrainAdding {
			w.rate(now.Sub(m.StartedAt.Time).Seconds())
		}
		lines = append(append(lines, ""), w.lines(width)...)
		if m.Reason != "" || m.Message != "" {
			wait := Wait{What: "member " + fmt.Sprint(m.Ordinal), Reason: m.Reason, Message: m.Message}
			if m.Since != nil {
				wait.Since = m.Since.Time
			}
			if len(m.Claims) > 0 && (m.Phase == cachev1alpha1.DrainHeld || m.Phase == cachev1alpha1.DrainFailed) {
				wait.Command = "kubectl mc retry " + m.Claims[0]
			}
			lines = append(lines, wait.lines(style, now)...)
		}
	}
	for _, c := range s.Conditions {
		if c.Type == cachev1alpha1.ConditionDegraded && c.Status == "True" || c.Type == cachev1alpha1.ConditionProgressing && c.Status == "True" {
			wait := Wait{What: c.Type, Reason: c.Reason, Message: c.Message, Since: c.LastTransitionTime.Time}
			lines = append(lines, "")
			lines = append(lines, wait.lines(style, now)...)
		}
	}
	if len(s.LeftOver) > 0 {
		lines = append(lines, "", "left over: "+strings.Join(s.LeftOver, ", "))
	}
	return Fold(lines, width)
}

// Receipts are the last drains of a Memcached, newest first.
func Receipts(m *cachev1alpha1.Memcached, now time.Time) []string {
	rows := [][]string{{"CLAIM", "RESULT", "MOVED", "NOT MOVED", "FOUND", "ADDED", "PRESENT", "EXPIRED", "INVALIDATED", "BYTES", "TOOK", "ENDED"}}
	for i := range m.Status.LastDrains {
		r := &m.Status.LastDrains[i]
		took := "-"
		if r.Duration != nil {
			took = duration.HumanDuration(r.Duration.Duration)
		}
		result := r.Result
		if r.Unclean {
			result += ",unclean"
		}
		notMoved := "-"
		switch {
		case r.NotMoved != nil:
			notMoved = Count(*r.NotMoved)
		case m.Spec.InPods() && r.Result != "Moved":
			notMoved = "unknown"
		}
		rows = append(rows, []string{
			r.Claim, result, Count(r.Moved), notMoved, Count(r.Found), Count(r.Added), Count(r.AlreadyPresent), Count(r.Expired), Count(r.Invalidated),
			Bytes(r.Bytes), took, duration.HumanDuration(now.Sub(r.EndedAt.Time)) + " ago",
		})
	}
	return Table(rows)
}

// DrainReceipts are the last drains of a StatefulSetDrain, newest first.
func DrainReceipts(d *cachev1alpha1.StatefulSetDrain, now time.Time) []string {
	rows := [][]string{{"MEMBER", "CLAIMS", "RESULT", "TOOK", "ENDED", "MESSAGE"}}
	for i := range d.Status.LastDrains {
		r := &d.Status.LastDrains[i]
		took := "-"
		if r.Duration != nil {
			took = duration.HumanDuration(r.Duration.Duration)
		}
		rows = append(rows, []string{fmt.Sprint(r.Ordinal), strings.Join(r.Claims, ","), r.Result, took, duration.HumanDuration(now.Sub(r.EndedAt.Time)) + " ago",
			strings.Join(strings.Fields(r.Message), " ")})
	}
	return Table(rows)
}
