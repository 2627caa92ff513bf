package screen

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/drainer/contract"
)

// Work is a long step: a drain, a move, a save or a load.
type Work struct {
	// Of is the claim that is drained or whose member's items move, or the member that saves or loads.
	Of    string `json:"of"`
	Phase string `json:"phase"`
	// Pass is the number of a move's pass: each pass has a bar of its own. 0 means that passes are not
	// counted.
	Pass  int   `json:"pass,omitempty"`
	Done  int64 `json:"done"`
	Total int64 `json:"total"`
	// Unit is the unit of Done and Total: items, or MiB.
	Unit string `json:"unit"`
	// Share is the share that is done, from 0 to 1; negative if it is not known.
	Share float64 `json:"share"`
	// Rate is in units per second; 0 if it is not known.
	Rate     float64       `json:"rate,omitempty"`
	TimeLeft time.Duration `json:"timeLeft,omitempty"`
	// Note says what the work waits for.
	Note string `json:"note,omitempty"`
}

const items = "items"

// Heard is the end of the log of the program that works in a pod: a member's supervisor, or a drainer.
type Heard struct {
	Pod   *corev1.Pod
	Lines []string
}

// workOf returns the work of a drain, as status knows it.
func workOf(d *cachev1alpha1.DrainStatus, now time.Time) Work {
	w := Work{Of: d.Claim, Phase: string(d.Phase), Done: d.ItemsDone, Total: d.ItemsTotal, Unit: items, Share: -1}
	switch {
	case d.ItemsTotal > 0:
		w.Share = min(1, float64(d.ItemsDone)/float64(d.ItemsTotal))
	case d.BytesTotal > 0:
		w.Share = min(1, float64(d.BytesDone)/float64(d.BytesTotal))
	}
	if d.StartedAt != nil && d.ItemsDone > 0 {
		w.rate(now.Sub(d.StartedAt.Time).Seconds())
	}
	if d.TimeLeft != nil {
		w.TimeLeft = d.TimeLeft.Duration
	}
	return w
}

// rate computes the rate, and from it the time that is left.
func (w *Work) rate(seconds float64) {
	if seconds <= 0 || w.Done <= 0 {
		return
	}
	w.Rate = float64(w.Done) / seconds
	w.left()
}

func (w *Work) left() {
	const most = 365 * 24 * 3600
	if w.Rate > 0 && w.Total > w.Done {
		w.TimeLeft = time.Duration(min(most, float64(w.Total-w.Done)/w.Rate)) * time.Second
	}
}

// jobs matches the names of the Jobs of drains, moves and warmings: the name of the claim or the cluster, or
// its beginning, comes first.
var jobs = regexp.MustCompile(`^(.+)-(move|drain|warm)-[0-9a-f]{8}$`)

// listen adds the work that logs tell of: logs are newer than status, and tell of passes, saves and loads.
func (c *Cluster) listen(heard []Heard) {
	slices.SortStableFunc(heard, func(a, b Heard) int { return a.Pod.CreationTimestamp.Compare(b.Pod.CreationTimestamp.Time) }) // a later attempt counts
	for i := range heard {
		h := &heard[i]
		if h.Pod.Labels[cachev1alpha1.LabelComponent] == cachev1alpha1.ComponentMember {
			if w := memberWork(h); w != nil {
				c.Work = append(c.Work, *w)
			}
			continue
		}
		of := jobs.FindStringSubmatch(h.Pod.Labels[batchv1.JobNameLabel])
		p := lastProgress(h.Lines)
		if of == nil || p == nil {
			continue
		}
		w, moves := progressWork(p), of[2] != "drain"
		w.Of, w.Phase = of[1], map[string]string{"move": "Moving", "drain": string(cachev1alpha1.DrainAdding), "warm": string(cachev1alpha1.WarmCopying)}[of[2]]
		at := slices.IndexFunc(c.Work, func(known Work) bool { return isClaim(of[0], of[1], known.Of) })
		switch {
		case at >= 0:
			c.Work[at].newer(&w, moves)
		case p.Phase != contract.PhaseDone:
			c.Work = append(c.Work, w)
		}
	}
}

// isClaim tells whether a Job's name begins with this claim's, which may be cut.
func isClaim(job, begins, claim string) bool {
	const cut = 60
	return begins == claim || len(job) >= cut && strings.HasPrefix(claim, begins)
}

// newer replaces the numbers of a drain in status by those of its drainer's log or, while the member leaves,
// its mover's.
func (w *Work) newer(heard *Work, moves bool) {
	leaves := w.Phase == string(cachev1alpha1.DrainLeaving)
	if moves != leaves && (moves || w.Phase != string(cachev1alpha1.DrainAdding) && w.Phase != string(cachev1alpha1.DrainReleasing)) {
		return
	}
	heard.Of, heard.Phase = w.Of, w.Phase
	*w = *heard
}

