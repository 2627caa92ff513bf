package memcache

import (
	"crypto/tls"
	"os"
	"path/filepath"

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

// Logins that memcached accepts.
func (d Dialer) Logins() ([]contract.Login, error) {
	text, err := os.ReadFile(d.AuthFile)
	if err != nil {
		return nil, err
	}
	return contract.Logins(filepath.Base(d.AuthFile), text)
}
