package cli_test

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/test/certtest"
	"example.com/memcached-operator/test/wait"
)

// With --client-verify, an application without a certificate of the authority is not served. The router
// reports to the operator when its own certificate expires.
func TestRouteVerifiesClients(t *testing.T) {
	t.Parallel()
	_, servers := drainertest.Survivors(t, 1)
	dir := t.TempDir()
	for name, text := range certtest.NewAuthority(t).Files(t, []string{"127.0.0.1"}) {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := route(t, "--client=gomemcache", "--linger=0s", "--server="+servers[0],
		"--"+contract.FlagClientTLSDir+"="+dir, "--"+contract.FlagClientVerify)
	application := memcache.Dialer{Connection: contract.Connection{TLSDir: dir}}
	all := drainertest.Objects(20, 100)
	drainertest.StoreBy(t, application, r.address, all)
	drainertest.CheckBy(t, application, "gomemcache", []string{r.address}, all)

	served, err := application.Served(t.Context(), r.address)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.Get("http://" + r.admin + contract.CertificatePath)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var stands contract.Certificate
	if err := json.NewDecoder(response.Body).Decode(&stands); err != nil || stands != (contract.Certificate{NotAfter: served.NotAfter.Unix()}) {
		t.Errorf("the router says %+v of a certificate that ends at %s: %v", stands, served.NotAfter, err)
	}

	conn, err := tls.Dial("tcp", r.address, &tls.Config{InsecureSkipVerify: true})
	if err == nil { // in TLS 1.3 the refusal comes with the first read
		defer conn.Close()
		_ = conn.SetDeadline(wait.Deadline())
		_, _ = io.WriteString(conn, "version\r\n")
		var answer [64]byte
		if n, err := conn.Read(answer[:]); err == nil {
			t.Errorf("a client without a certificate is told %q", answer[:n])
		}
	}
}
