package router_test

import (
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/ringchange"
	"example.com/memcached-operator/drainer/router"
	"example.com/memcached-operator/test/wait"
)

var metric = regexp.MustCompile(`\bmemcached_router_[a-z_]+`)

// The dashboard and the documentation name all metrics that are served, and no others.
func TestTheDashboardAsksForMetricsThatAreServed(t *testing.T) {
	t.Parallel()
	r := start(t, asksFor(ring(t, members(t, 1)...)), members(t, 1)...)
	dial(t, r.address).want("get key\r\n", "END\r\n")
	served := map[string]bool{}
	wait.For(t, "metrics", func() error {
		answer := httptest.NewRecorder()
		r.Admin().ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
		text, err := io.ReadAll(answer.Body)
		for _, line := range strings.Split(string(text), "\n") {
			if name, is := strings.CutPrefix(line, "# TYPE "); is {
				name, _, _ = strings.Cut(name, " ")
				served[name] = true
			}
		}
		if err == nil && !served["memcached_router_requests_total"] {
			err = errors.New("no request is counted yet")
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

// The metrics count requests by command, outcome and state of the ring, and by member.
func TestMetricsCountWhatWasAsked(t *testing.T) {
	t.Parallel()
	all := members(t, 2)
	r := start(t, router.Config{}, all[0])
	c := dial(t, r.address)
	requests := "set a 0 0 5\r\nhello\r\nget a b\r\nget a\r\nadd a 0 0 1\r\nx\r\nincr a 1\r\n"
	answers := len(c.ask(requests))
	enter(t, r, &router.Table{Number: 1, State: ringchange.Prepare, Old: ring(t, all[0]), New: ring(t, all[1])})
	c.want("get a\r\nget b\r\n", "VALUE a 0 5\r\nhello\r\nEND\r\nEND\r\n")
	member := func(i int) string { return fmt.Sprintf("member=%q", all[i].Address()) }
	wants := []string{
		`requests_total{command="set",outcome="done",state="stable"} 1`,
		`requests_total{command="get",outcome="hit",state="stable"} 2`,
		`requests_total{command="get",outcome="miss",state="stable"} 1`,
		`requests_total{command="add",outcome="refused",state="stable"} 1`,
		`requests_total{command="incr",outcome="error",state="stable"} 1`,
		`requests_total{command="get",outcome="hit",state="prepare"} 1`,
		`requests_total{command="get",outcome="miss",state="prepare"} 1`,
		`request_seconds_count 8`,
		fmt.Sprintf("request_bytes_total %d", len(requests)+len("get a\r\nget b\r\n")+2*len("mn\r\n")),
		// mn is the router's own answer; the END of a read of two keys is that of the last one.
		fmt.Sprintf("answer_bytes_total %d", answers+len("VALUE a 0 5\r\nhello\r\nEND\r\nEND\r\n")),
		`connections 1`, `held_bytes 0`,
		// The old owner is asked for b twice, the new one once.
		`member_requests_total{` + member(0) + `,outcome="hit"} 3`, `member_requests_total{` + member(0) + `,outcome="miss"} 3`,
		`member_requests_total{` + member(0) + `,outcome="done"} 1`, `member_requests_total{` + member(0) + `,outcome="refused"} 1`,
		`member_requests_total{` + member(0) + `,outcome="error"} 1`,
		`member_requests_total{` + member(1) + `,outcome="miss"} 1`,
		`member_sent_bytes_total{` + member(1) + `} ` + fmt.Sprint(len("get b\r\n")),
		`member_received_bytes_total{` + member(1) + `} ` + fmt.Sprint(len("END\r\n")),
		`member_connections{` + member(1) + `} 2`,
		`ring_table{state="prepare"} 1`, `ring_table_acknowledged 1`,
	}
	wait.For(t, "the metrics", func() error {
		w := httptest.NewRecorder()
		r.Admin().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		for _, want := range wants {
			if !strings.Contains(w.Body.String(), "\nmemcached_router_"+want+"\n") {
				return fmt.Errorf("no %s in\n%s", want, w.Body)
			}
		}
		return nil
	})
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
