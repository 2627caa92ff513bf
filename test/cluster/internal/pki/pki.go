// Package pki makes the certificates and keys of a cluster: authorities, one
// certificate per component, and kubeconfigs that carry them.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// validity is that of every certificate. A test cluster lives for hours, and a forgotten one perhaps for a
// year.
const validity = 365 * 24 * time.Hour

// Pair is a certificate and its private key, both as PEM.
type Pair struct {
	Cert, Key []byte
}

// Authority signs certificates.
type Authority struct {
	Pair
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Request describes the subject of a certificate. Organizations are a client's groups.
type Request struct {
	CommonName    string
	Organizations []string
	// Hosts are the DNS names and IP addresses of a server. A request without
	// hosts gets a certificate that only authenticates a client.
	Hosts []string
}

// NewAuthority makes a self-signed authority that is valid from now on.
func NewAuthority(name string, now time.Time) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	pair, cert, err := sign(template, template, key, key, now)
	if err != nil {
		return nil, fmt.Errorf("authority %s: %w", name, err)
	}
	return &Authority{Pair: pair, cert: cert, key: key}, nil
}

// Issue makes a new key and a certificate for it.
func (a *Authority) Issue(request Request, now time.Time) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: request.CommonName, Organization: request.Organizations},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, host := range request.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	if len(request.Hosts) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	pair, _, err := sign(template, a.cert, key, a.key, now)
	if err != nil {
		return Pair{}, fmt.Errorf("certificate %s: %w", request.CommonName, err)
	}
	return pair, nil
}

func sign(template, parent *x509.Certificate, key, signer *ecdsa.PrivateKey, now time.Time) (Pair, *x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return Pair{}, nil, err
	}
	template.SerialNumber = serial
	// This is a minute ago, in case the clock is being set.
	template.NotBefore = now.Add(-time.Minute)
	template.NotAfter = now.Add(validity)
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		return Pair{}, nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return Pair{}, nil, err
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return Pair{}, nil, err
	}
	return Pair{Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), Key: keyPEM}, cert, nil
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

// NewSigningKey makes a key pair without a certificate, for the signatures of service account tokens. Cert has
// the public key.
func NewSigningKey() (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return Pair{}, err
	}
	private, err := encodeKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{Cert: pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), Key: private}, nil
}

// Write stores the pair as dir/name.crt and dir/name.key; only the owner can
// read the key.
func (p Pair) Write(dir, name string) error {
	if err := os.WriteFile(filepath.Join(dir, name+".crt"), p.Cert, 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name+".key"), p.Key, 0o600)
}
