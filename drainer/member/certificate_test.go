//go:build linux

package member_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/test/wait"
)

// The operator may read no Secret. So the member reports when its certificate expires, and the errors in the
// files.
func TestAMemberTellsHowItsCertificateStands(t *testing.T) {
	t.Parallel()
	secured := memcachedtest.NewSecured(t)
	c := secured.Connection()
	args := drainertest.MemberArgs(c, t.TempDir(), memcachedtest.FreePort(t))
	args.ProbePort = int32(memcachedtest.FreePort(t))
	s := drainertest.SuperviseCommand(t, "", args)
	ask := func() (answer contract.Certificate, err error) {
		response, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d%s", args.ProbePort, contract.CertificatePath))
		if err != nil {
			return answer, err
		}
		defer func() { _ = response.Body.Close() }()
		return answer, json.NewDecoder(response.Body).Decode(&answer)
	}
	served, err := memcache.Dialer{Connection: c}.Served(t.Context(), s.Address())
	if err != nil {
		t.Fatal(err)
	}
	wait.For(t, "the end of the certificate", func() error {
		answer, err := ask()
		if err == nil && answer != (contract.Certificate{NotAfter: served.NotAfter.Unix()}) {
			return fmt.Errorf("%+v, want the end at %d", answer, served.NotAfter.Unix())
		}
		return err
	})

	files, others := secured.Authority.Files(t, []string{"127.0.0.1"}), secured.Authority.Files(t, []string{"127.0.0.1"})
	files[contract.KeyFile] = others[contract.KeyFile]
	secured.TLS.Write(files)
	wait.For(t, "a key that doesn't match", func() error {
		answer, err := ask()
		if err == nil && !strings.Contains(answer.Trouble, "private key does not match") {
			return fmt.Errorf("%+v", answer)
		}
		return err
	})
	s.End("saved")
}
