package cluster

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
)

func TestAContainerdThatIsNotInitializedServesNoKubelet(t *testing.T) {
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		serves bool
	}{
		"it answers": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "Grpc-Status")
			_, _ = w.Write([]byte{0, 0, 0, 0, 0})
			w.Header().Set("Grpc-Status", "0")
		}, true},
		"it is not initialized": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Grpc-Status", "2")
			w.Header().Set("Grpc-Message", "server is not initialized yet")
		}, false},
		"another program answers": {func(http.ResponseWriter, *http.Request) {}, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "s") // a socket's path has 107 bytes at most
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(dir)
			socket := filepath.Join(dir, "s")
			listener, err := net.Listen("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			plainHTTP2 := &http.Protocols{}
			plainHTTP2.SetUnencryptedHTTP2(true)
			server := &http.Server{Handler: test.answer, Protocols: plainHTTP2}
			defer server.Close()
			go func() { _ = server.Serve(listener) }()
			if err := servesKubelets(t.Context(), socket); (err == nil) != test.serves {
				t.Errorf("%v", err)
			}
		})
	}
	if err := servesKubelets(t.Context(), filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("no process listens, and it serves")
	}
}
