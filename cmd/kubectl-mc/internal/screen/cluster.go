// Package screen makes lines from the state that was read, without input and output.
package screen

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/cmd/kubectl-mc/internal/members"
	"example.com/memcached-operator/drainer/contract"
)

// Cluster has the view of kubectl mc status on a Memcached.
type Cluster struct {
	Namespace string              `json:"namespace"`
	Name      string              `json:"name"`
	Phase     cachev1alpha1.Phase `json:"phase"`
	Size      int32               `json:"size"`
	Ready     int32               `json:"ready"`
	// Ring is the client library and the size of the list, RingState tells whether it changes.
	Client    string   `json:"client,omitempty"`
	Servers   []string `json:"servers,omitempty"`
	RingState string   `json:"ringState"`
	Routers   string   `json:"routers,omitempty"`
	Members   []Member `json:"members,omitempty"`
	// Unasked is why members have no numbers; empty if all have.
	Unasked string `json:"unasked,omitempty"`
	// Unheard is why logs can't be read, so that work is known by status alone; empty if all can.
	Unheard string `json:"unheard,omitempty"`
	// Work has the drains, moves, saves and loads; Waits has everything that needs or waits for something.
	Work   []Work                 `json:"work,omitempty"`
	Waits  []Wait                 `json:"waits,omitempty"`
	Advice []cachev1alpha1.Advice `json:"advice,omitempty"`
}

// Member is a member's pod.
type Member struct {
	Name    string `json:"name"`
	Node    string `json:"node,omitempty"`
	Address string `json:"address,omitempty"`
	// State is ready, starting, leaving or ending.
	State string        `json:"state"`
	Age   time.Duration `json:"age"`
	// Cold is why the member started cold; empty if it started warm, or is new.
	Cold    string           `json:"cold,omitempty"`
	Numbers *members.Numbers `json:"numbers,omitempty"`
}

// Wait is something that waits, since when, and what helps.
type Wait struct {
	What    string    `json:"what"`
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	// Command helps; empty if time does.
	Command string `json:"command,omitempty"`
}

// Seen has all that was read of a cluster, except for its Memcached.
type Seen struct {
	// Pods are the members'.
	Pods []corev1.Pod
	// Numbers are the members', by the pods' names; Unasked says why some have none.
	Numbers map[string]*members.Numbers
	Unasked string
	// Heard is the end of logs; Unheard says why some can't be read.
	Heard   []Heard
	Unheard string
}

// Of makes the view of a cluster at a time.
func Of(m *cachev1alpha1.Memcached, seen *Seen, now time.Time) *Cluster {
	s := &m.Status
	c := &Cluster{
		Namespace: m.Namespace, Name: m.Name, Phase: s.Phase, Ready: s.ReadySize, Servers: s.Servers, Unasked: seen.Unasked, Unheard: seen.Unheard,
		RingState: "stable", Advice: s.Advice, Size: s.Size,
	}
	if m.Spec.Size != nil {
		c.Size = *m.Spec.Size
	}
	if m.Spec.Storage != nil {
		c.Client = m.Spec.Routing.RingClient()
	}
	if r := s.Router; r != nil {
		c.Routers = fmt.Sprintf("%s, %d of %d ready", r.Address, r.Ready, r.Replicas)
		if len(r.Behind) > 0 {
			c.Routers += ", behind: " + strings.Join(r.Behind, ", ")
		}
	}
	leaving := map[int32]bool{}
	for i := range s.Drains {
		d := &s.Drains[i]
		leaving[d.Ordinal] = d.Phase == cachev1alpha1.DrainLeaving
		c.Work = append(c.Work, workOf(d, now))
		if d.Reason != "" || d.Message != "" {
			c.Waits = append(c.Waits, waitOf(m, d))
		}
	}
	if moving := meta.FindStatusCondition(s.Conditions, cachev1alpha1.ConditionMoving); moving != nil {
		c.RingState = "members with items that clients look for elsewhere: " + fmt.Sprint(s.Moving)
	} else if slices.ContainsFunc(s.Drains, func(d cachev1alpha1.DrainStatus) bool { return d.Phase == cachev1alpha1.DrainLeaving }) {
		c.RingState = "members leave"
	}
	c.Waits = append(c.Waits, conditionWaits(m)...)
	c.listen(seen.Heard)
	for i := range seen.Pods {
		c.Members = append(c.Members, memberOf(m, &seen.Pods[i], leaving, seen.Numbers, now))
	}
	return c
}

