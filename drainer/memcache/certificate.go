package memcache

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"

	"example.com/memcached-operator/drainer/contract"
)

// Certificate returns the state of the certificate in the files. check returns other problems with them; it
// may be nil.
func (d Dialer) Certificate(check func() error) contract.Certificate {
	var c contract.Certificate
	pair, err := d.certificate()
	if err == nil {
		for _, der := range pair.Certificate {
			if one, err := x509.ParseCertificate(der); err == nil && (c.NotAfter == 0 || one.NotAfter.Unix() < c.NotAfter) {
				c.NotAfter = one.NotAfter.Unix()
			}
		}
		if end := d.verifiedUntil(&pair); !end.IsZero() && end.Unix() < c.NotAfter {
			c.NotAfter = end.Unix()
		}
		if check != nil {
			err = check()
		}
	}
	if err != nil {
		words := strings.Join(strings.Fields(err.Error()), " ")
		c.Trouble = strings.ToValidUTF8(words[:min(len(words), contract.MaxCertificateTrouble)], "")
	}
	return c
}

// CertificateHandler serves the state of the certificate. CertificateHandler checks the files at
// most once a second.
func (d Dialer) CertificateHandler(check func() error) http.Handler {
	const fresh = time.Second
	var mu sync.Mutex
	var last contract.Certificate
	var at time.Time
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		if at.IsZero() || time.Since(at) >= fresh {
			last, at = d.Certificate(check), time.Now()
		}
		answer := last
		mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer)
	})
}

// verifiedUntil is until when the authorities verify the certificate; zero if they don't verify the
// certificate at all. An authority may end before the certificates that it has signed.
func (d Dialer) verifiedUntil(pair *tls.Certificate) (until time.Time) {
	roots, err := d.authorities()
	if err != nil {
		return until
	}
	chains, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: intermediates(pair),
		CurrentTime: pair.Leaf.NotBefore, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	if err != nil {
		return until
	}
	for _, chain := range chains {
		end := chain[0].NotAfter
		for _, one := range chain {
			if one.NotAfter.Before(end) {
				end = one.NotAfter
			}
		}
		if end.After(until) {
			until = end
		}
	}
	return until
}

// intermediates are the certificates between the leaf and an authority.
func intermediates(pair *tls.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, der := range pair.Certificate[1:] {
		if c, err := x509.ParseCertificate(der); err == nil {
			pool.AddCert(c)
		}
	}
	return pool
}
