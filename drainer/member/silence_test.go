//go:build linux

package member_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/export"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/test/wait"
)

// A mover is told since when no client has called the member. The supervisor's own requests, and its stores when the
// list changes, don't count as calls.
func TestAMoverIsToldOfTheSilenceOfClients(t *testing.T) {
	t.Parallel()
	list := filepath.Join(t.TempDir(), "list")
	node := contract.Node{Host: "cache-0.cache", IP: "10.0.0.1", Port: 11211}
	tell(t, list, &contract.List{Version: 1, Nodes: []contract.Node{node}})
	args := drainertest.MemberArgs(contract.Connection{}, t.TempDir(), memcachedtest.FreePort(t), "-m", "64")
	args.List, args.Discovery = list, fmt.Sprintf("127.0.0.1:%d", memcachedtest.FreePort(t))
	args.ExportPort = int32(memcachedtest.FreePort(t))
	drainertest.SuperviseCommand(t, "", args)
	conn, err := memcache.Dial(t.Context(), fmt.Sprintf("127.0.0.1:%d", args.Port))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// silence waits until the mover is told of all commands so far.
	silence := func() (told *export.Silence) {
		t.Helper()
		wait.For(t, "the silence", func() error {
			stats, err := conn.Stats("")
			if err != nil {
				return err
			}
			commands, err := memcache.ClientCommands(stats)
			if err != nil {
				return err
			}
			request := &export.Request{Client: "gomemcache", Self: export.NoServer, Servers: []export.Listed{{Host: "127.0.0.1", Port: 1}}}
			s, err := export.Open(t.Context(), memcache.Dialer{}, fmt.Sprintf("127.0.0.1:%d", args.ExportPort), request, wait.Long)
			if err != nil {
				return err
			}
			defer s.Close()
			if told = s.Silence; told == nil || told.Commands != commands {
				return fmt.Errorf("%+v, %d commands", told, commands)
			}
			return nil
		})
		return told
	}
	// stored waits for another item with the list than that with this CAS.
	stored := func(before uint64) (cas uint64) {
		t.Helper()
		wait.For(t, "the item with the list", func() error {
			if cas, err = conn.CAS([]byte(contract.ListKey)); err == nil && (cas == 0 || cas == before) {
				err = fmt.Errorf("its CAS is %d", cas)
			}
			return err
		})
		return cas
	}
	first := stored(0)
	before := silence()
	next := &contract.List{Version: 2, Nodes: []contract.Node{node, {Host: "cache-1.cache", IP: "10.0.0.2", Port: 11211}}}
	changed := time.Now()
	tell(t, list, next)
	stored(first)
	after := silence()
	if now := time.Since(changed).Seconds(); after.Commands == before.Commands || after.Seconds < now {
		t.Errorf("%+v, %.3f s after the list has changed; %+v before", after, now, before)
	}
	called := time.Now()
	if _, err := conn.Get([]byte("nothing")); err != nil {
		t.Fatal(err)
	}
	if s := silence(); s.Seconds > time.Since(called).Seconds() {
		t.Errorf("%+v, %s after a client has called", s, time.Since(called))
	}
}
