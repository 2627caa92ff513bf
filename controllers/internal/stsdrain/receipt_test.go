package stsdrain

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"example.com/memcached-operator/drainer/contract"
)

const counts = "receipt.found == receipt.moved + receipt.skipped"

func compiled(t *testing.T, text string) *Rule {
	t.Helper()
	rule, err := CompileRule(text)
	if err != nil {
		t.Fatal(err)
	}
	return rule
}

func TestAReceiptHoldsIfTheRuleIsTrueOfTheMessage(t *testing.T) {
	for what, test := range map[string]struct{ rule, message string }{
		"no rule":                         {"", ""},
		"no rule, and no JSON":            {"", "moved 3 files"},
		"counts":                          {counts, `{"found":3,"moved":2,"skipped":1}`},
		"a line's end":                    {counts, "{\"found\":3,\"moved\":2,\"skipped\":1}\n"},
		"counts of a language of doubles": {"receipt.found == 3 && receipt.found >= 2 && receipt.moved < 3", `{"found":3.0,"moved":2.5}`},
		"counts above int":                {"receipt.bytes > 9", `{"bytes":18446744073709551615}`},
		"a field that may be missing":     {"!has(receipt.failed) || receipt.failed == 0", `{}`},
		"null":                            {"receipt.error == null", `{"error":null}`},
		"a list":                          {"receipt.all(r, r.lost == 0) && size(receipt) == 2", `[{"lost":0},{"lost":0}]`},
		"a text":                          {"receipt == 'done'", `"done"`},
		"a bool":                          {"receipt", `true`},
		"a nested one":                    {"receipt.shards.exists(s, s.name == 'a')", `{"shards":[{"name":"a"}]}`},
	} {
		if err := compiled(t, test.rule).Check(test.message); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// The message of a status is all that a person has to find out why a drain failed.
func TestAPersonReadsWhyAReceiptDoesNotHold(t *testing.T) {
	long := `{"keys":["` + strings.Repeat(`a","`, 1500) + `a"]}`
	for what, test := range map[string]struct{ rule, message, want string }{
		"no message": {counts, "", "the drainer ended with exit code 0 and left no termination message, and spec.receipt needs JSON in /dev/termination-log"},
		"no JSON": {counts, "moved 3\nfiles",
			"the drainer's termination message is not JSON: invalid character 'm' looking for beginning of value: moved 3 files"},
		"half of JSON": {counts, `{"found":3`, `the drainer's termination message is not JSON: its end is missing: {"found":3`},
		"two values":   {counts, `{} {}`, `the drainer's termination message is not JSON: something follows the first value: {} {}`},
		"cut by Kubernetes": {counts, `{"found": ` + strings.Repeat("1", contract.MaxReceiptBytes),
			"the drainer's termination message is not JSON: its end is missing (Kubernetes keeps 4096 bytes of it): {\"found\": " + strings.Repeat("1", 190) + "…"},
		"a number beyond all": {counts, `{"found":1e999}`, `the drainer's termination message is not JSON: number 1e999 is too large: {"found":1e999}`},
		"not a bool":          {"receipt.found", `{"found":3}`, `spec.receipt has to be true or false, and it is of type int for the drainer's termination message {"found":3}`},
		"false": {counts, `{"found":3,"moved":2,"skipped":0}`,
			`spec.receipt is false: ` + counts + `; the drainer's termination message is {"found":3,"moved":2,"skipped":0}`},
		"a missing field": {counts, `{"found":3}`,
			`spec.receipt can't be evaluated: no such key: moved; the drainer's termination message is {"found":3}`},
		"no object": {counts, `3`, `spec.receipt can't be evaluated: no such key: found; the drainer's termination message is 3`},
		"too costly": {"receipt.keys.all(a, receipt.keys.all(b, receipt.keys.all(c, a + b + c != '')))", long,
			"spec.receipt takes too much time for this termination message: simplify it, or have the drainer write less: " + long[:mostQuoted] + "…"},
	} {
		err := compiled(t, test.rule).Check(test.message)
		if err == nil {
			t.Errorf("%s: the receipt holds", what)
		} else if diff := cmp.Diff(test.want, err.Error()); diff != "" {
			t.Errorf("%s: -want +got:\n%s", what, diff)
		}
	}
}

func TestAPersonReadsWhatIsWrongWithARule(t *testing.T) {
	for rule, want := range map[string]string{
		"receipt.found ==":       "spec.receipt is no CEL expression: line 1, column 17: Syntax error: mismatched input '<EOF>' expecting",
		"receipt.found == foun":  "spec.receipt is no CEL expression: line 1, column 18: undeclared reference to 'foun'",
		"\nreceipt.f( == 1":      "spec.receipt is no CEL expression: line 2, column 12: Syntax error",
		"size(receipt)":          "spec.receipt has to be true or false, and it is of type int",
		"'receipt'":              "spec.receipt has to be true or false, and it is of type string",
		"receipt.a == '\x01'":    "spec.receipt is no CEL expression: it has the character '\\x01', which can't be read",
		"receipt.a.matches('(')": "spec.receipt can't be evaluated: error parsing regexp",
	} {
		_, err := CompileRule(rule)
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.ContainsAny(err.Error(), "\n\t") {
			t.Errorf("%q: want %q, got %v", rule, want, err)
		}
	}
}

// A later rule doesn't undo a proof, and a copied record proves nothing.
func TestARecordProvesTheDrainOfOneClaim(t *testing.T) {
	holds := &Record{Claims: "first,uid", Rule: counts, Message: `{"found":3,"moved":2,"skipped":1}`}
	for what, test := range map[string]struct {
		record *Record
		want   string
	}{
		"its own":           {holds, ""},
		"without a rule":    {&Record{Claims: "uid"}, ""},
		"of another claim":  {&Record{Claims: "other,uid2"}, "the receipt is for claims"},
		"a rule that fails": {&Record{Claims: "uid", Rule: counts, Message: "{}"}, "no such key"},
		"no rule of CEL's":  {&Record{Claims: "uid", Rule: "receipt =="}, "spec.receipt is no CEL expression"},
	} {
		read, err := ParseRecord(test.record.Encode())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.record, read); diff != "" {
			t.Errorf("%s: -written +read:\n%s", what, diff)
		}
		if err := read.AddsUp("uid"); test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: want %q, got %v", what, test.want, err)
		}
	}
}

