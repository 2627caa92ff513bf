package router_test

import (
	"fmt"
	"strings"
	"testing"

	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/ringchange"
	"example.com/memcached-operator/drainer/router"
)

// A new owner that is full, and evicts nothing (-M), blocks neither a delete nor a touch in a ring change.
func TestADeleteAndATouchReachAKeyWhoseNewOwnerIsFull(t *testing.T) {
	t.Parallel()
	old, full := members(t, 1)[0], members(t, 1, memcachedtest.FullArgs...)[0]
	at, there := dial(t, old.Address()), dial(t, full.Address())
	for n := range 8 {
		there.want(fmt.Sprintf("set there-%d 0 0 1\r\n5\r\n", n), "STORED\r\n")
	}
	full.Fill(t)
	for _, state := range []ringchange.State{ringchange.Prepare, ringchange.Settle, ringchange.Move} {
		routed := dial(t, start(t, router.Config{Table: &router.Table{State: state, Old: ring(t, old), New: ring(t, full)}}).address)
		for i, text := range []string{"delete KEY\r\n", "md KEY\r\n", "md KEY T30\r\n"} {
			key := fmt.Sprintf("%v-%d", state, i)
			at.want("set "+key+" 0 0 1\r\nx\r\n", "STORED\r\n")
			if got := routed.ask(strings.ReplaceAll(text, "KEY", key)); got != "DELETED\r\n" && got != "HD\r\n" {
				t.Errorf("%v: %q is answered %q", state, text, got)
			}
			routed.want("get "+key+"\r\n", "END\r\n")
		}
		if state == ringchange.Settle {
			routed.want("add there-0 0 0 1\r\nx\r\nadd there-1 0 0 1 noreply\r\nx\r\n", "NOT_STORED\r\n")
			routed.want("get there-0 there-1\r\n", "VALUE there-0 0 1\r\n5\r\nVALUE there-1 0 1\r\n5\r\nEND\r\n")
			routed.want("delete there-2\r\nmd there-3\r\nmd there-4 q\r\n", "DELETED\r\nHD\r\n")
			routed.want("get there-2 there-3 there-4\r\n", "END\r\n")
		}
		stale := fmt.Sprintf("%v-stale", state)
		at.want("set "+stale+" 0 0 1\r\nx\r\n", "STORED\r\n")
		if got := routed.ask("md " + stale + " I T30\r\nmg " + stale + " v\r\n"); got != "HD\r\nVA 1 X W\r\nx\r\n" && got != "HD\r\nVA 1 W X\r\nx\r\n" {
			t.Errorf("%v: a marked item: %q", state, got)
		}
		for i, text := range []string{"touch KEY 500\r\n", "gat 500 KEY\r\n", "mg KEY v T500\r\n", "mg KEY v N30 T500\r\n"} {
			key := fmt.Sprintf("%v-touched-%d", state, i)
			at.want("set "+key+" 0 0 1\r\nx\r\n", "STORED\r\n")
			if got := routed.ask(strings.ReplaceAll(text, "KEY", key)); strings.Contains(got, "ERROR") || got == "END\r\n" {
				t.Errorf("%v: %q is answered %q", state, text, got)
			}
			if got := at.ask("mg " + key + " t\r\n"); state != ringchange.Move && !strings.HasPrefix(got, "HD t4") && !strings.HasPrefix(got, "HD t500") {
				t.Errorf("%v: after %q it has the time %q", state, text, got)
			}
		}
	}
}
