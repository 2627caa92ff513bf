package router_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bradfitz/gomemcache/memcache"

	"example.com/memcached-operator/drainer/router"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// application runs a program, and returns its error.
func application(t *testing.T, program string, args ...string) error {
	t.Helper()
	ctx, cancel := context.WithDeadline(t.Context(), wait.Deadline())
	defer cancel()
	if out, err := exec.CommandContext(ctx, program, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// The applications use real libraries, and know only the router's address.
func TestRealLibrariesWorkThroughTheRouter(t *testing.T) {
	t.Parallel()
	address := func(t *testing.T) string { return start(t, router.Config{}, members(t, 3)...).address }
	for library, module := range map[string]string{"pylibmc": "pylibmc", "pylibmc-binary": "pylibmc", "pymemcache": "pymemcache", "python-memcached": "memcache"} {
		t.Run(library, func(t *testing.T) {
			if library != "pymemcache" {
				tier.Second(t, "TestRealLibrariesWorkThroughTheRouter")
			}
			const python = "/usr/bin/python3" // Debian's, which has Debian's packages
			tier.Needs(t, "python3-"+module, exec.CommandContext(t.Context(), python, "-c", "import "+module).Run())
			if err := application(t, python, "testdata/libraries.py", library, address(t)); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("spymemcached", func(t *testing.T) {
		tier.Second(t, "TestRealLibrariesWorkThroughTheRouter")
		run := spymemcached(t)
		for _, protocol := range []string{"TEXT", "BINARY"} {
			if err := run(address(t), protocol); err != nil {
				t.Errorf("%s: %v", protocol, err)
			}
		}
	})
	t.Run("gomemcache", func(t *testing.T) {
		if err := gomemcache(address(t)); err != nil {
			t.Error(err)
		}
	})
}

// spymemcached returns a function that runs its application.
func spymemcached(t *testing.T) func(args ...string) error {
	t.Helper()
	const jar = "/usr/share/java/spymemcached.jar"
	_, err := os.Stat(jar)
	tier.Needs(t, "Java with spymemcached", errors.Join(err, exec.CommandContext(t.Context(), "javac", "-version").Run()))
	classes := t.TempDir()
	if err := application(t, "javac", "-cp", jar, "-d", classes, "testdata/Application.java"); err != nil {
		t.Fatal(err)
	}
	return func(args ...string) error {
		return application(t, "java", append([]string{"-XX:TieredStopAtLevel=1", "-cp", classes + ":" + jar, "Application"}, args...)...)
	}
}

// After an internal error, spymemcached leaves its connection, and so all keys, for seconds.
func TestWritesToADeadMemberLeaveSpymemcachedTheOthers(t *testing.T) {
	tier.Second(t, "TestADeadMembersKeysAreAnErrorToABinaryClient")
	t.Parallel()
	run, all := spymemcached(t), members(t, 2)
	r := start(t, router.Config{}, all...)
	routed := dial(t, r.address)
	dead, alive := keyOf(t, routed, all[0]), keyOf(t, routed, all[1])
	all[0].Kill()
	wait.For(t, "an error", func() error {
		if said := routed.ask("delete " + dead + "\r\n"); !strings.HasPrefix(said, "SERVER_ERROR") {
			return errors.New(said)
		}
		return nil
	})
	if err := run(r.address, "BINARY", dead, alive); err != nil {
		t.Error(err)
	}
}

// The libraries use only the binary protocol, with and without a login.
func TestRealBinaryLibrariesWorkThroughTheRouter(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]router.Config{"without a login": {}, "with a login": {Logins: logins}} {
		var user []string
		if config.Logins != nil {
			user = []string{"app", "secret"}
		}
		t.Run("Dalli "+name, func(t *testing.T) {
			if user == nil {
				tier.Second(t, "TestRealBinaryLibrariesWorkThroughTheRouter")
			}
			const ruby = "/usr/bin/ruby" // Debian's, which has Debian's packages
			tier.Needs(t, "ruby-dalli", exec.CommandContext(t.Context(), ruby, "-e", "require 'dalli'").Run())
			if err := application(t, ruby, append([]string{"testdata/dalli.rb", start(t, config, members(t, 3)...).address}, user...)...); err != nil {
				t.Error(err)
			}
		})
		t.Run("memjs "+name, func(t *testing.T) {
			tier.Second(t, "TestRealBinaryLibrariesWorkThroughTheRouter")
			modules := filepath.Join(tier.Clients(t), "node_modules")
			if err := application(t, "node", append([]string{"testdata/memjs.js", modules, start(t, config, members(t, 3)...).address}, user...)...); err != nil {
				t.Error(err)
			}
		})
	}
}

func gomemcache(address string) error {
	c := memcache.New(address)
	c.Timeout = wait.Long
	defer c.Close()
	var keys []string
	for i := range 300 {
		key := fmt.Sprintf("key-%d", i)
		keys = append(keys, key)
		if err := c.Set(&memcache.Item{Key: key, Value: bytes.Repeat([]byte(key), i), Flags: uint32(i)}); err != nil {
			return err
		}
	}
	found, err := c.GetMulti(append(keys, "nothing"))
	if err != nil || len(found) != len(keys) {
		return fmt.Errorf("%d items: %w", len(found), err)
	}
	for i, key := range keys {
		if item := found[key]; item == nil || string(item.Value) != strings.Repeat(key, i) || item.Flags != uint32(i) {
			return fmt.Errorf("%s: %+v", key, item)
		}
	}
	item := found[keys[7]]
	if item.Value = []byte("5"); c.CompareAndSwap(item) != nil || !errors.Is(c.CompareAndSwap(item), memcache.ErrCASConflict) {
		return errors.New("cas")
	}
	if n, err := c.Increment(keys[7], 2); err != nil || n != 7 {
		return fmt.Errorf("incr: %d, %w", n, err)
	}
	if err := errors.Join(c.Ping(), c.Touch(keys[7], 100), c.Delete(keys[7]), c.FlushAll()); err != nil {
		return err
	}
	if _, err := c.Get(keys[8]); !errors.Is(err, memcache.ErrCacheMiss) {
		return fmt.Errorf("after flush_all: %w", err)
	}
	return nil
}
