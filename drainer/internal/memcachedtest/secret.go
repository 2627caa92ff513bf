package memcachedtest

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/test/certtest"
)

// Secret is a directory with the files of a Secret, as a kubelet keeps it.
type Secret struct {
	Dir   string
	tb    testing.TB
	saved int
}

// NewSecret returns a Secret without files.
func NewSecret(tb testing.TB) *Secret { return &Secret{Dir: tb.TempDir(), tb: tb} }

// Write replaces the Secret's files as the kubelet does: the names are links into a directory, which is named
// by another link that is replaced.
func (s *Secret) Write(files map[string][]byte) {
	s.tb.Helper()
	const data = "..data"
	s.saved++
	version := "..version-" + strconv.Itoa(s.saved)
	check := func(err error) {
		if err != nil && !os.IsExist(err) {
			s.tb.Fatal(err)
		}
	}
	check(os.Mkdir(filepath.Join(s.Dir, version), 0o755))
	for name, content := range files {
		check(os.WriteFile(filepath.Join(s.Dir, version, name), content, 0o600))
		check(os.Symlink(filepath.Join(data, name), filepath.Join(s.Dir, name)))
	}
	check(os.Symlink(version, filepath.Join(s.Dir, data+"_new")))
	check(os.Rename(filepath.Join(s.Dir, data+"_new"), filepath.Join(s.Dir, data)))
}

// Secured has the files of a memcached with TLS and logins.
type Secured struct {
	Authority *certtest.Authority
	TLS, Auth *Secret
}

// Password is the drainer's, in the first line of the auth file.
const Password = "a-password-that-no-log-may-have"

// NewSecured makes a certificate for the loopback address, and two logins.
func NewSecured(tb testing.TB) *Secured {
	tb.Helper()
	s := &Secured{Authority: certtest.NewAuthority(tb), TLS: NewSecret(tb), Auth: NewSecret(tb)}
	s.TLS.Write(s.Authority.Files(tb, []string{"127.0.0.1"}))
	s.Login("drainer:" + Password + "\napplication:another\n")
	return s
}

// Login replaces the lines of the auth file.
func (s *Secured) Login(lines string) { s.Auth.Write(map[string][]byte{"auth-file": []byte(lines)}) }

// Connection returns a connection with TLS and a login.
func (s *Secured) Connection() contract.Connection {
	return contract.Connection{TLSDir: s.TLS.Dir, AuthFile: filepath.Join(s.Auth.Dir, "auth-file")}
}

// StartBy runs memcached with the files of the connection, and makes it ask every client for a certificate if
// it uses TLS.
func StartBy(tb testing.TB, c contract.Connection, args ...string) *Server {
	tb.Helper()
	s := &Server{Port: FreePort(tb), tb: tb, args: append(c.Memcached(true), args...), Dialer: memcache.Dialer{Connection: c, Unverified: true}}
	s.run()
	tb.Cleanup(s.Kill)
	return s
}
