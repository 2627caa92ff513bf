package cli

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"example.com/memcached-operator/drainer/internal/memcachedtest"
)

func TestProfilesAreServedWhereTheEnvironmentSaysOnly(t *testing.T) {
	t.Parallel()
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(memcachedtest.FreePort(t)))
	var says bytes.Buffer
	serveProfiles("", &says)()
	t.Cleanup(serveProfiles(address, &says))
	if says.Len() > 0 {
		t.Error(says.String())
	}
	answer, err := http.Get("http://" + address + "/debug/pprof/goroutine?debug=1")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if text, err := io.ReadAll(answer.Body); err != nil || !strings.Contains(string(text), "goroutine profile") {
		t.Errorf("%v: %s", err, text)
	}
	serveProfiles(address, &says)()
	if !strings.Contains(says.String(), profileVariable) {
		t.Errorf("an address that is taken: %s", says.String())
	}
}
