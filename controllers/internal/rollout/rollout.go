// Package rollout decides when members are replaced by members with another template. Next is pure;
// Turns gives turns to the clusters.
//
// A change of the spec is rolled out at once. A change that comes with another version or image of
// the operator is rolled out to a few clusters at a time. When the members of one cluster are
// ready, the next cluster begins, so a version that breaks members breaks few clusters.
//
// The record on the StatefulSet or Deployment tells the two kinds apart: it names the spec that the
// template was made from. The record also has the turn of a roll-out that an upgrade began, from
// the first write until the roll-out is done. So the number of roll-outs survives a restart of the
// operator.
package rollout

import (
	"encoding/json"
	"time"
)

// Record has the words of a StatefulSet or Deployment about its template.
type Record struct {
	// Generation is that of the Memcached that the template was made from. Spec is a hash of the
	// part of the spec that the template depends on (build.TemplateSpec).
	Generation int64  `json:"generation"`
	Spec       string `json:"spec"`
	// Sent is a hash of the template as it was sent, because admission may have changed it.
	Sent string `json:"sent,omitempty"`
	// Turn is that of the roll-out that an upgrade began; nil if none is under way.
	Turn *Turn `json:"rollout,omitempty"`
}

// Turn is the turn of a roll-out that is under way.
type Turn struct {
	// Since is when the roll-out began, in whole seconds.
	Since time.Time `json:"since"`
	// Unready: not all members were ready when the roll-out began.
	Unready bool `json:"unready,omitempty"`
}

// MaxRecord bounds a record that is read, in bytes, because any client may have written it.
const MaxRecord = 1 << 10

// Parse parses a record; nil if it is invalid.
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
	b, _ := json.Marshal(r) // numbers, strings and times can always be marshalled
	return string(b)
}

// UnreadyTime is how long a roll-out may delay the next one if its members weren't ready when it
// began. If they were ready before, the change broke them, and the roll-out delays the others until
// they are ready again.
const UnreadyTime = 10 * time.Minute

// Over tells whether the next roll-out may begin although this one isn't done.
func (m *Turn) Over(now time.Time) bool { return m.Unready && now.Sub(m.Since) >= UnreadyTime }

// Members describes the members of a cluster and the template that they are to have.
type Members struct {
	// Differs: their template is not the wanted one.
	Differs bool
	// Recorded is the record beside their template; nil if there is none.
	Recorded *Record
	// Generation and Spec are those of the present Memcached.
	Generation int64
	Spec       string
	// None: there are no members to replace.
	None bool
	// Ready: all members exist, have the present template, and are ready.
	Ready bool
	// Kept: the members keep their template for now.
	Kept bool
	// OtherSize: the size that is applied now is not yet the spec's.
	OtherSize bool
}

// Step is the next step with the template.
type Step int

// The steps.
const (
	// Apply: apply the wanted template, and record no roll-out.
	Apply Step = iota
	// GoOn: continue the recorded roll-out, to the template that is wanted now.
	GoOn
	// Ask: ask for a turn. Until then the members keep their template.
	Ask
)

// Next returns the next step for the members. turn is that of their roll-out; nil if there is none.
func Next(m *Members, turn *Turn, now time.Time) Step {
	switch {
	case m.None:
		return Apply
	case turn != nil && (m.Differs || !m.Ready) && !turn.Over(now):
		return GoOn
	case !m.Differs || m.bySpec():
		return Apply
	case turn != nil:
		return GoOn // the roll-out is done, but the template has changed again
	}
	return Ask
}

// bySpec tells whether the part of the spec that the template depends on has changed since the
// template was applied. If only a new operator or new defaults read the same spec differently, the
// generation is the same.
func (m *Members) bySpec() bool {
	return m.Recorded != nil && m.Recorded.Generation != m.Generation && m.Recorded.Spec != m.Spec
}
