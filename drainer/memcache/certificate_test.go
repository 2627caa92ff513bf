package memcache

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/test/certtest"
)

// A certificate is no longer verified when the authority that signed it ends.
func TestACertificateEndsWithItsAuthority(t *testing.T) {
	soon := time.Now().Add(time.Minute).Truncate(time.Second)
	write := func(files map[string][]byte) Dialer {
		dir := t.TempDir()
		for name, content := range files {
			if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return Dialer{Connection: contract.Connection{TLSDir: dir}}
	}
	files := certtest.NewAuthorityUntil(t, soon).Files(t, []string{"cache"})
	if got := write(files).Certificate(nil); got != (contract.Certificate{NotAfter: soon.Unix()}) {
		t.Errorf("it says %+v; its authority ends at %d", got, soon.Unix())
	}
	renewed := certtest.NewAuthority(t)
	other := renewed.Files(t, []string{"cache"})
	// The next authority is in ca.crt already, and has signed the certificate.
	other[contract.CAFile] = append(files[contract.CAFile], other[contract.CAFile]...)
	if got := write(other).Certificate(nil); got.NotAfter <= soon.Unix() {
		t.Errorf("another authority, which ends soon, counts: %+v", got)
	}
}
