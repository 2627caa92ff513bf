package router_test

import (
	"fmt"
	"strings"
	"testing"

	"example.com/memcached-operator/drainer/ringchange"
	"example.com/memcached-operator/drainer/router"
	"example.com/memcached-operator/drainer/routing"
	"example.com/memcached-operator/test/wait"
)

// A name may lead to another member for a while. In a ring change, the router would delete at one of the two
// what it has stored at the other. So the router asks neither, and their items stay.
func TestTwoNamesOfOneMemberLoseNoValue(t *testing.T) {
	t.Parallel()
	all := members(t, 2)
	both := router.Ring{Servers: []routing.Server{
		{Host: "127.0.0.1", Port: uint16(all[0].Port)},
		{Host: "127.0.0.1", Port: uint16(all[1].Port)},
		{Host: "localhost", Port: uint16(all[0].Port)},
	}}
	var err error
	if both.Owner, err = routing.New("pymemcache", both.Servers); err != nil {
		t.Fatal(err)
	}
	before := ring(t, all...)
	r := start(t, router.Config{Loops: 1, Fence: true, Table: &router.Table{Number: 7, New: before}})
	c := dial(t, r.address)
	const keys = 100
	key := func(i int) string { return fmt.Sprintf("key-%d", i) }
	for i := range keys {
		c.want("set "+key(i)+" 0 0 3\r\nold\r\n", "STORED\r\n")
	}
	if err := r.Apply(&router.Table{Number: 8, State: ringchange.Prepare, Old: before, New: both}); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "the router to tell why it does not go on", func() error {
		if _, why := r.Acknowledged(); !strings.Contains(why, "its name resolves to") {
			return fmt.Errorf("%q", why)
		}
		return nil
	})
	served := 0
	for i := range keys {
		value := "old"
		if c.ask("set "+key(i)+" 0 0 3\r\nnew\r\n") == "STORED\r\n" {
			value = "new"
			served++
		}
		direct := dial(t, all[before.Owner.Owner([]byte(key(i)))].Address())
		direct.want("get "+key(i)+"\r\n", "VALUE "+key(i)+" 0 3\r\n"+value+"\r\nEND\r\n")
		_ = direct.Close()
	}
	if served == 0 {
		t.Error("the member that has a name of its own is not asked either")
	}
}
