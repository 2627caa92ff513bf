package listen

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.com/memcached-operator/test/wait"
)

// Clients that ask repeatedly share metrics that are collected now and then; no answer is older than its
// request.
func TestManyScrapesCollectMetricsNowAndThen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const clients, each = 60, 40
		collections := 0.0
		desc := prometheus.NewDesc("collected_timestamp_seconds", "When.", nil, nil)
		begin := time.Now()
		handler := Metrics(func(to chan<- prometheus.Metric) {
			collections++
			to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(time.Since(begin)/time.Millisecond))
		})
		var all sync.WaitGroup
		for range clients {
			all.Go(func() {
				for range each {
					asked := time.Since(begin)
					answer := httptest.NewRecorder()
					handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
					var at float64
					_, value, _ := strings.Cut(answer.Body.String(), "\ncollected_timestamp_seconds ")
					if _, err := fmt.Sscan(value, &at); answer.Code != http.StatusOK || err != nil || time.Duration(at)*time.Millisecond < asked {
						t.Errorf("asked after %s: status %d, %v: %s", asked, answer.Code, err, answer.Body)
						return
					}
				}
			})
		}
		all.Wait()
		if most := float64(time.Since(begin)/between) + 1; collections > most {
			t.Errorf("%d scrapes in %s collected %v times, want %v at most", clients*each, time.Since(begin), collections, most)
		}
	})
}

// Clients that don't read their answers keep no other client from the metrics, and few of their answers are kept.
func TestClientsThatReadNoMetricsKeepNoClientOut(t *testing.T) {
	t.Parallel()
	const size = 16 << 20 // far more than the kernel takes
	value := strings.Repeat("x", size)
	server := httptest.NewServer(Metrics(func(to chan<- prometheus.Metric) {
		to <- prometheus.MustNewConstMetric(prometheus.NewDesc("one", "One.", []string{"label"}, nil), prometheus.GaugeValue, 1, value)
	}))
	defer server.Close()
	var all []net.Conn
	for range untaken + 1 {
		c, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		// A window that doesn't grow.
		if err := c.(*net.TCPConn).SetReadBuffer(1 << 16); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		line := make([]byte, len("HTTP/1.1 200 OK"))
		if _, err := io.ReadFull(c, line); err != nil || string(line) != "HTTP/1.1 200 OK" {
			t.Fatalf("client %d: %q, %v", len(all), line, err)
		}
		all = append(all, c)
	}
	if err := all[0].SetDeadline(wait.Deadline()); err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, all[0]); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection of the oldest client, which has got %d bytes, does not end", n)
	}
}
