package cli

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
	"time"
)

// profileVariable names the address, HOST:PORT, at which a supervisor or a router serves Go's profiles
// to everybody who reaches it. It is a variable of the environment, so that a pod's command stays as it is.
const profileVariable = "DRAINER_PPROF"

// serveProfiles serves them until end is called, or says why not. Without an address nothing is served.
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
