package memcache

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"sync"

	"example.com/memcached-operator/drainer/contract"
)

// ServerTLS is for a server beside memcached that shows the same certificate, and asks clients
// for theirs if memcached does. The files are read now.
func (d Dialer) ServerTLS(verifyClients bool) (*tls.Config, error) {
	pair, err := d.certificate()
	if err != nil {
		return nil, err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	if verifyClients {
		if config.ClientCAs, err = d.authorities(); err != nil {
			return nil, err
		}
		config.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return config, nil
}

// ServerTLSKept is ServerTLS for many connections: the files are read again when one of them has
// changed, and not for each connection.
func (d Dialer) ServerTLSKept(verifyClients bool) func() (*tls.Config, error) {
	var mu sync.Mutex
	var kept *tls.Config
	var of [3]os.FileInfo
	return func() (*tls.Config, error) {
		mu.Lock()
		defer mu.Unlock()
		// A change while they are read shows at the next connection.
		now, same := [3]os.FileInfo{}, kept != nil
		for i, name := range []string{contract.CertFile, contract.KeyFile, contract.CAFile} {
			now[i], _ = os.Stat(filepath.Join(d.TLSDir, name))
			same = same && sameFile(now[i], of[i])
		}
		if same {
			return kept, nil
		}
		config, err := d.ServerTLS(verifyClients)
		if err == nil {
			kept, of = config, now
		}
		return config, err
	}
}

// sameFile tells whether a file has not changed; nil is one that isn't there. A Secret's files are
// others when it changes.
func sameFile(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// Logins that memcached accepts.
func (d Dialer) Logins() ([]contract.Login, error) {
	text, err := os.ReadFile(d.AuthFile)
	if err != nil {
		return nil, err
	}
	return contract.Logins(filepath.Base(d.AuthFile), text)
}
