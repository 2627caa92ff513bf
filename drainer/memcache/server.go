package memcache

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"io"
	"path/filepath"
	"strconv"

	"example.com/memcached-operator/drainer/contract"
)

// ServerTLS returns the configuration of a server beside memcached that shows the same certificate, and asks
// clients for a certificate if memcached does. As long as the files are the same, so is the configuration, with which
// clients can resume their sessions.
func (d Dialer) ServerTLS(verifyClients bool) (*tls.Config, error) {
	// The certificate comes first, because its errors name the files.
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

// mostLogin bounds the value of a login, in bytes.
const mostLogin = 2 << 10

// Admit reads a login as memcached does, which is the value of a set, "user password", and tells whether it is one of the
// logins. words are those of the request's line, which has been read.
func Admit(words []string, r io.Reader, logins func() ([]contract.Login, error)) (bool, error) {
	const set = 5 // its words: set, key, flags, expiry, size
	if len(words) != set {
		return false, fmt.Errorf("a login of %d words", len(words))
	}
	size, err := strconv.ParseUint(words[4], 10, 31)
	if err != nil || size > mostLogin {
		return false, fmt.Errorf("a login of %.20q bytes", words[4])
	}
	given := make([]byte, size+uint64(len("\r\n")))
	if _, err := io.ReadFull(r, given); err != nil {
		return false, err
	}
	known, err := logins()
	if err != nil {
		return false, err
	}
	value, ended := bytes.CutSuffix(given, []byte("\r\n"))
	return ended && contract.Admits(known, string(value)), nil
}

func loginsIn(path string) ([]contract.Login, error) {
	return keptLogins.get("", func(texts [][]byte) ([]contract.Login, error) {
		return contract.Logins(filepath.Base(path), texts[0])
	}, path)
}

// Sums returns checksums of the contents of the present files, "" for files that are not in use. If a file can't be
// read, the checksum is one that no content has.
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
