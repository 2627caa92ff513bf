package memcache_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/memcache"
)

// date sets the times of a Secret's files.
func date(t *testing.T, dir string, at time.Time) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "[^.]*"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		if err := os.Chtimes(file, at, at); err != nil {
			t.Fatal(err)
		}
	}
}

// seen has the contents of a Secret's files that a process uses.
type seen struct {
	server         *tls.Config
	logins         []contract.Login
	tlsSum, logSum string
	notAfter       int64
}

func see(t *testing.T, d memcache.Dialer) (s seen) {
	t.Helper()
	var err error
	if s.server, err = d.ServerTLS(true); err != nil {
		t.Fatal(err)
	}
	if s.logins, err = d.Logins(); err != nil {
		t.Fatal(err)
	}
	if err := d.Check(x509.ExtKeyUsageServerAuth); err != nil {
		t.Fatal(err)
	}
	s.tlsSum, s.logSum = d.Sums()
	s.notAfter = d.Certificate(nil).NotAfter
	return s
}

// A router and a supervisor look at a Secret's files for each connection, and every second. An update of a
// Secret replaces the files, and not even their sizes or times have to differ.
func TestFilesOfASecretAreReadOnceAndAgainWhenTheyAreReplaced(t *testing.T) {
	secured, other := memcachedtest.NewSecured(t), memcachedtest.NewSecured(t)
	d := memcache.Dialer{Connection: secured.Connection()}
	written := time.Now().Add(-time.Hour)
	date(t, secured.TLS.Dir, written)
	date(t, secured.Auth.Dir, written)
	reads := memcache.CountReads(t)
	first := see(t, d)
	if reads() == 0 {
		t.Fatal("no file was read")
	}
	before := reads()
	for range 100 {
		if again := see(t, d); again.server != first.server {
			t.Error("the configuration is another one, so clients can't resume their sessions")
		}
	}
	if n := reads() - before; n != 0 {
		t.Errorf("%d files were read again, and none has changed", n)
	}
	files := map[string][]byte{}
	for _, name := range []string{contract.CertFile, contract.KeyFile, contract.CAFile} {
		var err error
		if files[name], err = os.ReadFile(filepath.Join(other.TLS.Dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	secured.TLS.Write(files)
	secured.Login("drainer:" + memcachedtest.Password + "\napplication:changed\n")
	date(t, secured.TLS.Dir, written)
	date(t, secured.Auth.Dir, written)
	now := see(t, d)
	if bytes.Equal(now.server.Certificates[0].Certificate[0], first.server.Certificates[0].Certificate[0]) {
		t.Error("the certificate that was replaced is still shown")
	}
	if now.server.ClientCAs.Equal(first.server.ClientCAs) {
		t.Error("clients are still verified by the authority of before")
	}
	if len(now.logins) != 2 || now.logins[1].Password != "changed" {
		t.Error("the logins are still those of before")
	}
	if now.tlsSum == first.tlsSum || now.logSum == first.logSum {
		t.Error("memcached would not be told of the new files")
	}
}

// Its times could not tell a file from one that is written over it in the same moment.
func TestAFileThatWasJustWrittenIsReadAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), contract.AuthFileKey)
	d := memcache.Dialer{Connection: contract.Connection{AuthFile: file}}
	at := time.Now().Add(time.Hour)
	for _, password := range []string{"one", "two"} {
		if err := os.WriteFile(file, []byte("ann:"+password+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, at, at); err != nil {
			t.Fatal(err)
		}
		if logins, err := d.Logins(); err != nil || logins[0].Password != password {
			t.Errorf("the logins are %v, %v; want the password %q", logins, err, password)
		}
	}
}
