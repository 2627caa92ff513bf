package ringchange_test

import (
	"testing"

	"example.com/memcached-operator/drainer/ringchange"
)

// Between a client's mg without a value and the look at the value, the item may become another one. A
// placeholder's header must not reach the client as the item's.
func TestAHeaderOfAPlaceholderIsNotSaidOfTheItemAfterIt(t *testing.T) {
	t.Parallel()
	const value = "01234567890123456789"
	job := ringchange.OfText([]byte("mg n s t\r\n"), false, ringchange.Finish, 0)
	step := job.Start()
	for i, said := range []struct {
		to     ringchange.Action
		answer string
	}{
		{ringchange.Ask, "HD s20 t6 f0 c7\r\n"}, // a placeholder
		{ringchange.PeekAsked, "VA 20 f0 c8 t-1\r\n" + value + "\r\n"},
		{ringchange.Ask, "HD s20 t-1 f0 c8\r\n"},
	} {
		if step.Action != said.to {
			t.Fatalf("step %d is %+v, want action %d", i, step, said.to)
		}
		job.Append(nil, true, 1, 0)
		job.Take([]byte(said.answer))
		step = job.Heard(1)
	}
	if answer, _ := job.Answer(1, false); step.Action != ringchange.Done || string(answer) != "HD s20 t-1\r\n" {
		t.Errorf("%+v, %q", step, answer)
	}
}

// A client may give its item the CAS value that the lease's ma asks for.
func TestAnItemWithTheCASValueOfALeaseIsNone(t *testing.T) {
	t.Parallel()
	request := ringchange.ForKey([]byte("n"), false)
	for answer, want := range map[string]ringchange.Code{
		leased:                                 ringchange.Leased,
		"VA 1 c9\r\n7\r\n":                     ringchange.Refused,
		"EX\r\n":                               ringchange.Refused,
		"VA 20 c9\r\n18364758544493064721\r\n": ringchange.Refused,
	} {
		if got, _ := request.Result(ringchange.Step{Action: ringchange.Lease, Place: ringchange.New}, []byte(answer)); got.Code != want {
			t.Errorf("%q: %+v, want %d", answer, got, want)
		}
	}
}
