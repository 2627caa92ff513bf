package stsdrain

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"

	"example.com/memcached-operator/drainer/contract"
)

const (
	// variable is the message's name in an expression.
	variable = "receipt"
	// mostCost bounds one evaluation, in CEL's units: about a tenth of a second. Kubernetes bounds the
	// rules of a CRD in the same way.
	mostCost = 100_000
	// mostQuoted bounds the quoted part of a message, in bytes.
	mostQuoted = 200
)

// Rule is a compiled spec.receipt. A nil Rule holds for any message.
type Rule struct {
	text    string
	program cel.Program
}

// environment is CEL with its standard functions and macros, and the variable. A drainer that counts
// in a language without integers writes 3.0, which equals 3.
var environment = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(cel.Variable(variable, cel.DynType), cel.CrossTypeNumericComparisons(true))
})

// CompileRule compiles spec.receipt. An error says in one line what is wrong with the expression.
func CompileRule(text string) (*Rule, error) {
	if text == "" {
		return nil, nil
	}
	if at := strings.IndexFunc(text, unreadable); at >= 0 {
		return nil, fmt.Errorf("spec.receipt is no CEL expression: it has the character %q, which can't be read", []rune(text[at:])[0])
	}
	env, err := environment()
	if err != nil {
		return nil, err
	}
	ast, issues := env.Compile(text)
	if issues.Err() != nil {
		why := issues.Errors()[0]
		return nil, fmt.Errorf("spec.receipt is no CEL expression: line %d, column %d: %s", why.Location.Line(), why.Location.Column()+1, oneLine(why.Message))
	}
	if is := ast.OutputType(); !is.IsExactType(cel.BoolType) && !is.IsExactType(cel.DynType) {
		return nil, fmt.Errorf("spec.receipt has to be true or false, and it is of type %s", cel.FormatCELType(is))
	}
	program, err := env.Program(ast, cel.EvalOptions(cel.OptOptimize), cel.CostLimit(mostCost))
	if err != nil {
		return nil, fmt.Errorf("spec.receipt can't be evaluated: %s", oneLine(err.Error()))
	}
	return &Rule{text: text, program: program}, nil
}

// Check returns why the termination message of a drainer that ended with exit code 0 proves nothing.
func (r *Rule) Check(message string) error {
	if r == nil {
		return nil
	}
	message = readable(message)
	value, err := parse(message)
	if err != nil {
		return err
	}
	out, _, err := r.program.Eval(map[string]any{variable: value})
	switch {
	case err != nil && strings.Contains(err.Error(), "cost limit exceeded"):
		return fmt.Errorf("spec.receipt takes too much time for this termination message: simplify it, or have the drainer write less: %s", Quote(message))
	case err != nil:
		return fmt.Errorf("spec.receipt can't be evaluated: %s; the drainer's termination message is %s", oneLine(err.Error()), Quote(message))
	}
	if is, boolean := out.Value().(bool); !boolean {
		return fmt.Errorf("spec.receipt has to be true or false, and it is of type %s for the drainer's termination message %s", out.Type().TypeName(), Quote(message))
	} else if !is {
		return fmt.Errorf("spec.receipt is false: %s; the drainer's termination message is %s", oneLine(r.text), Quote(message))
	}
	return nil
}

// readable replaces the bytes that are not UTF-8, in JSON the bytes of a text: they would take six times the
// room in a record.
func readable(message string) string { return strings.ToValidUTF8(message, "?") }

// parse parses a message as JSON. Whole numbers become CEL's int, or uint above its range.
func parse(message string) (any, error) {
	if strings.TrimSpace(message) == "" {
		return nil, errors.New("the drainer ended with exit code 0 and left no termination message, and spec.receipt needs JSON in /dev/termination-log")
	}
	decoder := json.NewDecoder(strings.NewReader(message))
	decoder.UseNumber()
	var value any
	err := decoder.Decode(&value)
	if err == nil {
		if _, more := decoder.Token(); more != io.EOF {
			err = errors.New("something follows the first value")
		}
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("its end is missing")
	}
	if err == nil {
		value, err = numbers(value)
	}
	if err != nil {
		long := ""
		if len(message) >= contract.MaxReceiptBytes {
			long = fmt.Sprintf(" (Kubernetes keeps %d bytes of it)", contract.MaxReceiptBytes)
		}
		return nil, fmt.Errorf("the drainer's termination message is not JSON: %s%s: %s", oneLine(err.Error()), long, Quote(message))
	}
	return value, nil
}

