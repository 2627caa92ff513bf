package memcache

import (
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"path/filepath"
	"strconv"

	"example.com/memcached-operator/drainer/contract"
)

// ServerTLS returns the configuration of a server beside memcached that shows the same certificate, and asks
// clients for a certificate if memcached does. As long as the files are the same, so is the configuration, with which
// clients can resume their sessions.
func (d Dialer) ServerTLS(verifyClients bool) (*tls.Config, error) {
	// Looked at first, because their errors say which file is wrong.
	if _, err := d.certificate(); err != nil {
		return nil, err
	}
	paths := []string{d.tlsFile(contract.CertFile), d.tlsFile(contract.KeyFile)}
	if verifyClients {
		paths = append(paths, d.tlsFile(contract.CAFile))
	}
	return keptConfigs.get(strconv.FormatBool(verifyClients), func(texts [][]byte) (*tls.Config, error) {
		pair, err := certificateOf(texts)
		if err != nil {
			return nil, err
		}
		config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
		if verifyClients {
			if config.ClientCAs, err = authoritiesOf(texts[2:]); err != nil {
				return nil, err
			}
			config.ClientAuth = tls.RequireAndVerifyClientCert
		}
		return config, nil
	}, paths...)
}

// Logins returns the logins that memcached accepts.
func (d Dialer) Logins() ([]contract.Login, error) { return loginsIn(d.AuthFile) }

func loginsIn(path string) ([]contract.Login, error) {
	return keptLogins.get("", func(texts [][]byte) ([]contract.Login, error) {
		return contract.Logins(filepath.Base(path), texts[0])
	}, path)
}

// Sums returns checksums of the contents of the present files, "" for files that are not in use. Files of which one can't
// be read have a checksum of their own.
func (d Dialer) Sums() (tls, auth string) {
	if d.TLSDir != "" {
		tls = sum(d.tlsFile(contract.CertFile), d.tlsFile(contract.KeyFile), d.tlsFile(contract.CAFile))
	}
	if d.AuthFile != "" {
		auth = sum(d.AuthFile)
	}
	return tls, auth
}

func sum(paths ...string) string {
	got, err := keptSums.get("", func(texts [][]byte) (string, error) {
		h := sha256.New()
		for _, text := range texts {
			fmt.Fprintf(h, "%d ", len(text))
			_, _ = h.Write(text)
		}
		return string(h.Sum(nil)), nil
	}, paths...)
	if err != nil {
		return "unreadable"
	}
	return got
}