func TestTheLongestRecordFits(t *testing.T) {
	crabs := compiled(t, "receipt != '"+strings.Repeat("\U0001F980", 1024-len("receipt != ''"))+"'")
	quotes := compiled(t, "receipt != '"+strings.Repeat(`"`, 1024-len("receipt != ''"))+"'")
	for _, r := range []*Record{
		NewRecord(strings.Repeat("u", roomForClaims), crabs, `"`+strings.Repeat(`\"`, contract.MaxReceiptBytes/2-1)+`"`),
		NewRecord(strings.Repeat("u", roomForClaims), quotes, `"`+strings.Repeat("\u2028", contract.MaxReceiptBytes/3-1)+`"`),
		NewRecord(strings.Repeat("u", roomForClaims), nil, strings.Repeat("\x01", contract.MaxReceiptBytes)),
		NewRecord(strings.Repeat("u", roomForClaims), nil, strings.Repeat("\xff", contract.MaxReceiptBytes)),
		NewRecord(strings.Repeat("u", roomForClaims), nil, strings.Repeat("\n", contract.MaxReceiptBytes)),
		NewRecord(strings.Repeat("u", roomForClaims), nil, strings.Repeat("\n", 2*contract.MaxReceiptBytes)),
	} {
		text := r.Encode()
		if len(text) > MaxRecord {
			t.Errorf("%d bytes, want %d at most: %.80s", len(text), MaxRecord, text)
		}
		if read, err := ParseRecord(text); err != nil || *read != *r {
			t.Errorf("it can't be read: %v", err)
		}
		if _, err := ParseRecord(text + strings.Repeat(" ", MaxRecord)); err == nil {
			t.Error("a longer one is read")
		}
	}
}

// FuzzNoMessageAndNoRuleStopTheOperator: a message and a rule are whatever a user wrote.
func FuzzNoMessageAndNoRuleStopTheOperator(f *testing.F) {
	f.Add(counts, `{"found":3,"moved":2,"skipped":1}`)
	f.Add("receipt.all(a, receipt.all(b, a != b))", `[1,2,3]`)
	f.Add("receipt.matches('a+')", `"aaa"`)
	f.Add("receipt.x[3u] == duration('1h')", `{"x":[]}`)
	f.Add("1/receipt == 1", "0")
	f.Fuzz(func(t *testing.T, text, message string) {
		// The API server refuses a longer rule, and the kubelet cuts a longer message.
		text, message = text[:min(len(text), 1024)], message[:min(len(message), contract.MaxReceiptBytes)]
		rule, err := CompileRule(text)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\t") {
				t.Errorf("more than a line: %v", err)
			}
			return
		}
		err = rule.Check(message)
		if err == nil && rule != nil && !json.Valid([]byte(message)) {
			t.Errorf("%q is true of %q, which is not JSON", text, message)
		}
		if err != nil {
			return
		}
		record := NewRecord("uid", rule, message).Encode()
		if read, err := ParseRecord(record); err != nil || len(record) > MaxRecord || utf8.ValidString(text) && read.AddsUp("uid") != nil {
			t.Errorf("%q can't be read, or doesn't add up: %v", record, err)
		}
	})
}

// A drainer may quote names that are not UTF-8. Its receipt can be read again all the same: otherwise its claim would
// never be released, and nothing would say why.
func TestARecordOfAMessageThatIsNotUTF8CanBeRead(t *testing.T) {
	rule := compiled(t, "receipt.found == 3 && size(receipt.name) > 0")
	begin, end := `{"found": 3, "name": "`, `"}`
	message := begin + strings.Repeat("\xe9", contract.MaxReceiptBytes-len(begin)-len(end)) + end
	if err := rule.Check(message); err != nil {
		t.Fatal(err)
	}
	record, err := ParseRecord(NewRecord("claim", rule, message).Encode())
	if err != nil {
		t.Fatal(err)
	}
	if err := record.AddsUp("claim"); err != nil {
		t.Error(err)
	}
}
