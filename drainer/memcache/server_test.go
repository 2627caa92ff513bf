package memcache_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/memcache"
)

// A router does so with its many connections.
func TestARotatedCertificateIsTakenUpAndAnotherIsNotReadAgain(t *testing.T) {
	t.Parallel()
	secret := memcachedtest.NewSecured(t).TLS
	other := memcachedtest.NewSecured(t).TLS
	d := memcache.Dialer{Connection: contract.Connection{TLSDir: secret.Dir}}
	config := d.ServerTLSKept(true)
	first, err := config()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := config(); err != nil || again != first {
		t.Errorf("the files have not changed, and were read again: %v", err)
	}
	files := map[string][]byte{}
	for _, name := range []string{contract.CertFile, contract.KeyFile, contract.CAFile} {
		if files[name], err = os.ReadFile(filepath.Join(other.Dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	secret.Write(files)
	rotated, err := config()
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(rotated.Certificates[0].Certificate[0], first.Certificates[0].Certificate[0]) {
		t.Error("the certificate that was rotated is still shown")
	}
	if rotated.ClientCAs.Equal(first.ClientCAs) {
		t.Error("clients are still verified by the authority of before")
	}
}
