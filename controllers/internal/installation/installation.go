// Package installation decides which installation of the operator manages a Memcached or a StatefulSetDrain,
// if several of them watch its namespace. Package installation is pure.
//
// An installation writes its name on each object that it manages. An installation that finds
// another name there asks that one, by an annotation, and leaves the object alone. A running
// installation answers each question. If there is no answer, the installation that has asked takes
// over. So only the object has to be read, and an installation without rights in the other's
// namespace can ask, too. Each of these writes is under the object's optimistic lock, so only
// one of two concurrent writes succeeds.
package installation

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

const (
	// AnswerTime is how long a running installation may take to answer.
	AnswerTime = time.Minute
	// AskAgainTime is how long an answer counts.
	AskAgainTime = 2 * time.Minute
	// ForgetTime is how long after its last question an installation counts as gone.
	ForgetTime = 5 * time.Minute
)

// Question is the question of an installation that has found the name of another one.
type Question struct {
	// By is the name of the installation that asks.
	By string `json:"by"`
	// Number grows with each question of this installation.
	Number int64 `json:"number"`
	// Answered: the installation that manages the object has answered.
	Answered bool `json:"answered,omitempty"`
}

// maxQuestion bounds a question that is read, in bytes, because any client may have written it.
const maxQuestion = 1 << 9

// Parse parses a question; nil if it is invalid.
func Parse(text string) *Question {
	var q Question
	if len(text) > maxQuestion || json.Unmarshal([]byte(text), &q) != nil || !Valid(q.By) || q.Number < 1 || q.Number > 1<<52 {
		return nil
	}
	return &q
}

func (q Question) String() string {
	b, _ := json.Marshal(q) // strings and numbers can always be marshalled
	return string(b)
}

// Valid tells whether the text can be the name of an installation.
func Valid(name string) bool {
	return name != "" && len(name) <= cachev1alpha1.MaxAnnotation && strings.IndexFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

// Seen has the words of an object's annotations about its operator.
type Seen struct {
	// Operator is the installation that manages the object; empty if none is named.
	Operator string
	// Question is the present question; nil if there is none.
	Question *Question
	// For is how long this installation has seen both unchanged.
	For time.Duration
}

// Step is an installation's next step with an object.
type Step int

// The steps. With Manage, Claim, Answer and Drop the installation manages the object, and
// reconciles it.
const (
	// Manage: the object has this installation's name.
	Manage Step = iota
	// Claim: write this installation's name.
	Claim
	// Answer: answer the other installation's question.
	Answer
	// Drop: remove a question that no longer matters.
	Drop
	// LeaveAlone: another installation manages the object.
	LeaveAlone
	// Ask: ask whether the other installation is running.
	Ask
	// TakeOver: take over from an installation that does not answer.
	TakeOver
)

// Manages tells whether the installation manages the object with this step.
func (s Step) Manages() bool { return s <= Drop }

// See parses what the object's annotations say about its operator. A value that can't be a name or a
// question was not written by an operator, and is ignored.
func See(object metav1.Object, unchangedFor time.Duration) Seen {
	says := object.GetAnnotations()
	seen := Seen{Question: Parse(says[cachev1alpha1.AnnotationOtherOperator]), For: unchangedFor}
	if name := says[cachev1alpha1.AnnotationOperator]; Valid(name) {
		seen.Operator = name
	}
	return seen
}

// Because says why the step writes, for the log.
func (s Step) Because(seen Seen) string {
	switch s {
	case Ask:
		return fmt.Sprintf("installation %q of the operator manages it: asked whether it is at work", seen.Operator)
	case TakeOver:
		return fmt.Sprintf("installation %q of the operator does not answer: this one manages it from now on", seen.Operator)
	case Answer:
		return fmt.Sprintf("installation %q of the operator has asked: this one manages it, and is at work", seen.Question.By)
	case Drop:
		return "no other installation of the operator asks any more"
	}
	return "this installation of the operator manages it"
}

// Next returns the step of the installation with this name, and the time until it looks again; 0 if an event
// will come.
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

// answer returns the step about a question of the installation that manages the object.
func answer(me string, seen Seen) (Step, time.Duration) {
	switch {
	case seen.Question.By == me:
		return Drop, 0
	case !seen.Question.Answered:
		return Answer, 0
	}
	return after(ForgetTime, seen.For, Drop, Manage)
}

// after returns the step then once the limit has passed, and until before, with the remaining time.
func after(limit, passed time.Duration, then, until Step) (Step, time.Duration) {
	if passed >= limit {
		return then, 0
	}
	return until, limit - passed
}

// Write writes the object's annotations for the step; false if the step writes nothing.
func Write(me string, step Step, object metav1.Object) bool {
	if step == Manage || step == LeaveAlone {
		return false
	}
	a := maps.Clone(object.GetAnnotations())
	if a == nil {
		a = map[string]string{}
	}
	defer object.SetAnnotations(a)
	question := See(object, 0).Question
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
