//go:build linux

package member_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"syscall"
	"testing"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/test/wait"
)

// If a member uses TLS, its supervisor answers the kubelet's probe, by memcached's answers to it. memcached
// counts no failed handshake.
func TestProbesAreNoFailedHandshakes(t *testing.T) {
	t.Parallel()
	c := memcachedtest.NewSecured(t).Connection()
	args := drainertest.MemberArgs(c, t.TempDir(), memcachedtest.FreePort(t))
	args.ProbePort = int32(memcachedtest.FreePort(t))
	s := drainertest.SuperviseCommand(t, "", args)
	url := fmt.Sprintf("http://127.0.0.1:%d%s", args.ProbePort, contract.ReadyPath)
	probe := func(want int) func() error {
		return func() error {
			response, err := http.Get(url)
			if err != nil {
				return err
			}
			if err := response.Body.Close(); err != nil || response.StatusCode != want {
				return errors.Join(err, fmt.Errorf("status %d", response.StatusCode))
			}
			return nil
		}
	}
	const probes = 20
	for range probes {
		wait.For(t, "a member that is ready", probe(http.StatusOK))
	}
	if failed := handshakeErrors(t, c, s.Address()); failed != "0" {
		t.Errorf("memcached counts %s failed handshakes", failed)
	}
	pid := s.PID()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "a member whose memcached does not answer to be not ready", probe(http.StatusServiceUnavailable))
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "a member that is ready again", probe(http.StatusOK))
	s.End("saved")
}

func handshakeErrors(t *testing.T, c contract.Connection, address string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait.Long)
	defer cancel()
	conn, err := memcache.Dialer{Connection: c}.Dial(ctx, address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(wait.Deadline()); err != nil {
		t.Fatal(err)
	}
	stats, err := conn.Stats("")
	if err != nil {
		t.Fatal(err)
	}
	failed, ok := stats["ssl_handshake_errors"]
	if !ok {
		t.Fatalf("memcached counts no handshakes: %v", stats)
	}
	return failed
}
