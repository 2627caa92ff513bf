package ask

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"example.com/memcached-operator/drainer/contract"
)

func TestAnAnswerAboutACertificateIsBounded(t *testing.T) {
	for answer, want := range map[string]contract.Certificate{
		`{"notAfter":1700000000}`:                         {NotAfter: 1700000000},
		`{"trouble":"a key"}`:                             {Trouble: "a key"},
		`{"trouble":"` + strings.Repeat("x", 1000) + `"}`: {Trouble: strings.Repeat("x", contract.MaxCertificateTrouble)},
		`{"notAfter":9223372036854775807}`:                {},
		`{"notAfter":-1}`:                                 {},
		`{}`:                                              {},
		`no JSON`:                                         {},
		`{"trouble":"` + strings.Repeat("x", maxCertificate) + `"}`: {},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) }))
		got, err := CertificateFromPod(t.Context(), server.Listener.Addr().String())
		server.Close()
		if got != want || (err != nil) != (want == contract.Certificate{}) {
			t.Errorf("%.60s: %s", answer, fmt.Sprint(got, err))
		}
	}
}
