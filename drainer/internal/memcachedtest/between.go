package memcachedtest

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
)

// Between is a proxy between clients and a server. Between calls before with each piece that a client
// sends, before the server gets it. If before returns false, the connection breaks.
func Between(tb testing.TB, server string, before func(sent []byte) bool) (address string) {
	tb.Helper()
	return BothWays(tb, server, before, func([]byte) {})
}

// BothWays also calls after with each piece of the answers, before the client gets it.
func BothWays(tb testing.TB, server string, before func(sent []byte) bool, after func(answered []byte)) (address string) {
	tb.Helper()
	listener, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	var copies sync.WaitGroup
	tb.Cleanup(func() {
		listener.Close()
		copies.Wait()
	})
	copies.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			conn, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", server)
			if err != nil {
				client.Close()
				continue
			}
			copies.Go(func() {
				defer client.Close()
				_, _ = io.Copy(writer(func(answered []byte) (int, error) {
					after(answered)
					return client.Write(answered)
				}), conn)
			})
			copies.Go(func() {
				defer conn.Close()
				buf := make([]byte, 1<<20)
				for {
					n, err := client.Read(buf)
					if err != nil {
						return
					}
					if !before(buf[:n]) {
						client.Close()
						return
					}
					if _, err := conn.Write(buf[:n]); err != nil {
						return
					}
				}
			})
		}
	})
	return listener.Addr().String()
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }
