package memcache_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/test/certtest"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// A server is reached by TLS, with a client certificate and with a login, each alone and all together, over
// connections for single requests and by the Writer.
func TestAServerIsSpokenToByTLSAndALogin(t *testing.T) {
	secured := memcachedtest.NewSecured(t)
	both := secured.Connection()
	for name, c := range map[string]contract.Connection{
		"TLS":           {TLSDir: both.TLSDir},
		"login":         {AuthFile: both.AuthFile},
		"TLS and login": both,
	} {
		t.Run(name, func(t *testing.T) {
			if name != "TLS and login" {
				tier.Second(t, "TestAServerIsSpokenToByTLSAndALogin/TLS_and_login")
			}
			t.Parallel()
			s := memcachedtest.StartBy(t, c)
			w := connect(t, memcache.Options{Address: s.Address(), Dialer: memcache.Dialer{Connection: c}, Connections: 2})
			const n = 5000
			items := numbered(n)
			addAll(t, w, items...)
			if got := w.Tally(); got.Added != n {
				t.Errorf("tally %+v, want %d added: %s", got, n, w.Refusal())
			}
			v, err := s.Dial().Get(items[n-1].Key)
			if err != nil || v == nil || string(v.Data) != string(items[n-1].Value) {
				t.Errorf("the last item is %+v, %v", v, err)
			}
			if held := s.Items(t); held != n {
				t.Errorf("the server holds %d items, want %d: the password as one of them?", held, n)
			}
		})
	}
}

// Nor does the dialer reveal the password.
func TestADialerRefusesWhatItCantTrust(t *testing.T) {
	secured := memcachedtest.NewSecured(t)
	c := secured.Connection()
	server := memcachedtest.StartBy(t, c)
	files := func(files map[string][]byte) string {
		s := memcachedtest.NewSecret(t)
		s.Write(files)
		return s.Dir
	}
	login := func(line string) string {
		return filepath.Join(files(map[string][]byte{"auth-file": []byte(line)}), "auth-file")
	}
	foreign := certtest.NewAuthority(t).Files(t, []string{"127.0.0.1"})
	elsewhere := secured.Authority.Files(t, []string{"cache.example.com"})
	alone := map[string][]byte{contract.CAFile: elsewhere[contract.CAFile]}
	other := memcachedtest.StartBy(t, contract.Connection{TLSDir: files(elsewhere)})
	for name, test := range map[string]struct {
		address string
		contract.Connection
		want string
	}{
		"another authority":     {server.Address(), contract.Connection{TLSDir: files(foreign), AuthFile: c.AuthFile}, "unknown authority"},
		"another server's name": {other.Address(), contract.Connection{TLSDir: c.TLSDir}, "127.0.0.1"},
		"no certificate":        {server.Address(), contract.Connection{TLSDir: files(alone), AuthFile: c.AuthFile}, ""}, // a reset, or an error
		"another password":      {server.Address(), contract.Connection{TLSDir: c.TLSDir, AuthFile: login("drainer:" + memcachedtest.Password + "x\n")}, "authentication failure"},
		"no login":              {server.Address(), contract.Connection{TLSDir: c.TLSDir}, "unauthenticated"},
		"plain text":            {server.Address(), contract.Connection{AuthFile: c.AuthFile}, ""},
		"no files":              {server.Address(), contract.Connection{TLSDir: t.TempDir()}, contract.CAFile},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithDeadline(t.Context(), wait.Deadline())
			defer cancel()
			conn, err := memcache.Dialer{Connection: test.Connection}.Dial(ctx, test.address)
			if err == nil {
				_ = conn.SetDeadline(wait.Deadline())
				_, err = conn.Version()
				conn.Close()
			}
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), memcachedtest.Password) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

// A server without logins would store it as an item.
func TestNoPasswordForThoseThatDontAsk(t *testing.T) {
	secured := memcachedtest.NewSecured(t)
	s := memcachedtest.Start(t)
	s.Dialer.AuthFile = secured.Connection().AuthFile
	if _, err := s.Dial().Version(); err != nil {
		t.Fatal(err)
	}
	if n := s.Items(t); n != 0 {
		t.Errorf("the server holds %d items", n)
	}
}

