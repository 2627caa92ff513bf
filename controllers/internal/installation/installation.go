// Package installation decides which installation of the operator manages a Memcached, if several of them
// watch its namespace. It is pure.
//
// An installation writes its name on each Memcached that it manages. One that finds the name of another
// one there asks it, by an annotation, and leaves the Memcached alone. An installation that is at work
// answers, however often it is asked. If there is no answer, the one that has asked takes over. So nothing
// has to be read but the Memcached, and an installation without rights in the other's namespace can ask,
// too. Each of these writes is under the Memcached's optimistic lock, so only one of two counts.
package installation

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

const (
	// AnswerTime is how long an installation that is at work may take to answer.
	AnswerTime = time.Minute
	// AskAgainTime is how long an answer counts.
	AskAgainTime = 2 * time.Minute
	// ForgetTime is when a question is of one that does not ask any more.
	ForgetTime = 5 * time.Minute
)

// Question of an installation that finds the name of another one.
type Question struct {
	// By is the name of the installation that asks.
	By string `json:"by"`
	// Number grows with each of its questions.
	Number int64 `json:"number"`
	// Answered: the one that manages the Memcached is at work.
	Answered bool `json:"answered,omitempty"`
}

// maxQuestion bounds a question that is read, in bytes: anybody may have written it.
const maxQuestion = 1 << 9

// Parse a question; nil if it is invalid.
func Parse(text string) *Question {
	var q Question
	if len(text) > maxQuestion || json.Unmarshal([]byte(text), &q) != nil || !Valid(q.By) || q.Number < 1 || q.Number > 1<<52 {
		return nil
	}
	return &q
}

func (q Question) String() string {
	b, _ := json.Marshal(q) // strings and numbers always have JSON
	return string(b)
}

// Valid tells whether the text can be the name of an installation.
func Valid(name string) bool {
	return name != "" && len(name) <= cachev1alpha1.MaxAnnotation && strings.IndexFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

// Seen is what the Memcached says of its operator.
type Seen struct {
	// Operator that manages it; empty if it names none.
	Operator string
	// Question that stands there; nil if there is none.
	Question *Question
	// For is how long this installation has seen both unchanged.
	For time.Duration
}

// Step is what an installation does about a Memcached.
type Step int

// The steps. Of these, Manage, Claim, Answer and Drop are of the one that manages it, and goes on with
// the Memcached.
const (
	// Manage it: the name is there.
	Manage Step = iota
	// Claim it: write the name.
	Claim
	// Answer the question.
	Answer
	// Drop a question that is of no use any more.
	Drop
	// LeaveAlone what another one manages.
	LeaveAlone
	// Ask whether the other one is at work.
	Ask
	// TakeOver from one that does not answer.
	TakeOver
)

// Manages tells whether the step is of the installation that manages the Memcached.
func (s Step) Manages() bool { return s <= Drop }

// See reads what the Memcached says of its operator. A value that can't be a name or a question is not an
// operator's, and counts as nothing.
func See(cluster *cachev1alpha1.Memcached, unchangedFor time.Duration) Seen {
	seen := Seen{Question: Parse(cluster.Annotations[cachev1alpha1.AnnotationOtherOperator]), For: unchangedFor}
	if name := cluster.Annotations[cachev1alpha1.AnnotationOperator]; Valid(name) {
		seen.Operator = name
	}
	return seen
}

// Because is why the step writes, for the log.
func (s Step) Because(seen Seen) string {
	switch s {
	case Ask:
		return fmt.Sprintf("installation %q of the operator manages the Memcached: asked whether it is at work", seen.Operator)
	case TakeOver:
		return fmt.Sprintf("installation %q of the operator does not answer: this one manages the Memcached from now on", seen.Operator)
	case Answer:
		return fmt.Sprintf("installation %q of the operator has asked: this one manages the Memcached, and is at work", seen.Question.By)
	case Drop:
		return "no other installation of the operator asks any more"
	}
	return "this installation of the operator manages the Memcached"
}

// Next is what the installation of that name does, and when it looks again; 0 if an event will tell.
func Next(me string, seen Seen) (Step, time.Duration) {
	q := seen.Question
	switch {
	case seen.Operator == "":
		return Claim, 0
	case seen.Operator == me && q == nil:
		return Manage, 0
	case seen.Operator == me:
		return answer(me, seen)
	case q == nil:
		return Ask, 0
	case q.By != me:
		return after(ForgetTime, seen.For, Ask, LeaveAlone)
	case q.Answered:
		return after(AskAgainTime, seen.For, Ask, LeaveAlone)
	}
	return after(AnswerTime, seen.For, TakeOver, LeaveAlone)
}

// answer is what the one that manages the Memcached does about a question.
func answer(me string, seen Seen) (Step, time.Duration) {
	switch {
	case seen.Question.By == me:
		return Drop, 0
	case !seen.Question.Answered:
		return Answer, 0
	}
	return after(ForgetTime, seen.For, Drop, Manage)
}

// after that time one step, until then the other.
func after(limit, passed time.Duration, then, until Step) (Step, time.Duration) {
	if passed >= limit {
		return then, 0
	}
	return until, limit - passed
}

// Write what the step says into the Memcached's annotations; false if it writes nothing.
func Write(me string, step Step, cluster *cachev1alpha1.Memcached) bool {
	if step == Manage || step == LeaveAlone {
		return false
	}
	if cluster.Annotations == nil {
		cluster.Annotations = map[string]string{}
	}
	a := cluster.Annotations
	question := See(cluster, 0).Question
	switch step {
	case Claim, TakeOver:
		a[cachev1alpha1.AnnotationOperator] = me
		delete(a, cachev1alpha1.AnnotationOtherOperator)
	case Answer:
		question.Answered = true
		a[cachev1alpha1.AnnotationOtherOperator] = question.String()
	case Drop:
		delete(a, cachev1alpha1.AnnotationOtherOperator)
	case Ask:
		number := int64(1)
		if question != nil {
			number += question.Number
		}
		a[cachev1alpha1.AnnotationOtherOperator] = Question{By: me, Number: number}.String()
	}
	return true
}
