package router_test

import (
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/router"
)

var metric = regexp.MustCompile(`\bmemcached_router_[a-z_]+`)

// Dashboard and documentation name the metrics that are served, and all of them.
func TestTheDashboardAsksForMetricsThatAreServed(t *testing.T) {
	t.Parallel()
	r := start(t, router.Config{}, members(t, 1)...)
	dial(t, r.address).want("get key\r\n", "END\r\n")
	served := map[string]bool{}
	memcachedtest.WaitFor(t, "metrics", func() error {
		answer := httptest.NewRecorder()
		r.Admin().ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
		text, err := io.ReadAll(answer.Body)
		for _, line := range strings.Split(string(text), "\n") {
			if name, is := strings.CutPrefix(line, "# TYPE "); is {
				name, _, _ = strings.Cut(name, " ")
				served[name] = true
			}
		}
		return err
	})
	for _, file := range []string{"../../config/prometheus/routers.json", "../../docs/metrics.md"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		named := map[string]bool{}
		for _, name := range metric.FindAllString(string(text), -1) {
			name = strings.TrimSuffix(name, "_bucket")
			if named[name] = true; !served[name] {
				t.Errorf("%s names %s, which is not served", file, name)
			}
		}
		for name := range served {
			if !named[name] {
				t.Errorf("%s does not name %s", file, name)
			}
		}
	}
	if len(served) < 10 {
		t.Errorf("only %d metrics are served", len(served))
	}
}

func TestSlowAndFailedRequestsAreLoggedWithoutTheirKeys(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var log strings.Builder
	config := router.Config{Slow: time.Nanosecond, Logf: func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(&log, format+"\n", args...)
	}}
	c := dial(t, start(t, config, members(t, 1)...).address)
	const requests = 200
	for range requests {
		c.want("get secret\r\n", "END\r\n")
	}
	c.want("set text 0 0 1\r\nx\r\nincr text 1\r\n", "STORED\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\n")
	mu.Lock()
	defer mu.Unlock()
	if lines := strings.Count(log.String(), "slow or failed"); lines == 0 || lines > requests/2 || strings.Contains(log.String(), "secret") {
		t.Errorf("%d lines of %d requests:\n%s", lines, requests, log.String())
	}
}
