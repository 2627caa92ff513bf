// Package rollout decides when members are replaced by ones of another template: Next is
// pure, Turns hands out turns to the clusters.
//
// A change of the spec is rolled out at once. A change that comes with another version or
// image of the operator is rolled out to a few clusters at a time. The next one begins
// when the members of one are ready, so a version that breaks members breaks few
// clusters.
//
// The record on the StatefulSet or Deployment tells the two apart: it names the spec that
// the template was made from. It also has the turn of a roll-out that an upgrade began,
// from the write that begins it until it is done. So the number of roll-outs survives the
// operator.
package rollout

import (
	"encoding/json"
	"time"
)

// Record is what a StatefulSet or Deployment says about its template.
type Record struct {
	// Generation of the Memcached that the template was made from. Spec is a hash of the
	// part that the template depends on (build.TemplateSpec).
	Generation int64  `json:"generation"`
	Spec       string `json:"spec"`
	// Sent is a hash of the template as it was sent: admission may have made another one of it.
	Sent string `json:"sent,omitempty"`
	// Turn of the roll-out that an upgrade began; nil if none is under way.
	Turn *Turn `json:"rollout,omitempty"`
}

// Turn of a roll-out that is under way.
type Turn struct {
	// Since when, in whole seconds.
	Since time.Time `json:"since"`
	// Unready: not all members were ready when it began.
	Unready bool `json:"unready,omitempty"`
}

// MaxRecord bounds a record that is read, in bytes: anybody may have written it.
const MaxRecord = 1 << 10

// Parse a record; nil if it is invalid.
func Parse(text string) *Record {
	var r Record
	if text == "" || len(text) > MaxRecord || json.Unmarshal([]byte(text), &r) != nil {
		return nil
	}
	if r.Turn != nil && (r.Turn.Since.IsZero() || r.Turn.Since.Year() > 9999) {
		return nil
	}
	return &r
}

func (r Record) String() string {
	b, _ := json.Marshal(r) // numbers, strings and times always have JSON
	return string(b)
}

// UnreadyTime is how long a roll-out may delay the next one if its members weren't ready
// when it began. If they were ready before, the change broke them, and it delays the
// others until they are ready again.
const UnreadyTime = 10 * time.Minute

// Over tells whether the next roll-out may begin although this one isn't done.
func (m *Turn) Over(now time.Time) bool { return m.Unready && now.Sub(m.Since) >= UnreadyTime }

// Members of a cluster, and the template that they are to have.
type Members struct {
	// Differs: their template is another than the wanted one.
	Differs bool
	// Recorded beside their template; nil if nothing was.
	Recorded *Record
	// Generation and Spec of the Memcached as it is now.
	Generation int64
	Spec       string
	// None: there are no members to replace.
	None bool
	// Ready: all of them exist, have that template, and are ready.
	Ready bool
	// Kept: they keep their template for now.
	Kept bool
	// OtherSize: the size that is applied now is not the spec's yet.
	OtherSize bool
}

// Step is what to do about the template.
type Step int

// The steps.
const (
	// Apply the wanted template. No roll-out is recorded.
	Apply Step = iota
	// GoOn with the recorded roll-out, to the template that is wanted now.
	GoOn
	// Ask for a turn. Until then the members keep their template.
	Ask
)

// Next step for the members. turn is that of their roll-out; nil if there is none.
func Next(m *Members, turn *Turn, now time.Time) Step {
	switch {
	case m.None:
		return Apply
	case turn != nil && (m.Differs || !m.Ready) && !turn.Over(now):
		return GoOn
	case !m.Differs || m.bySpec():
		return Apply
	case turn != nil:
		return GoOn // done, but the template has changed again
	}
	return Ask
}

// bySpec tells whether the part of the spec that the template depends on has changed
// since it was applied. If only a new operator or new defaults read the same spec
// differently, its generation is the same.
func (m *Members) bySpec() bool {
	return m.Recorded != nil && m.Recorded.Generation != m.Generation && m.Recorded.Spec != m.Spec
}
