// Package certtest makes certificates for tests, as a Secret of type
// kubernetes.io/tls has them.
package certtest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/contract"
)

// Authority signs certificates.
type Authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

// NewAuthority makes one.
func NewAuthority(tb testing.TB) *Authority {
	tb.Helper()
	return NewAuthorityUntil(tb, time.Time{})
}

// NewAuthorityUntil makes one that ends then; zero is as for the other certificates.
func NewAuthorityUntil(tb testing.TB, end time.Time) *Authority {
	tb.Helper()
	a := &Authority{}
	a.certificate, a.key = a.sign(tb, &x509.Certificate{
		Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, NotAfter: end,
	})
	return a
}

// Files returns a Secret's files, with a new certificate for the names. The certificate is for servers and
// clients, unless usages says otherwise.
func (a *Authority) Files(tb testing.TB, names []string, usages ...x509.ExtKeyUsage) map[string][]byte {
	tb.Helper()
	if usages == nil {
		usages = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	}
	template := &x509.Certificate{Subject: pkix.Name{CommonName: "memcached"}, ExtKeyUsage: usages, KeyUsage: x509.KeyUsageDigitalSignature}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	certificate, key := a.sign(tb, template)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	return map[string][]byte{
		contract.CertFile: encode("CERTIFICATE", certificate.Raw),
		contract.KeyFile:  encode("PRIVATE KEY", der),
		contract.CAFile:   encode("CERTIFICATE", a.certificate.Raw),
	}
}

// sign makes a key and a certificate for it from the template. The authority signs it,
// or, if it has no key yet, the new key itself.
func (a *Authority) sign(tb testing.TB, template *x509.Certificate) (*x509.Certificate, crypto.Signer) {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62)); err != nil {
		tb.Fatal(err)
	}
	template.NotBefore = time.Now().Add(-time.Hour)
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(24 * time.Hour)
	}
	parent, signer := a.certificate, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		tb.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		tb.Fatal(err)
	}
	return certificate, key
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
