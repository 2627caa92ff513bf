//go:build linux

package member_test

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/volume"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// With TLS, certificates on both sides, and logins, a member is saved, starts warm, is replayed after a
// crash, drained, and moved, as without them. No output has the password.
func TestASecuredMemberDoesEverythingThatAPlainOneDoes(t *testing.T) {
	t.Parallel()
	secured := memcachedtest.NewSecured(t)
	c := secured.Connection()
	d := memcache.Dialer{Connection: c}
	dir, all := t.TempDir(), drainertest.Objects(70, 500)

	s := drainertest.ServeBy(t, "", c, dir, memcachedtest.FreePort(t), "-m", "128")
	drainertest.StoreBy(t, d, s.Address(), all)
	s.End("saved")
	warm := drainertest.ServeBy(t, "", c, dir, memcachedtest.FreePort(t), "-m", "128")
	drainertest.CheckBy(t, d, "gomemcache", []string{warm.Address()}, all)
	warm.Settle(len(all))
	warm.End("killed")
	again := drainertest.ServeBy(t, "", c, dir, memcachedtest.FreePort(t), "-m", "128")
	again.WaitFor("replayed generation-1: 500 items found: 500 added")
	again.End("saved")

	var servers []string
	for range 2 {
		servers = append(servers, memcachedtest.StartBy(t, c).Address())
	}
	m := drainertest.DrainArgs(t, dir, servers)
	m.Client, m.Connection = "gomemcache", c
	drained := drainertest.Drain(t, m)
	if err := drained.Receipt.AddsUp(m.SourceID); err != nil || drained.Receipt.Added != int64(len(all)) {
		t.Errorf("%v, receipt %+v\n%s", err, drained.Receipt, drained.Err)
	}
	drainertest.CheckBy(t, d, "gomemcache", servers, all)

	third := append(servers, memcachedtest.StartBy(t, c).Address())
	moved := int64(0)
	for _, source := range servers {
		args := drainertest.MoveArgs(t, "gomemcache", source, third)
		args.Connection = c
		r := drainertest.Move(t, args)
		if err := r.Receipt.AddsUp(args.SourceID); err != nil {
			t.Errorf("%v, receipt %+v\n%s", err, r.Receipt, r.Err)
		}
		moved += r.Receipt.Added
	}
	if moved == 0 {
		t.Error("nothing was moved to the third server")
	}
	drainertest.CheckBy(t, d, "gomemcache", third, all)
	streamsSecured(t, c)
	for _, said := range []string{s.Err.String(), again.Err.String(), again.Out.String(), drained.Err, drained.Out, drainertest.ManifestText(t, dir), fmt.Sprint(drained.Receipt, again.Cmd.Args)} {
		if strings.Contains(said, memcachedtest.Password) {
			t.Errorf("the password is told: %s", said)
		}
	}
}

// streamsSecured moves the items that a supervisor streams.
func streamsSecured(t *testing.T, c contract.Connection) {
	t.Helper()
	d, all := memcache.Dialer{Connection: c}, drainertest.Objects(71, 500)
	serve := drainertest.MemberArgs(c, t.TempDir(), memcachedtest.FreePort(t), "-m", "128")
	serve.ExportPort = int32(memcachedtest.FreePort(t))
	member := drainertest.SuperviseCommand(t, "", serve)
	drainertest.StoreBy(t, d, member.Address(), all)
	two := []string{member.Address(), memcachedtest.StartBy(t, c, "-m", "128").Address()}
	args := drainertest.MoveArgs(t, "gomemcache", two[0], two)
	args.Connection, args.ExportPort = c, serve.ExportPort
	r := drainertest.Move(t, args)
	if err := r.Receipt.AddsUp(args.SourceID); err != nil || r.Receipt.Added == 0 || strings.Contains(r.Err, "is asked for") {
		t.Errorf("%v, receipt %+v\n%s", err, r.Receipt, r.Err)
	}
	drainertest.CheckBy(t, d, "gomemcache", two, all)

	leaves := drainertest.MoveArgs(t, "gomemcache", two[0], two[1:])
	leaves.Connection, leaves.ExportPort, leaves.Patience = c, serve.ExportPort, wait.Long
	r = drainertest.Move(t, leaves)
	if err := r.Receipt.AddsUp(args.SourceID); err != nil || r.Receipt.Added == 0 || !r.Receipt.Settled || strings.Contains(r.Err, "is asked for") {
		t.Errorf("it leaves: %v, receipt %+v\n%s", err, r.Receipt, r.Err)
	}
	drainertest.CheckBy(t, d, "gomemcache", two[1:], all)
}

