package ringchange_test

import (
	"fmt"
	"testing"

	"example.com/memcached-operator/drainer/ringchange"
	"example.com/memcached-operator/drainer/wire"
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

// Between a client's get and the look at the value, the item may become another one. A placeholder's value must not
// reach the client, unless a client has given it to the item.
func TestAPlaceholdersValueIsNotSaidOfTheItemAfterIt(t *testing.T) {
	t.Parallel()
	type exchange struct {
		to     ringchange.Action
		answer string
	}
	const lease, ours = "VALUE n 0 20\r\n" + ringchange.LeaseValue + "\r\nEND\r\n", "VALUE n 0 20 %s\r\n" + ringchange.LeaseValue + "\r\nEND\r\n"
	for name, c := range map[string]struct {
		verb wire.Verb
		said []exchange
		want string
	}{
		"get, an item of another value": {wire.Get, []exchange{
			{ringchange.Ask, lease}, {ringchange.PeekAsked, "VA 1 f0 c8 t-1\r\n5\r\n"}, {ringchange.Ask, "VALUE n 0 1\r\n5\r\nEND\r\n"},
		}, "VALUE n 0 1\r\n5\r\nEND\r\n"},
		"get, an item of a client's with that value": {wire.Get, []exchange{
			{ringchange.Ask, lease}, {ringchange.PeekAsked, "VA 20 f0 c8 t-1\r\n" + ringchange.LeaseValue + "\r\n"},
		}, lease},
		"gets, another item of a client's with that value": {wire.Gets, []exchange{
			{ringchange.Ask, fmt.Sprintf(ours, "7")}, {ringchange.PeekAsked, "VA 20 f0 c8 t-1\r\n" + ringchange.LeaseValue + "\r\n"},
			{ringchange.Ask, fmt.Sprintf(ours, "8")}, {ringchange.PeekAsked, "VA 20 f0 c8 t-1\r\n" + ringchange.LeaseValue + "\r\n"},
		}, fmt.Sprintf(ours, "8")},
	} {
		job := ringchange.OfRead(&wire.Request{Verb: c.verb}, []byte("n"), ringchange.Move, 0)
		step := job.Start()
		for i, said := range c.said {
			if step.Action != said.to {
				t.Fatalf("%s: step %d is %+v, want action %d", name, i, step, said.to)
			}
			job.Append(nil, true, 1, 0)
			job.Take([]byte(said.answer))
			step = job.Heard(1)
		}
		if answer, _ := job.Answer(1, false); step.Action != ringchange.Done || string(answer) != c.want {
			t.Errorf("%s: %+v, %q", name, step, answer)
		}
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
