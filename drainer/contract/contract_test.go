package contract

import (
	"strings"
	"testing"
)

// good is a receipt that adds up for source "uid".
func good() Receipt {
	return Receipt{
		Version: 1, Source: "uid", Complete: true, Clean: true, Found: 10,
		Outcomes: Outcomes{Added: 4, AlreadyPresent: 3, Expired: 2, Invalidated: 1},
	}
}

func TestReceiptAddsUpOnlyWhenNothingWasLost(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Receipt)
		want   string
	}{
		"good":                       {func(*Receipt) {}, ""},
		"of a crashed member":        {func(r *Receipt) { r.Clean = false }, ""},
		"of an empty one":            {func(r *Receipt) { r.Found, r.Outcomes = 0, Outcomes{} }, ""},
		"of another claim":           {func(r *Receipt) { r.Source = "other" }, `for "other", not for "uid"`},
		"of no claim":                {func(r *Receipt) { r.Source = "" }, `for "", not for "uid"`},
		"of a drain that failed":     {func(r *Receipt) { r.Reason = "SourceCorrupt" }, "SourceCorrupt"},
		"with an exit code":          {func(r *Receipt) { r.ExitCode = ExitFailed }, "exit code"},
		"not to its end":             {func(r *Receipt) { r.Complete = false }, "not read to its end"},
		"an item refused":            {func(r *Receipt) { r.Added, r.Rejected = 3, 1 }, "1 items were rejected"},
		"an item without an answer":  {func(r *Receipt) { r.Added, r.Failed = 3, 1 }, "1 failed"},
		"one refused beside the sum": {func(r *Receipt) { r.Rejected = 1 }, "1 items were rejected"},
		"an item unaccounted for":    {func(r *Receipt) { r.Added = 3 }, "10 items were found but 9 accounted for"},
		"an item counted twice":      {func(r *Receipt) { r.Expired = 3 }, "10 items were found but 11 accounted for"},
	} {
		t.Run(name, func(t *testing.T) {
			r := good()
			test.change(&r)
			switch err := r.AddsUp("uid"); {
			case test.want == "" && err != nil:
				t.Errorf("it adds up, but: %v", err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestReceiptFitsInATerminationMessage(t *testing.T) {
	r := good()
	r.Message = strings.Repeat("m", 10*MaxReceiptBytes)
	for range 512 {
		r.Survivors = append(r.Survivors, Survivor{Name: "cache-100.cache.namespace.svc:11211", Added: 1 << 40})
	}
	b, err := r.Marshal()
	if err != nil || len(b) > MaxReceiptBytes {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	parsed, err := ParseReceipt(string(b))
	if err != nil {
		t.Fatal(err)
	}
	if err := parsed.AddsUp("uid"); err != nil {
		t.Errorf("cut, it doesn't add up any more: %v", err)
	}
	if n := len(parsed.Survivors); n == 0 || n+parsed.SurvivorsOmitted != len(r.Survivors) {
		t.Errorf("%d survivors, %d left out, of %d", n, parsed.SurvivorsOmitted, len(r.Survivors))
	}
}