// A member that gets TLS and logins, or loses them, starts warm: its file doesn't depend on them.
func TestAMemberThatIsSecuredLaterStartsWarm(t *testing.T) {
	tier.Second(t, "TestASecuredMemberDoesEverythingThatAPlainOneDoes")
	t.Parallel()
	c := memcachedtest.NewSecured(t).Connection()
	dir, all := t.TempDir(), drainertest.Objects(71, 200)
	s := drainertest.Serve(t, dir, "-m", "128")
	drainertest.Store(t, s.Address(), all)
	s.End("saved")
	for _, c := range []contract.Connection{c, {}} {
		s := drainertest.ServeBy(t, "", c, dir, memcachedtest.FreePort(t), "-m", "128")
		drainertest.CheckBy(t, memcache.Dialer{Connection: c}, "gomemcache", []string{s.Address()}, all)
		s.End("saved")
		if told := s.Err.String(); strings.Contains(told, "cold") {
			t.Error(told)
		}
	}
}

// A running memcached loads a new certificate and new logins, and doesn't load unusable files.
func TestNewCertificatesAndLoginsAreTakenUp(t *testing.T) {
	t.Parallel()
	memcachedtest.Program(t, "memcached") // the member would wait for it
	secured := memcachedtest.NewSecured(t)
	c := secured.Connection()
	d := memcache.Dialer{Connection: c}
	for name, dir := range map[string]string{"with a volume": t.TempDir(), "without": ""} {
		t.Run(name, func(t *testing.T) {
			port := memcachedtest.FreePort(t)
			var p *drainertest.Process
			address := fmt.Sprintf("127.0.0.1:%d", port)
			if dir != "" {
				p = drainertest.ServeBy(t, "", c, dir, port).Process
			} else {
				args := drainertest.MemberArgs(c, dir, port)
				args.TerminationLog = ""
				p = drainertest.Start(t, args.Args()...)
			}
			var old *memcache.Conn
			wait.For(t, "the first connection", func() (err error) {
				old, err = d.Dial(t.Context(), address)
				return err
			})
			defer old.Close()
			before, err := d.Served(t.Context(), address)
			if err != nil {
				t.Fatal(err)
			}

			files := secured.Authority.Files(t, []string{"127.0.0.1"})
			secured.TLS.Write(map[string][]byte{contract.CertFile: files[contract.CertFile], contract.KeyFile: []byte("?"), contract.CAFile: files[contract.CAFile]})
			p.WaitFor("keeps its present certificates and logins")
			secured.TLS.Write(files)
			p.WaitFor("memcached serves the new certificate")
			if after, err := d.Served(t.Context(), address); err != nil || after.Equal(before) {
				t.Errorf("the certificate is the one of before: %v", err)
			}

			secured.Login("drainer:changed\n")
			p.WaitFor("new logins")
			wait.For(t, "the new login to be taken", func() error {
				conn, err := d.Dial(t.Context(), address)
				if err == nil {
					conn.Close()
				}
				return err
			})
			if _, err := old.Version(); err != nil {
				t.Errorf("the connection of before: %v", err)
			}
			p.Signal(syscall.SIGTERM)
			if code := p.Wait(); code != 0 {
				t.Errorf("exit code %d: %s", code, p.Err.String())
			}
			secured.Login("drainer:" + memcachedtest.Password + "\n")
		})
	}
}

// A member doesn't start with files that memcached would refuse. The member reports that, and its saved cache
// is there when it can start.
func TestAMemberDoesntStartByFilesThatMemcachedRefuses(t *testing.T) {
	t.Parallel()
	secured := memcachedtest.NewSecured(t)
	c := secured.Connection()
	dir, all := t.TempDir(), drainertest.Objects(72, 200)
	s := drainertest.ServeBy(t, "", c, dir, memcachedtest.FreePort(t), "-m", "128")
	drainertest.StoreBy(t, memcache.Dialer{Connection: c}, s.Address(), all)
	s.End("saved")
	secured.Login("drainer:" + memcachedtest.Password)
	p := drainertest.Start(t, drainertest.MemberArgs(c, dir, memcachedtest.FreePort(t), "-m", "128").Args()...)
	if code := p.Wait(); code != contract.ExitFailed {
		t.Errorf("exit code %d: %s", code, p.Err.String())
	}
	message, err := os.ReadFile(drainertest.TerminationLog(dir))
	refusal := contract.ParseRefusal(string(message))
	if err != nil || refusal == nil || refusal.Reason != contract.ReasonSecretInvalid || !strings.Contains(refusal.Message, "auth-file") {
		t.Errorf("termination message %s, %v", message, err)
	}
	if _, err := volume.ReadMeta(dir); err != nil {
		t.Errorf("the save's .meta: %v", err)
	}

	m := drainertest.DrainArgs(t, dir, []string{"127.0.0.1:1"})
	m.Connection = c
	if r := drainertest.Drain(t, m); r.Code != contract.ExitFailed || r.Receipt.Reason != contract.ReasonSecretInvalid || strings.Contains(r.Receipt.Message, memcachedtest.Password) {
		t.Errorf("exit code %d, receipt %+v", r.Code, r.Receipt)
	}
}