func memberOf(m *cachev1alpha1.Memcached, pod *corev1.Pod, leaving map[int32]bool, numbers map[string]*members.Numbers, now time.Time) Member {
	out := Member{
		Name: pod.Name, Node: pod.Spec.NodeName, Address: pod.Status.PodIP, State: "starting", Age: now.Sub(pod.CreationTimestamp.Time),
		Numbers: numbers[pod.Name],
	}
	if out.Numbers != nil {
		out.Age = out.Numbers.Uptime
	}
	ordinal := int32(-1)
	if _, err := fmt.Sscanf(strings.TrimPrefix(pod.Name, m.Name+"-"), "%d", &ordinal); err != nil {
		ordinal = -1
	}
	ready := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
	switch {
	case pod.DeletionTimestamp != nil:
		out.State = "ending"
	case leaving[ordinal]:
		out.State = "leaving"
	case ready:
		out.State = "ready"
	}
	for _, c := range pod.Status.InitContainerStatuses {
		if t := c.State.Terminated; t != nil {
			if cold := contract.ParseColdStart(t.Message); cold != nil {
				out.Cold = "it started cold: see status.advice"
			}
		}
	}
	return out
}

func waitOf(m *cachev1alpha1.Memcached, d *cachev1alpha1.DrainStatus) Wait {
	holder := "claim"
	if m.Spec.InPods() {
		holder = "pod"
	}
	w := Wait{What: holder + " " + d.Claim, Reason: d.Reason, Message: d.Message}
	if d.Since != nil {
		w.Since = d.Since.Time
	}
	switch {
	case d.Phase == cachev1alpha1.DrainHeld, d.Phase == cachev1alpha1.DrainFailed, d.Phase == cachev1alpha1.DrainLeaving && d.Reason == cachev1alpha1.ReasonJobFailed:
		w.Command = "kubectl mc retry " + d.Claim
	}
	return w
}

// conditionWaits returns a wait for each condition that is not as it should be.
func conditionWaits(m *cachev1alpha1.Memcached) (waits []Wait) {
	for _, c := range m.Status.Conditions {
		is := c.Status == metav1.ConditionTrue
		shows := false
		command := ""
		switch c.Type {
		case cachev1alpha1.ConditionDegraded:
			// Claims that need a person are among the drains.
			shows = is && c.Reason != cachev1alpha1.ReasonDrainHeld && c.Reason != cachev1alpha1.ReasonDrainFailed
			command = "kubectl mc logs " + m.Name
		case cachev1alpha1.ConditionProgressing:
			shows = is || c.Reason == cachev1alpha1.ReasonPaused || c.Reason == cachev1alpha1.ReasonBlockedByVolume || c.Reason == cachev1alpha1.ReasonWaitingForTurn
			if c.Reason == cachev1alpha1.ReasonPaused {
				command = "kubectl mc resume " + m.Name
			}
		case cachev1alpha1.ConditionMoving:
			shows = true
		case cachev1alpha1.ConditionReady, cachev1alpha1.ConditionAvailable, cachev1alpha1.ConditionDraining:
		default:
			shows = !is
		}
		if shows {
			waits = append(waits, Wait{What: c.Type, Reason: c.Reason, Message: c.Message, Since: c.LastTransitionTime.Time, Command: command})
		}
	}
	return waits
}

// Lines are the screen, of at most width columns and height rows; 0 is no bound. Only members that are ready
// are left out to keep to height.
func (c *Cluster) Lines(width, height int, style Style, now time.Time) []string {
	lines := c.lines(width, len(c.Members), style, now)
	if over := len(lines) - height; height > 0 && over > 0 {
		lines = c.lines(width, max(0, len(c.Members)-over-1), style, now) // one line has the number of the others
	}
	return lines
}

