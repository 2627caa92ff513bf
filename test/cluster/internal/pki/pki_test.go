package pki

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func issue(t *testing.T, authority *Authority, request Request) *x509.Certificate {
	t.Helper()
	pair, err := authority.Issue(request, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	both, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatalf("key and certificate don't belong together: %v", err)
	}
	return both.Leaf
}

func TestCertificatesAreGoodForWhatTheyWereAskedFor(t *testing.T) {
	authority, err := NewAuthority("ca", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := NewAuthority("ca", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	client := Request{CommonName: "system:node:a", Organizations: []string{"system:nodes"}}
	server := Request{CommonName: "server", Hosts: []string{"10.88.0.1", "kubernetes.default"}}
	for name, test := range map[string]struct {
		by      *Authority
		request Request
		host    string
		usage   x509.ExtKeyUsage
		want    bool
	}{
		"a client's authenticates a client":      {authority, client, "", x509.ExtKeyUsageClientAuth, true},
		"a client's is no server's":              {authority, client, "", x509.ExtKeyUsageServerAuth, false},
		"a server's is good for its address":     {authority, server, "10.88.0.1", x509.ExtKeyUsageServerAuth, true},
		"a server's is good for its name":        {authority, server, "kubernetes.default", x509.ExtKeyUsageServerAuth, true},
		"a server's isn't for another name":      {authority, server, "kubernetes.other", x509.ExtKeyUsageServerAuth, false},
		"another authority's of the same name":   {stranger, client, "", x509.ExtKeyUsageClientAuth, false},
		"a server may be a client of its equals": {authority, server, "", x509.ExtKeyUsageClientAuth, true},
	} {
		t.Run(name, func(t *testing.T) {
			roots := x509.NewCertPool()
			roots.AppendCertsFromPEM(authority.Cert)
			_, err := issue(t, test.by, test.request).Verify(x509.VerifyOptions{
				Roots: roots, DNSName: test.host, KeyUsages: []x509.ExtKeyUsage{test.usage},
			})
			if (err == nil) != test.want {
				t.Errorf("valid: want %v, got error %v", test.want, err)
			}
		})
	}
}

func TestSubjectIsTheUserAndItsGroups(t *testing.T) {
	authority, err := NewAuthority("ca", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	got := issue(t, authority, Request{CommonName: "system:node:a", Organizations: []string{"system:nodes"}}).Subject
	if got.CommonName != "system:node:a" || len(got.Organization) != 1 || got.Organization[0] != "system:nodes" {
		t.Errorf("want user system:node:a in system:nodes, got %v", got)
	}
}

func TestKeysAreReadableByTheOwnerOnly(t *testing.T) {
	authority, err := NewAuthority("ca", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	directory := t.TempDir()
	if err := authority.Write(directory, "ca"); err != nil {
		t.Fatal(err)
	}
	if err := WriteKubeconfig(filepath.Join(directory, "kubeconfig"), "c", "https://a", "admin", authority.Cert, authority.Pair); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ca.key", "kubeconfig"} {
		info, err := os.Stat(filepath.Join(directory, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s: want mode 0600, got %o", name, info.Mode().Perm())
		}
	}
}
