package drainer

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/warmfile"
)

// TestSecured: by TLS, with certificates on both sides, and logins, a member is
// saved, starts warm, is replayed after a crash, drained, and rebalanced, as by
// plain text. Nobody is told the password.
func TestSecured(t *testing.T) {
	t.Parallel()
	secured := memcachedtest.NewSecured(t)
	c := secured.Connection()
	d := memcache.Dialer{Connection: c}
	dir, all := t.TempDir(), objects(70, 500)

	s := serveBy(t, "", c, dir, memcachedtest.FreePort(t), "-m", "128")
	storeBy(t, d, s.address(), all)
	s.end("saved")
	warm := serveBy(t, "", c, dir, memcachedtest.FreePort(t), "-m", "128")
	checkBy(t, d, "gomemcache", []string{warm.address()}, all)
	warm.settle(len(all))
	warm.end("killed")
	again := serveBy(t, "", c, dir, memcachedtest.FreePort(t), "-m", "128")
	again.waitFor("replayed generation-1: 500 items found: 500 added")
	again.end("saved")

	var servers []string
	for range 2 {
		servers = append(servers, memcachedtest.StartBy(t, c).Address())
	}
	m := migrateArgs(t, dir, servers)
	m.Client, m.Connection = "gomemcache", c
	drained := migrate(t, m)
	if err := drained.receipt.AddsUp(m.SourceID); err != nil || drained.receipt.Added != int64(len(all)) {
		t.Errorf("%v, receipt %+v\n%s", err, drained.receipt, drained.err)
	}
	checkBy(t, d, "gomemcache", servers, all)

	third := append(servers, memcachedtest.StartBy(t, c).Address())
	moved := int64(0)
	for _, source := range servers {
		args := rebalanceArgs(t, "gomemcache", source, third)
		args.Connection = c
		r := rebalance(t, args)
		if err := r.receipt.AddsUp(args.SourceID); err != nil {
			t.Errorf("%v, receipt %+v\n%s", err, r.receipt, r.err)
		}
		moved += r.receipt.Added
	}
	if moved == 0 {
		t.Error("nothing was moved to the third server")
	}
	checkBy(t, d, "gomemcache", third, all)
	for _, said := range []string{s.err.String(), again.err.String(), again.out.String(), drained.err, drained.out, manifestText(t, dir), fmt.Sprint(drained.receipt, again.cmd.Args)} {
		if strings.Contains(said, memcachedtest.Password) {
			t.Errorf("the password is told: %s", said)
		}
	}
}

func manifestText(t *testing.T, dir string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, contract.Manifest))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestSecuredLater: a member that is given TLS and logins, or loses them, starts
// warm: nothing of that is about its file.
func TestSecuredLater(t *testing.T) {
	t.Parallel()
	c := memcachedtest.NewSecured(t).Connection()
	dir, all := t.TempDir(), objects(71, 200)
	s := serve(t, dir, "-m", "128")
	store(t, s.address(), all)
	s.end("saved")
	for _, c := range []contract.Connection{c, {}} {
		s := serveBy(t, "", c, dir, memcachedtest.FreePort(t), "-m", "128")
		checkBy(t, memcache.Dialer{Connection: c}, "gomemcache", []string{s.address()}, all)
		s.end("saved")
		if told := s.err.String(); strings.Contains(told, "cold") {
			t.Error(told)
		}
	}
}

// TestRotation: a new certificate and new logins are taken up by a memcached that
// goes on, and files that can't be taken up are not.
func TestRotation(t *testing.T) {
	t.Parallel()
	secured := memcachedtest.NewSecured(t)
	c := secured.Connection()
	d := memcache.Dialer{Connection: c}
	for name, dir := range map[string]string{"with a volume": t.TempDir(), "without": ""} {
		t.Run(name, func(t *testing.T) {
			port := memcachedtest.FreePort(t)
			var p *process
			address := fmt.Sprintf("127.0.0.1:%d", port)
			if dir != "" {
				p = serveBy(t, "", c, dir, port).process
			} else {
				args := memberArgs(c, dir, port)
				args.TerminationLog = ""
				p = start(t, args.Args()...)
			}
			var old *memcache.Conn
			memcachedtest.WaitFor(t, "the first connection", func() (err error) {
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
			p.waitFor("goes on with the Secret's files that it has")
			secured.TLS.Write(files)
			p.waitFor("memcached serves the new certificate")
			if after, err := d.Served(t.Context(), address); err != nil || after.Equal(before) {
				t.Errorf("the certificate is the one of before: %v", err)
			}

			secured.Login("drainer:changed\n")
			p.waitFor("new logins")
			memcachedtest.WaitFor(t, "the new login to be taken", func() error {
				conn, err := d.Dial(t.Context(), address)
				if err == nil {
					conn.Close()
				}
				return err
			})
			if _, err := old.Version(); err != nil {
				t.Errorf("the connection of before: %v", err)
			}
			p.signal(syscall.SIGTERM)
			if code := p.wait(); code != 0 {
				t.Errorf("exit code %d: %s", code, p.err.String())
			}
			secured.Login("drainer:" + memcachedtest.Password + "\n")
		})
	}
}

// TestInvalidSecret: a member doesn't start by files that memcached would refuse.
// It says so, and its saved cache is there when it can start.
func TestInvalidSecret(t *testing.T) {
	t.Parallel()
	secured := memcachedtest.NewSecured(t)
	c := secured.Connection()
	dir, all := t.TempDir(), objects(72, 200)
	s := serveBy(t, "", c, dir, memcachedtest.FreePort(t), "-m", "128")
	storeBy(t, memcache.Dialer{Connection: c}, s.address(), all)
	s.end("saved")
	secured.Login("drainer:" + memcachedtest.Password)
	p := start(t, memberArgs(c, dir, memcachedtest.FreePort(t), "-m", "128").Args()...)
	if code := p.wait(); code != contract.ExitFailed {
		t.Errorf("exit code %d: %s", code, p.err.String())
	}
	message, err := os.ReadFile(terminationLog(dir))
	refusal := contract.ParseRefusal(string(message))
	if err != nil || refusal == nil || refusal.Reason != contract.ReasonSecretInvalid || !strings.Contains(refusal.Message, "auth-file") {
		t.Errorf("termination message %s, %v", message, err)
	}
	if _, err := warmfile.ReadMeta(dir); err != nil {
		t.Errorf("the save's .meta: %v", err)
	}

	m := migrateArgs(t, dir, []string{"127.0.0.1:1"})
	m.Connection = c
	if r := migrate(t, m); r.code != contract.ExitFailed || r.receipt.Reason != contract.ReasonSecretInvalid || strings.Contains(r.receipt.Message, memcachedtest.Password) {
		t.Errorf("exit code %d, receipt %+v", r.code, r.receipt)
	}
}