// memberWork returns the present work of a member's supervisor; nil for none.
func memberWork(h *Heard) *Work {
	for i := len(h.Lines) - 1; i >= 0; i-- {
		found := contract.ParseWork(h.Lines[i])
		if found == nil {
			continue
		}
		w := &Work{Of: h.Pod.Name, Done: found.Done, Total: found.Total, Rate: float64(found.Rate), Unit: "MiB", Share: float64(found.Done) / float64(found.Total)}
		w.Phase = map[contract.WorkKind]string{contract.WorkSaving: "Saving", contract.WorkLoading: "Loading", contract.WorkReplaying: "Replaying"}[found.Kind]
		if found.Kind == contract.WorkReplaying {
			w.Unit = items
		}
		if w.left(); w.Done == w.Total {
			return nil
		}
		return w
	}
	return nil
}

// lastProgress returns a drainer's last progress; nil if no line has a possible one.
func lastProgress(lines []string) *contract.Progress {
	const most = 1 << 46
	for i := len(lines) - 1; i >= 0; i-- {
		p := &contract.Progress{}
		if json.Unmarshal([]byte(lines[i]), p) != nil || p.Phase == "" {
			continue
		}
		for _, n := range []int64{p.ItemsDone, p.ItemsTotal, p.PassDone, p.PassTotal, p.BytesDone, p.BytesTotal} {
			if n < 0 || n > most {
				return nil
			}
		}
		return p
	}
	return nil
}

// progressWork returns the work in a drainer's progress. Each pass of a move has a bar of its own, so that no
// bar goes back.
func progressWork(p *contract.Progress) Work {
	w := Work{Pass: p.Pass, Done: p.ItemsDone, Total: p.ItemsTotal, Unit: items, Share: -1, Note: p.Message}
	if p.Pass > 0 {
		w.Done, w.Total = p.PassDone, p.PassTotal
	}
	switch {
	case w.Total > 0:
		w.Share = min(1, float64(w.Done)/float64(w.Total))
	case p.BytesTotal > 0:
		w.Share = min(1, float64(p.BytesDone)/float64(p.BytesTotal))
	}
	switch p.Phase {
	case contract.PhaseAdding:
		if p.Pass <= 1 { // the phase is older than a later pass
			w.rate(p.Seconds)
		}
	case contract.PhaseConnecting:
		w.Note = strings.TrimSpace("connects " + p.Message)
	case contract.PhasePrepared:
		w.Note = strings.TrimSpace("is prepared " + p.Message)
	case contract.PhaseSettling:
		w.Note = "waits for late clients"
		if p.Late > 0 {
			w.Note += ", " + percent(p.Late) + " of the requests"
		}
		if p.Message != "" {
			w.Note += ": " + p.Message
		}
	}
	return w
}

// line returns the work's line. Parts that have no room in the width are left out, the least important first;
// 0 leaves none out.
func (w *Work) line(width int) string {
	phase := w.Phase
	if w.Pass > 1 {
		phase += fmt.Sprintf(", pass %d", w.Pass)
	}
	first := fmt.Sprintf("%s  %-9s", w.Of, phase)
	var amount, less, rate, left string
	if w.Share >= 0 {
		amount, less = fmt.Sprintf("  %s of %s %s", Count(w.Done), Count(w.Total), w.Unit), fmt.Sprintf("  %s of %s", Count(w.Done), Count(w.Total))
		first += fmt.Sprintf("  %s %4s", bar(w.Share), percent(w.Share))
	}
	if w.Rate > 0 {
		rate = fmt.Sprintf("  %s/s", Count(int64(w.Rate)))
		if w.Unit != items && w.Unit != "" {
			rate = fmt.Sprintf("  %s %s/s", Count(int64(w.Rate)), w.Unit)
		}
	}
	if w.TimeLeft > 0 {
		left = "  " + duration.HumanDuration(w.TimeLeft) + " left"
	}
	line := ""
	for _, rest := range []string{amount + rate + left, less + rate + left, rate + left, left} {
		if line = first + rest; width == 0 || columns(line) <= width {
			break
		}
	}
	return strings.TrimRight(line, " ")
}

// lines returns the work's line, and the line with what it waits for.
func (w *Work) lines(width int) []string {
	lines := []string{w.line(width)}
	if w.Note != "" {
		lines = append(lines, "  "+w.Note)
	}
	return lines
}
