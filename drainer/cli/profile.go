package cli

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
	"time"
)

// profileVariable is the environment variable with the address, HOST:PORT, at which a supervisor or a router
// serves Go's profiles to every client that can connect. A flag would change the command of a pod.
const profileVariable = "DRAINER_PPROF"

// serveProfiles serves the profiles until end is called, or logs why it can't. Without an address, nothing is
// served.
func serveProfiles(address string, says io.Writer) (end func()) {
	if address == "" {
		return func() {}
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		fmt.Fprintf(says, "drainer: profiles are not served (%s=%s): %v\n", profileVariable, address, err)
		return func() {}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // until it is closed
	}()
	return func() {
		_ = server.Close()
		<-done
	}
}
