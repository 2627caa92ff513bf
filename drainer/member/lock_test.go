//go:build linux

package member_test

import (
	"net"
	"syscall"
	"testing"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/volume"
	"example.com/memcached-operator/test/wait"
)

// A drainer whose volume is still in use by the member's memcached, as after a pod was deleted by force,
// waits until memcached has ended. Then it finds all items that were stored meanwhile.
func TestADrainerWaitsForTheMemberOfItsVolume(t *testing.T) {
	t.Parallel()
	dir, all := t.TempDir(), drainertest.Objects(31, 500)
	s := drainertest.Serve(t, dir)
	_, servers := drainertest.Survivors(t, 2)
	m := drainertest.DrainArgs(t, dir, servers)
	p := drainertest.Start(t, m.Args()...)
	p.WaitFor(volume.ErrInUse.Error())
	drainertest.Store(t, s.Address(), all)
	s.End("saved")
	if code := p.Wait(); code != contract.ExitOK {
		t.Fatalf("exit code %d: %s", code, p.Err.String())
	}
	if r := drainertest.ReadReceipt(t, m.Receipt); r.Found != 500 || r.Added != 500 || !r.Clean {
		t.Errorf("receipt %+v", r)
	}
}

// A member that is started while another one has the volume waits, and then starts with everything that the
// first one had; it ends at once when it is told to.
func TestASecondMemberOfAVolumeWaits(t *testing.T) {
	t.Parallel()
	dir, all := t.TempDir(), drainertest.Objects(32, 500)
	one := drainertest.Serve(t, dir)
	port := memcachedtest.FreePort(t)
	args := drainertest.MemberArgs(contract.Connection{}, dir, port)
	asked := drainertest.Start(t, args.Args()...)
	asked.WaitFor(volume.ErrInUse.Error())
	asked.Signal(syscall.SIGTERM)
	if code := asked.Wait(); code == contract.ExitOK {
		t.Error("it ended well, without having started memcached")
	}

	two := drainertest.Start(t, args.Args()...)
	two.WaitFor(volume.ErrInUse.Error())
	drainertest.Store(t, one.Address(), all)
	one.End("saved")
	server := &memcachedtest.Server{Port: port}
	wait.For(t, "the second one to answer", func() error {
		conn, err := net.Dial("tcp", server.Address())
		if err == nil {
			err = conn.Close()
		}
		return err
	})
	drainertest.Check(t, "gomemcache", []string{server.Address()}, all)
	two.Signal(syscall.SIGTERM)
	if code := two.Wait(); code != contract.ExitOK {
		t.Errorf("exit code %d: %s", code, two.Err.String())
	}
}