func (c *Cluster) lines(width, most int, style Style, now time.Time) []string {
	lines := []string{fmt.Sprintf("%s/%s  %s  %d of %d ready", c.Namespace, c.Name, style.phase(c.Phase), c.Ready, c.Size)}
	if c.Client != "" {
		lines = append(lines, fmt.Sprintf("ring     %s, %d servers, %s", c.Client, len(c.Servers), c.RingState))
	}
	if c.Routers != "" {
		lines = append(lines, "routers  "+c.Routers)
	}
	if len(c.Members) > 0 {
		lines = append(lines, "")
		lines = append(lines, c.memberLines(width, most, style)...)
	}
	if c.Unasked != "" {
		lines = append(lines, style.dim("numbers are missing: "+c.Unasked))
	}
	if len(c.Work) > 0 {
		lines = append(lines, "")
	}
	for i := range c.Work {
		lines = append(lines, c.Work[i].lines(width)...)
	}
	if c.Unheard != "" && c.Unasked == "" { // one line says it, if nothing can be asked
		lines = append(lines, style.dim("bars may be missing: "+c.Unheard))
	}
	for _, w := range c.Waits {
		lines = append(lines, "")
		lines = append(lines, w.lines(style, now)...)
	}
	for _, a := range c.Advice {
		lines = append(lines, "", style.dim("advice "+a.Reason), "  "+a.Message)
	}
	return Fold(lines, width)
}

// leftOut are the columns of members that are left out if a terminal is too narrow, the first one first.
var leftOut = []string{"ADDRESS", "NODE", "CONNS", "EVICTED", "HITS"}

// memberLines shows at least most members: only the last of the ready ones are left out.
func (c *Cluster) memberLines(width, most int, style Style) []string {
	rows := [][]string{{"MEMBER", "STATE", "ITEMS", "MEMORY", "", "HITS", "EVICTED", "CONNS", "AGE", "NODE", "ADDRESS"}}
	states := []string{"ready"}
	omitted := 0
	for i := len(c.Members) - 1; i >= 0; i-- {
		m := &c.Members[i]
		if m.plain() && omitted < len(c.Members)-most {
			omitted++
			continue
		}
		rows = slices.Insert(rows, 1, m.row())
		states = slices.Insert(states, 1, m.State)
	}
	lines := Table(rows)
	for _, name := range leftOut {
		if width == 0 || !slices.ContainsFunc(lines, func(l string) bool { return columns(l) > width }) {
			break
		}
		at := slices.Index(rows[0], name)
		for i := range rows {
			rows[i] = slices.Delete(rows[i], at, at+1)
		}
		lines = Table(rows)
	}
	for i := range lines {
		lines[i] = style.state(states[i], lines[i])
	}
	if omitted > 0 {
		lines = append(lines, style.dim(fmt.Sprintf("… and %d more members that are ready", omitted)))
	}
	return lines
}

// plain tells whether there is nothing to report about a member.
func (m *Member) plain() bool { return m.State == "ready" && m.Cold == "" }

func (m *Member) row() []string {
	row := []string{m.Name, m.State, "-", strings.Repeat(" ", barWidth), "-", "-", "-", "-", duration.HumanDuration(m.Age), cmp.Or(m.Node, "-"), cmp.Or(m.Address, "-")}
	if m.Cold != "" {
		row[1] += ",cold"
	}
	if n := m.Numbers; n != nil {
		share := 0.0
		if n.Limit > 0 {
			share = float64(n.Bytes) / float64(n.Limit)
		}
		copy(row[2:], []string{Count(n.Items), bar(share), percent(share), ratio(n.Hits, n.Gets), Count(n.Evictions), Count(n.Connections)})
	}
	return row
}

func (w *Wait) lines(style Style, now time.Time) []string {
	first := style.bold(w.What)
	if w.Reason != "" {
		first += "  " + w.Reason
	}
	if !w.Since.IsZero() {
		first += "  for " + duration.HumanDuration(now.Sub(w.Since))
	}
	lines := []string{first}
	if w.Message != "" {
		lines = append(lines, "  "+w.Message)
	}
	if w.Command != "" {
		lines = append(lines, "  try: "+w.Command)
	}
	return lines
}
