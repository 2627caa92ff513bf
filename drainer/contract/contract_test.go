package contract

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// good returns a receipt that adds up for source "uid".
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
		"of a drain that failed":     {func(r *Receipt) { r.Reason = "SourceCorrupt" }, "the drainer failed: SourceCorrupt (exit code 0)"},
		"with an exit code":          {func(r *Receipt) { r.ExitCode = ExitFailed }, "exit code"},
		"not to its end":             {func(r *Receipt) { r.Complete = false }, "not read to its end"},
		"an item refused":            {func(r *Receipt) { r.Added, r.Rejected = 3, 1 }, "1 items were rejected"},
		"an item without an answer":  {func(r *Receipt) { r.Added, r.Failed = 3, 1 }, "1 failed"},
		"one refused beside the sum": {func(r *Receipt) { r.Rejected = 1 }, "1 items were rejected"},
		"an item unaccounted for":    {func(r *Receipt) { r.Added = 3 }, "10 items were found but 9 accounted for"},
		"an item counted twice":      {func(r *Receipt) { r.Expired = 3 }, "10 items were found but 11 accounted for"},
		"less than none was added":   {func(r *Receipt) { r.Added, r.Expired = -1, 7 }, "less than no items"},
		"less than none was present": {func(r *Receipt) { r.AlreadyPresent, r.Expired = -1, 6 }, "less than no items"},
		"less than none expired":     {func(r *Receipt) { r.Expired, r.Added = -1, 7 }, "less than no items"},
		"less than none invalidated": {func(r *Receipt) { r.Invalidated, r.Added = -1, 6 }, "less than no items"},
		"less than none found":       {func(r *Receipt) { r.Found, r.Outcomes = -1, Outcomes{} }, "less than no items"},
		"a sum that wraps to less":   {func(r *Receipt) { r.Added, r.Expired = math.MaxInt64, 1 }, "more items than there can be"},
		"a sum that wraps to found": {func(r *Receipt) {
			r.Outcomes = Outcomes{Added: math.MaxInt64, AlreadyPresent: math.MaxInt64, Expired: 12}
		}, "more items than there can be"},
		"the most of one kind that is believed": {func(r *Receipt) {
			r.Found, r.Outcomes = math.MaxInt64/5, Outcomes{Added: math.MaxInt64 / 5}
		}, ""},
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
	survivors := func(name string) []Survivor {
		return slices.Repeat([]Survivor{{Name: name, Added: 1 << 40}}, 512)
	}
	for name, change := range map[string]func(*Receipt){
		"short":                         func(*Receipt) {},
		"a long message":                func(r *Receipt) { r.Message = strings.Repeat("m", 10*MaxReceiptBytes) },
		"JSON writes one byte as six":   func(r *Receipt) { r.Message = strings.Repeat("<", 1024) },
		"control characters":            func(r *Receipt) { r.Message = strings.Repeat("\x01", 10*MaxReceiptBytes) },
		"no text":                       func(r *Receipt) { r.Message = strings.Repeat("\xff", 10*MaxReceiptBytes) },
		"a message of whole characters": func(r *Receipt) { r.Message = strings.Repeat("é", 1024) + "x" },
		"many survivors":                func(r *Receipt) { r.Survivors = survivors("cache-100.cache.namespace.svc:11211") },
		"one with a long name":          func(r *Receipt) { r.Survivors = survivors(strings.Repeat("<", 5000))[:1] },
		"a long version":                func(r *Receipt) { r.SourceVersion = strings.Repeat("1", 5000) },
		"a version that is no text":     func(r *Receipt) { r.SourceVersion = strings.Repeat("\xff", 5000) },
		"all of it": func(r *Receipt) {
			r.Message, r.SourceVersion, r.Survivors = strings.Repeat("<", 5000), strings.Repeat("<", 5000), survivors("<<<")
		},
	} {
		for _, code := range []int{ExitOK, ExitRejected} {
			t.Run(fmt.Sprintf("%s, exit code %d", name, code), func(t *testing.T) {
				r := good()
				if change(&r); code != ExitOK {
					r.ExitCode, r.Reason = code, "ItemsRejected"
				}
				b, err := r.Marshal()
				if err != nil || len(b) > MaxReceiptBytes {
					t.Fatalf("%d bytes, %v", len(b), err)
				}
				parsed, err := ParseReceipt(string(b))
				if err != nil {
					t.Fatal(err)
				}
				if err := parsed.AddsUp("uid"); code == ExitOK && err != nil {
					t.Errorf("cut, it doesn't add up any more: %v", err)
				}
				if parsed.ExitCode != r.ExitCode || parsed.Reason != r.Reason || (parsed.Message == "") != (r.Message == "") {
					t.Errorf("what is left: %d, %s, %q", parsed.ExitCode, parsed.Reason, parsed.Message)
				}
				if n := len(parsed.Survivors); n+parsed.SurvivorsOmitted != len(r.Survivors) {
					t.Errorf("%d survivors, %d left out, of %d", n, parsed.SurvivorsOmitted, len(r.Survivors))
				}
				if r.Message == "" && len(r.Survivors) > 1 && len(parsed.Survivors) == 0 {
					t.Error("no survivor is left")
				}
				again, err := parsed.Marshal() // the controller records what it has parsed
				if err != nil || string(again) != string(b) {
					t.Errorf("encoded once more: %s, want %s; %v", again, b, err)
				}
			})
		}
	}
}

func TestReceiptThatCannotBeCutIsNotWritten(t *testing.T) {
	r := good()
	r.Reason = strings.Repeat("R", MaxReceiptBytes)
	if b, err := r.Marshal(); err == nil || b != nil {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

func TestAMovesFlagsAreItsArguments(t *testing.T) {
	r := Move{Source: "cache-2=a:1", Patience: 90 * time.Second, ExportPort: 11212, Discard: []string{"b:2"},
		Begin:    Begin{File: "/begin/ring", When: "7", Within: time.Minute, Follow: true},
		Transfer: Transfer{SourceID: "id", Client: "gomemcache", Servers: []string{"b:2", "c:3"}, Deadline: time.Hour}}
	want := []string{"move", "--source=cache-2=a:1", "--discard=b:2", "--export-port=11212", "--patience=1m30s",
		"--begin-file=/begin/ring", "--begin-when=7", "--begin-within=1m0s", "--follow", "--source-id=id", "--client=gomemcache",
		"--unreachable-timeout=0s", "--receipt=", "--deadline=1h0m0s", "--server=b:2", "--server=c:3"}
	if diff := cmp.Diff(want, r.Args()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	r.Patience, r.Begin = 0, Begin{}
	if got := strings.Join(r.Args(), " "); strings.Contains(got, FlagPatience) || strings.Contains(got, "begin") || strings.Contains(got, FlagFollow) {
		t.Error(got)
	}
}
