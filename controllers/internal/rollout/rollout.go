// Package rollout decides when members are replaced by ones of another template: Next
// is pure, Turns hands out the turns of the clusters.
//
// What a person changes in the spec is rolled out at once. What another version of the
// operator, or another image of it, changes is rolled out to a few clusters at a time,
// each ready before the next one begins: a version that breaks members breaks a few.
//
// Which of the two it is, the StatefulSet or Deployment tells: its record says of which
// specification its template is. The record also has the mark of a roll-out that an
// upgrade began, from the write that begins it to the one that finds it done, so that
// the number of them survives the operator.
package rollout

import (
	"encoding/json"
	"time"
)

// Record is what a StatefulSet or Deployment says of its template.
type Record struct {
	// Generation of the Memcached whose specification the template is of, and Spec,
	// the part of that which the template depends on (build.TemplateSpec).
	Generation int64  `json:"generation"`
	Spec       string `json:"spec"`
	// Mark of the roll-out that an upgrade began; nil while none is under way.
	Mark *Mark `json:"rollout,omitempty"`
}

// Mark of a roll-out that is under way.
type Mark struct {
	// Since when, in whole seconds.
	Since time.Time `json:"since"`
	// Unready: not all members were ready when it began.
	Unready bool `json:"unready,omitempty"`
}

// MaxRecord bounds a record that is read, in bytes: anybody may have written it.
const MaxRecord = 1 << 10

// Parse a record; nil of what is none.
func Parse(text string) *Record {
	var r Record
	if text == "" || len(text) > MaxRecord || json.Unmarshal([]byte(text), &r) != nil {
		return nil
	}
	if r.Mark != nil && (r.Mark.Since.IsZero() || r.Mark.Since.Year() > 9999) {
		return nil
	}
	return &r
}

func (r Record) String() string {
	b, _ := json.Marshal(r) // numbers, strings and times always have JSON
	return string(b)
}

// UnreadyTime is how long a roll-out that began with members that weren't ready may
// take before the next one begins. One whose members were ready stops the others for
// as long as they aren't again: it is the change that broke them.
const UnreadyTime = 10 * time.Minute

// Over tells whether the next roll-out may begin although this one isn't done.
func (m *Mark) Over(now time.Time) bool { return m.Unready && now.Sub(m.Since) >= UnreadyTime }

// Members of a cluster, and the template that they are to have.
type Members struct {
	// Differs: their template is another than the wanted one.
	Differs bool
	// Recorded with their template; nil where nothing was.
	Recorded *Record
	// Generation and Spec of the Memcached as it is now.
	Generation int64
	Spec       string
	// None: there are no members to replace.
	None bool
	// Ready: all of them are there, of that template, and ready.
	Ready bool
	// Kept: they keep their template, whatever is wanted.
	Kept bool
	// OtherSize: what is applied now has not the size of the specification yet.
	OtherSize bool
}

// Step is what to do about the template.
type Step int

// The steps.
const (
	// Apply the wanted template, if it differs; no roll-out is marked.
	Apply Step = iota
	// GoOn with the roll-out that is marked, by the template that is wanted now.
	GoOn
	// Ask for a turn: until then the members keep their template.
	Ask
)

// Next step of the members, whose roll-out is marked so; nil where none is.
func Next(m *Members, mark *Mark, now time.Time) Step {
	switch {
	case m.None:
		return Apply
	case mark != nil && (m.Differs || !m.Ready) && !mark.Over(now):
		return GoOn
	case !m.Differs || m.bySpec():
		return Apply
	case mark != nil:
		return GoOn // it is over, but there is something new
	}
	return Ask
}

// bySpec tells whether the specification has changed, in what the template depends
// on, since the template was applied. A specification that comes to be read otherwise,
// by a new operator or with new defaults, has not: its generation is the same.
func (m *Members) bySpec() bool {
	return m.Recorded != nil && m.Recorded.Generation != m.Generation && m.Recorded.Spec != m.Spec
}