// numbers replaces each number of a JSON value.
func numbers(value any) (any, error) {
	var err error
	switch v := value.(type) {
	case json.Number:
		return number(string(v))
	case []any:
		for i := range v {
			if v[i], err = numbers(v[i]); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for key := range v {
			if v[key], err = numbers(v[key]); err != nil {
				return nil, err
			}
		}
	case nil:
		return types.NullValue, nil
	}
	return value, nil
}

func number(text string) (any, error) {
	if whole, err := strconv.ParseInt(text, 10, 64); err == nil {
		return whole, nil
	}
	if whole, err := strconv.ParseUint(text, 10, 64); err == nil {
		return whole, nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil, fmt.Errorf("number %s is too large", text)
	}
	return f, nil
}

// unreadable tells whether no reader would see the character, which is neither a line's end nor a tab.
func unreadable(c rune) bool { return !unicode.IsPrint(c) && !strings.ContainsRune("\t\n\r", c) }

// Quote shows the beginning of a message in one line.
func Quote(message string) string {
	if len(message) <= mostQuoted {
		return oneLine(message)
	}
	return oneLine(strings.ToValidUTF8(message[:mostQuoted], "")) + "…"
}

// oneLine replaces characters that can't be shown in one line.
func oneLine(s string) string {
	return strings.TrimSpace(strings.Map(func(c rune) rune {
		if unicode.IsSpace(c) || !unicode.IsPrint(c) {
			return ' '
		}
		return c
	}, s))
}

// Record is what is written on a claim about its drain: the drainer's message, and the rule that it was true
// of. A later change of spec.receipt doesn't affect the record.
type Record struct {
	// Claims are the UIDs of the claims that were drained, separated by commas.
	Claims string `json:"claims"`
	// Rule is spec.receipt at the time when the drain succeeded; it may be empty.
	Rule    string `json:"rule,omitempty"`
	Message string `json:"message,omitempty"`
	// Set is the Job's claims.Job.SetVersion.
	Set string `json:"set,omitempty"`
}

// NewRecord records the message of a drainer, whose exit code was 0, and that rule holds for it.
func NewRecord(claims string, rule *Rule, message string) *Record {
	if rule != nil {
		return &Record{Claims: claims, Rule: rule.text, Message: readable(message)}
	}
	// The message is only for people.
	message = strings.Map(func(c rune) rune {
		if unreadable(c) {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(message[:min(len(message), contract.MaxReceiptBytes)], ""))
	return &Record{Claims: claims, Message: message}
}

// MaxRecord is the longest record, in bytes. In JSON, a quotation mark of the message takes two bytes.
const MaxRecord = 2*contract.MaxReceiptBytes + maxRule + roomForClaims + 128

// roomForClaims is what a record with the longest message has room for: the UIDs of 16 claims. A longer list, up to
// identity.MaxClaims, takes the room of a shorter message.
const roomForClaims = 16 * len("2c8b2c0e-7a6c-4b0f-9d0c-6f1c4b1d9e3a,")

// maxRule is the longest spec.receipt, in bytes: characters of four bytes each.
const maxRule = 4 * 1024

// Encode returns the record as an annotation's value.
func (r *Record) Encode() string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(r) // texts always have JSON
	return strings.TrimSuffix(b.String(), "\n")
}

// ParseRecord parses an annotation's value, which any client may have written.
func ParseRecord(annotation string) (*Record, error) {
	if len(annotation) > MaxRecord {
		return nil, fmt.Errorf("the receipt on the claim has %d bytes, and %d are the most", len(annotation), MaxRecord)
	}
	r := &Record{}
	decoder := json.NewDecoder(strings.NewReader(annotation))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(r); err != nil {
		return nil, fmt.Errorf("the receipt on the claim can't be read: %w", err)
	}
	if len(r.Message) > contract.MaxReceiptBytes || len(r.Rule) > maxRule {
		return nil, errors.New("the receipt on the claim is longer than a drainer's")
	}
	return r, nil
}

// AddsUp returns why the record proves no drain of the claim with this UID. AddsUp evaluates the rule.
func (r *Record) AddsUp(uid string) error {
	if !slices.Contains(strings.Split(r.Claims, ","), uid) {
		return fmt.Errorf("the receipt is for claims %q, not for this one, %s", Quote(r.Claims), uid)
	}
	rule, err := CompileRule(r.Rule)
	if err != nil {
		return err
	}
	return rule.Check(r.Message)
}
