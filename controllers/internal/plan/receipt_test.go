package plan_test

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/drainer/contract"
)

// The translation loses neither whether a receipt adds up nor a number. So the record on a claim is read as
// the same receipt.
func TestATranslatedReceiptSaysTheSame(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		small := func() int64 { return int64(r.IntN(3)) }
		in := &contract.Receipt{
			Version: 1, Source: []string{"uid", "another", "move/uid/5-cafe"}[r.IntN(3)], Complete: r.IntN(4) > 0, Clean: r.IntN(2) > 0, Found: small() + small(),
			Outcomes: contract.Outcomes{Added: small(), Expired: small() / 2, Failed: small() / 2}, ExitCode: r.IntN(5) * r.IntN(2),
		}
		if in.ExitCode != 0 {
			in.Reason, in.Message = "SourceCorrupt", "torn"
		}
		got := plan.ReceiptOf(in)
		for _, source := range []string{"uid", "another", "move/uid/5-cafe"} {
			if want, err := in.AddsUp(source), got.AddsUp(source); (err == nil) != (want == nil) || err != nil && err.Error() != want.Error() {
				t.Fatalf("%+v for %s: %v, want %v", in, source, err, want)
			}
		}
		if diff := cmp.Diff(*in, plan.ReceiptNumbers(got)); diff != "" {
			t.Fatalf("-want +got:\n%s", diff)
		}
		again, err := plan.ParseReceipt(got.Text)
		if err != nil || again.Text != got.Text || (again.Err == nil) != (got.Err == nil) || again.Final != got.Final || again.Unreadable != got.Unreadable {
			t.Fatalf("read again: %+v, %v; want %+v", again, err, got)
		}
	}
	if plan.ReceiptOf(nil) != nil || plan.ReceiptNumbers(nil).Found != 0 {
		t.Error("no receipt counts something")
	}
}
