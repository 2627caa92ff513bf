package router_test

import (
	"fmt"
	"strings"
	"testing"

	"example.com/memcached-operator/drainer/ringchange"
	"example.com/memcached-operator/drainer/router"
)

// A read may have any number of keys. If its line is too long to be kept, the keys are asked for as they
// arrive, and answered as in any other read.
func TestAReadOfAnyLengthIsAnswered(t *testing.T) {
	t.Parallel()
	const maxMemory, length = 2 << 20, 5 << 18 // a line of more than 1 MiB is not kept
	all := members(t, 2)
	moves := &router.Table{State: ringchange.Settle, Old: ring(t, all[0]), New: ring(t, all[1])}
	routed := dial(t, start(t, router.Config{MaxMemory: maxMemory}, all[0]).address)
	moving := dial(t, start(t, router.Config{MaxMemory: maxMemory, Table: moves}).address)
	value := func(i int) string { return fmt.Sprintf("VALUE here-%d 0 6\r\nvalue%d\r\n", i, i) }
	for i := range 5 {
		routed.want(fmt.Sprintf("set here-%d 0 0 6\r\nvalue%d\r\n", i, i), "STORED\r\n")
	}
	const end, tooLong = "END\r\n", "CLIENT_ERROR bad command line format\r\n"
	long := strings.Repeat("k", 250)
	var many, found strings.Builder
	for i := 0; many.Len() < length; i++ {
		fmt.Fprintf(&many, " %s-%d here-%d", long[:150+i%50], i, i%1000)
		if i%1000 < 5 {
			found.WriteString(value(i % 1000))
		}
	}
	missing, blanks := strings.Repeat(" "+long[:199], length/200), strings.Repeat(" ", length)
	for name, test := range map[string][2]string{
		"hits and misses":     {"get" + many.String() + "\r\n", found.String() + end},
		"misses":              {"get" + missing + "\r\n", end},
		"a hit at the end":    {"get" + missing + " here-1\r\n", value(1) + end},
		"a line feed alone":   {"get" + missing + " here-1\n", value(1) + end},
		"blanks at the end":   {"get here-1" + blanks + "\r\n", value(1) + end},
		"blanks at first":     {"get" + blanks + "here-2\r\n", value(2) + end},
		"blanks alone":        {"get" + blanks + "\r\n", "ERROR\r\n"},
		"the longest key":     {"get" + missing + " " + long + " here-3\r\n", value(3) + end},
		"a NUL in the middle": {"get here-1" + missing + " here-2\x00 here-3" + missing + "\r\n", value(1) + value(2) + end},
		"a NUL at the end":    {"get here-1" + missing + " here-2\x00\r\n", value(1) + value(2) + end},
		"what follows":        {"get here-1" + missing + " here-2\r\nget here-3\r\nset after 0 0 1\r\nx\r\nget after\r\n", value(1) + value(2) + end + value(3) + end + "STORED\r\nVALUE after 0 1\r\nx\r\n" + end},
		"two of them":         {"get here-1" + missing + "\r\nget here-2" + missing + "\r\n", value(1) + end + value(2) + end},
		"one that is kept":    {"get here-1" + missing[:100_000] + " here-2\r\n", value(1) + value(2) + end},
		// Values that were sent can't be taken back.
		"a key that is too long":           {"get here-1" + missing + " " + long + "k\r\n", value(1) + tooLong},
		"one in the middle":                {"get here-1" + missing + " " + long + "k here-2" + missing + "\r\n", value(1) + tooLong},
		"one that is much longer":          {"get here-1" + missing + " " + long + long + long + " here-2" + missing + "\r\nget here-4\r\n", value(1) + tooLong + value(4) + end},
		"one that is longer than any line": {"get " + strings.Repeat("k", length) + "\r\nget here-4\r\n", tooLong + value(4) + end},
	} {
		for where, c := range map[string]*conversation{"a router": routed, "a router in a ring change": moving} {
			if c == moving && name != "what follows" { // it asks for each key three times
				continue
			}
			if got := c.ask(test[0]); got != test[1] {
				t.Fatalf("%s: %s answers %d bytes, %.200q, want %d, %.200q", name, where, len(got), got, len(test[1]), test[1])
			}
		}
	}
}