// Dial also ends after the connection, in the handshake and in the login.
func TestDialEndsWhenItsTimeIsUp(t *testing.T) {
	silent := silentServer(t)
	c := memcachedtest.NewSecured(t).Connection()
	for name, c := range map[string]contract.Connection{"handshake": {TLSDir: c.TLSDir}, "login": {AuthFile: c.AuthFile}} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if conn, err := (memcache.Dialer{Connection: c}).Dial(ctx, silent); err == nil {
				conn.Close()
				t.Error("it succeeded")
			}
		})
	}
}

func TestOptionsThatCantWorkAreRefused(t *testing.T) {
	authority := certtest.NewAuthority(t)
	good := authority.Files(t, []string{"cache"})
	for name, test := range map[string]struct {
		tls    map[string][]byte
		auth   string
		usages []x509.ExtKeyUsage
		want   string
	}{
		"all":                    {tls: good, auth: "a:b\nc:d:e\n", usages: forBoth},
		"line ends of Windows":   {auth: "a:b\r\nc:d\r\n"},
		"authorities alone":      {tls: only(good, contract.CAFile)},
		"no authorities":         {tls: only(good, contract.CertFile, contract.KeyFile), want: "ca.crt: no such file"},
		"no certificate":         {tls: only(good, contract.CAFile), usages: forBoth, want: "tls.crt: no such file"},
		"no key":                 {tls: only(good, contract.CAFile, contract.CertFile), usages: forBoth, want: "tls.key: no such file"},
		"another key":            {tls: with(good, contract.KeyFile, authority.Files(t, nil)), usages: forBoth, want: "private key does not match"},
		"other authorities":      {tls: with(good, contract.CAFile, certtest.NewAuthority(t).Files(t, nil)), usages: forBoth, want: "as the certificate of a server, by ca.crt"},
		"not for clients":        {tls: authority.Files(t, []string{"cache"}, x509.ExtKeyUsageServerAuth), usages: forBoth, want: "as the certificate of a client"},
		"not for clients either": {tls: authority.Files(t, []string{"cache"}, x509.ExtKeyUsageServerAuth), usages: forBoth[:1]},
		"authorities in words":   {tls: map[string][]byte{contract.CAFile: []byte("me")}, want: "no certificate in PEM"},
		"no auth file":           {auth: "-", want: "auth-file: no such file"},
		"no line end":            {auth: "a:secret", want: "must be 1 to 8 lines"},
		"no line":                {auth: "\n", want: "line 1 of auth-file"},
		"nine lines":             {auth: strings.Repeat("a:b\n", 9), want: "must be 1 to 8 lines"},
		"an empty line":          {auth: "a:secret\n\n", want: "line 2 of auth-file"},
		"a blank":                {auth: "a:secret b\n", want: "line 1 of auth-file"},
		"no password":            {auth: "secret\n", want: "line 1 of auth-file"},
	} {
		t.Run(name, func(t *testing.T) {
			var d memcache.Dialer
			if test.tls != nil {
				s := memcachedtest.NewSecret(t)
				s.Write(test.tls)
				d.TLSDir = s.Dir
			}
			if test.auth != "" {
				s := memcachedtest.NewSecret(t)
				if test.auth != "-" {
					s.Write(map[string][]byte{"auth-file": []byte(test.auth)})
				}
				d.AuthFile = filepath.Join(s.Dir, "auth-file")
			}
			err := d.Check(test.usages...)
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("what is in the file is told: %v", err)
			}
			if missing := errors.Is(err, os.ErrNotExist); missing != strings.Contains(test.want, "no such file") {
				t.Errorf("%v is os.ErrNotExist: %t", err, missing)
			}
		})
	}
}

var forBoth = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}

func only(files map[string][]byte, names ...string) map[string][]byte {
	out := map[string][]byte{}
	for _, name := range names {
		out[name] = files[name]
	}
	return out
}

func with(files map[string][]byte, name string, from map[string][]byte) map[string][]byte {
	out := only(files, contract.CertFile, contract.KeyFile, contract.CAFile)
	out[name] = from[name]
	return out
}

// numbered returns items with different values.
func numbered(n int) []item.Item {
	items := make([]item.Item, n)
	for i := range items {
		items[i] = item.Item{Key: fmt.Appendf(nil, "key%d", i), Value: bytes.Repeat(fmt.Appendf(nil, "value%d", i), 1+i%100*(1+i%997/990*100))}
	}
	return items
}

// silentServer accepts connections, and sends nothing.
func silentServer(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}
