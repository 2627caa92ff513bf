package drainer

import (
	"net"
	"syscall"
	"testing"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
)

// TestVolumeInUse: a drainer that finds its member's memcached still at work, as
// after a pod was deleted by force, waits until that has ended, and then finds
// everything that it was given meanwhile.
func TestVolumeInUse(t *testing.T) {
	t.Parallel()
	dir, all := t.TempDir(), objects(31, 500)
	s := serve(t, dir)
	_, servers := survivors(t, 2)
	m := migrateArgs(t, dir, servers)
	p := start(t, m.Args()...)
	p.waitFor(errInUse.Error())
	store(t, s.address(), all)
	s.end("saved")
	if code := p.wait(); code != contract.ExitOK {
		t.Fatalf("exit code %d: %s", code, p.err.String())
	}
	if r := readReceipt(t, m.Receipt); r.Found != 500 || r.Added != 500 || !r.Clean {
		t.Errorf("receipt %+v", r)
	}
}

// TestTwoMembers: one that is started while another one has the volume waits,
// and comes up with all that the first one had; it ends at once when asked to.
func TestTwoMembers(t *testing.T) {
	t.Parallel()
	dir, all := t.TempDir(), objects(32, 500)
	one := serve(t, dir)
	port := memcachedtest.FreePort(t)
	args := contract.Serve{Dir: dir, Port: int32(port), Command: append([]string{"memcached"}, memcachedtest.Args(port)...)}
	asked := start(t, args.Args()...)
	asked.waitFor(errInUse.Error())
	asked.signal(syscall.SIGTERM)
	if code := asked.wait(); code == contract.ExitOK {
		t.Error("it ended well, without having started memcached")
	}

	two := start(t, args.Args()...)
	two.waitFor(errInUse.Error())
	store(t, one.address(), all)
	one.end("saved")
	server := &memcachedtest.Server{Port: port}
	memcachedtest.WaitFor(t, "the second one to answer", func() error {
		conn, err := net.Dial("tcp", server.Address())
		if err == nil {
			err = conn.Close()
		}
		return err
	})
	check(t, "gomemcache", []string{server.Address()}, all)
	two.signal(syscall.SIGTERM)
	if code := two.wait(); code != contract.ExitOK {
		t.Errorf("exit code %d: %s", code, two.err.String())
	}
}
