package memcache

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"sync"

	"example.com/memcached-operator/drainer/contract"
)

// ServerTLS returns the configuration of a server beside memcached that shows the same certificate, and asks
// clients for a certificate if memcached does. It reads the files now.
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

// ServerTLSKept is ServerTLS for many connections: it reads the files again only if one of them has changed.
func (d Dialer) ServerTLSKept(verifyClients bool) func() (*tls.Config, error) {
	var mu sync.Mutex
	var kept *tls.Config
	var of [3]os.FileInfo
	return func() (*tls.Config, error) {
		mu.Lock()
		defer mu.Unlock()
		// If the files change while they are read, the next connection notices it.
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

// sameFile tells whether a file has not changed; nil is a missing file. An update of a Secret replaces its
// files.
func sameFile(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// Logins returns the logins that memcached accepts.
func (d Dialer) Logins() ([]contract.Login, error) {
	text, err := os.ReadFile(d.AuthFile)
	if err != nil {
		return nil, err
	}
	return contract.Logins(filepath.Base(d.AuthFile), text)
}
