//go:build linux

package member_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/test/wait"
)

// scraped are the values of series, as Prometheus' text format writes them.
type scraped map[string]string

func (s scraped) equal(t *testing.T, series, want string) {
	t.Helper()
	got, ok := s[series]
	a, err := strconv.ParseFloat(got, 64)
	b, err2 := strconv.ParseFloat(want, 64)
	if !ok || err != nil || err2 != nil || a != b {
		t.Errorf("%s is %q, want %q", series, got, want)
	}
}

// scrape asks for the metrics.
func scrape(port int32) (scraped, error) {
	response, err := http.Get(metricsURL(port))
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil || response.StatusCode != http.StatusOK {
		return nil, errors.Join(err, fmt.Errorf("status %d: %s", response.StatusCode, text))
	}
	all := scraped{}
	for line := range strings.Lines(string(text)) {
		if series, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && series != "#" {
			all[series] = value
		}
	}
	return all, nil
}

func metricsURL(port int32) string {
	return fmt.Sprintf("http://127.0.0.1:%d%s", port, contract.MetricsPath)
}

// scrapeUp scrapes until memcached_up has the value.
func scrapeUp(t *testing.T, port int32, want string) (all scraped) {
	t.Helper()
	wait.For(t, "memcached_up to be "+want, func() (err error) {
		if all, err = scrape(port); err == nil && all["memcached_up"] != want {
			err = fmt.Errorf("%v", all)
		}
		return err
	})
	return all
}

// measured runs a member that serves metrics.
func measured(t *testing.T, c contract.Connection, dir string, args ...string) (address string, metrics int32, p *drainertest.Process) {
	t.Helper()
	memcachedtest.Binary(t)
	member := drainertest.MemberArgs(c, dir, memcachedtest.FreePort(t), args...)
	member.MetricsPort = int32(memcachedtest.FreePort(t))
	if dir == "" {
		member.TerminationLog = ""
	}
	return fmt.Sprintf("127.0.0.1:%d", member.Port), member.MetricsPort, drainertest.Start(t, member.Args()...)
}

// A memcached's metrics are its answers to stats, by TLS or not, with items or without.
func TestAMembersMetricsAreMemcachedsStatistics(t *testing.T) {
	t.Parallel()
	secured := memcachedtest.NewSecured(t).Connection()
	for name, test := range map[string]struct {
		connection contract.Connection
		dir        string
	}{
		"plain":              {contract.Connection{}, t.TempDir()},
		"TLS and logins":     {secured, t.TempDir()},
		"logins, no volume":  {contract.Connection{AuthFile: secured.AuthFile}, ""},
		"TLS, no volume":     {contract.Connection{TLSDir: secured.TLSDir}, ""},
		"neither, no volume": {contract.Connection{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address, port, _ := measured(t, test.connection, test.dir)
			scrapeUp(t, port, "1")
			d := memcache.Dialer{Connection: test.connection}
			drainertest.StoreBy(t, d, address, drainertest.Objects(40, 300))
			conn, err := d.Dial(t.Context(), address)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if err := errors.Join(conn.SetDeadline(wait.Deadline()), conn.Send([]byte("get a\r\n"))); err != nil {
				t.Fatal(err)
			}
			if line, err := conn.Line(); err != nil || string(line) != "END" {
				t.Fatalf("%s, %v", line, err)
			}
			before := scrapeUp(t, port, "1")
			compareWithStats(t, conn, before)
			if after := scrapeUp(t, port, "1"); test.dir == "" {
				after.equal(t, "memcached_connections_total", before["memcached_connections_total"])
			}
			before.equal(t, `memcached_member_start{how="cold"}`, "1")
		})
	}
}

// compareWithStats compares the values that don't change between a scrape and a question.
func compareWithStats(t *testing.T, conn *memcache.Conn, got scraped) {
	t.Helper()
	answers := map[string]map[string]string{}
	for _, arg := range []string{"", "settings", "items", "slabs"} {
		answer, err := conn.Stats(arg)
		if err != nil {
			t.Fatal(err)
		}
		answers[arg] = answer
	}
	for series, name := range map[string]string{
		"memcached_current_items":                               "curr_items",
		"memcached_items_total":                                 "total_items",
		"memcached_current_bytes":                               "bytes",
		"memcached_limit_bytes":                                 "limit_maxbytes",
		"memcached_items_evicted_total":                         "evictions",
		`memcached_commands_total{command="get",status="hit"}`:  "get_hits",
		`memcached_commands_total{command="get",status="miss"}`: "get_misses",
		`memcached_commands_total{command="set",status="hit"}`:  "cmd_set",
	} {
		got.equal(t, series, answers[""][name])
	}
	got.equal(t, fmt.Sprintf("memcached_version{version=%q}", answers[""]["version"]), "1")
	got.equal(t, "memcached_max_connections", answers["settings"]["maxconns"])
	got.equal(t, "memcached_malloced_bytes", answers["slabs"]["total_malloced"])
	classes := 0
	for name, value := range answers["items"] {
		if class, ok := strings.CutSuffix(strings.TrimPrefix(name, "items:"), ":number"); ok {
			classes++
			got.equal(t, fmt.Sprintf("memcached_slab_current_items{slab=%q}", class), value)
			got.equal(t, fmt.Sprintf("memcached_slab_mem_requested_bytes{slab=%q}", class), answers["items"]["items:"+class+":mem_requested"])
			got.equal(t, fmt.Sprintf("memcached_slab_current_pages{slab=%q}", class), answers["slabs"][class+":total_pages"])
			got.equal(t, fmt.Sprintf(`memcached_slab_commands_total{command="set",slab=%q,status="hit"}`, class), answers["slabs"][class+":cmd_set"])
		}
	}
	if classes == 0 {
		t.Error("memcached has items in no class")
	}
}

// A member tells whether its memcached has its items of before, and of which save they are.
func TestTheMetricsTellHowAMemberHasStarted(t *testing.T) {
	t.Parallel()
	start := func(p *pod) (*drainertest.Served, scraped) {
		member := p.serve("-m", "128")
		member.MetricsPort = int32(memcachedtest.FreePort(t))
		s := drainertest.SuperviseCommand(t, "", member)
		return s, scrapeUp(t, member.MetricsPort, "1")
	}
	p := newPod(t)
	s, all := start(p)
	all.equal(t, `memcached_member_start{how="cold"}`, "1")
	if made, ok := all["memcached_member_last_save_timestamp_seconds"]; ok {
		t.Errorf("there was no save, and one of %s is told", made)
	}
	drainertest.Store(t, s.Address(), drainertest.Objects(41, 200))
	began := time.Now()
	s.End("saved")
	p = p.nextPod()
	s, all = start(p)
	all.equal(t, `memcached_member_start{how="warm"}`, "1")
	all.equal(t, "memcached_member_last_save_items", "200")
	if made, err := strconv.ParseFloat(all["memcached_member_last_save_timestamp_seconds"], 64); err != nil || made < float64(began.Unix()-2) || made > float64(time.Now().Unix()+2) {
		t.Errorf("the save of %v is said to be of %v, %v", began.Unix(), made, err)
	}
	s.Settle(200)
	s.KillMemcached()
	s, all = start(p)
	all.equal(t, `memcached_member_start{how="replayed"}`, "1")
	s.WaitFor("200 items found: 200 added")
	s.End("saved")
}

// The answers of a memcached that is stopped stay away; Prometheus gets an answer all the same.
func TestAMemcachedThatDoesNotAnswerIsNotUp(t *testing.T) {
	t.Parallel()
	args := drainertest.MemberArgs(contract.Connection{}, t.TempDir(), memcachedtest.FreePort(t))
	args.MetricsPort = int32(memcachedtest.FreePort(t))
	s := drainertest.SuperviseCommand(t, "", args)
	scrapeUp(t, args.MetricsPort, "1")
	pid := s.PID()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	all := scrapeUp(t, args.MetricsPort, "0")
	if n, ok := all["memcached_current_items"]; ok {
		t.Errorf("a memcached that does not answer has %s items", n)
	}
	all.equal(t, `memcached_member_start{how="cold"}`, "1")
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	scrapeUp(t, args.MetricsPort, "1")
	s.End("saved")
}

// A memcached at its limit of connections accepts no further one, and is measured all the same.
func TestAMemcachedWithoutFreeConnectionsIsMeasured(t *testing.T) {
	t.Parallel()
	const most = 128
	member := drainertest.MemberArgs(contract.Connection{}, t.TempDir(), memcachedtest.FreePort(t), "-c", strconv.Itoa(most))
	member.MetricsPort = int32(memcachedtest.FreePort(t))
	s := drainertest.SuperviseCommand(t, "", member)
	scrapeUp(t, member.MetricsPort, "1")
	occupied := occupy(t, s, 2*most)
	defer func() {
		for _, conn := range occupied {
			conn.Close()
		}
	}()
	wait.For(t, "connections to be refused", func() error {
		all := scrapeUp(t, member.MetricsPort, "1")
		all.equal(t, "memcached_max_connections", strconv.Itoa(most))
		if n := all["memcached_connections_rejected_total"]; n == "0" {
			return errors.New("none is")
		}
		return nil
	})
}

// Only GET of /metrics is served, with a header within bounds.
func TestTheMetricsPortServesNothingElse(t *testing.T) {
	t.Parallel()
	_, port, _ := measured(t, contract.Connection{}, "")
	scrapeUp(t, port, "1")
	for name, test := range map[string]struct {
		method, path, header string
		want                 int
	}{
		"another path":   {"GET", "/", "", http.StatusNotFound},
		"the probe":      {"GET", contract.ReadyPath, "", http.StatusNotFound},
		"profiles":       {"GET", "/debug/pprof/", "", http.StatusNotFound},
		"another method": {"POST", contract.MetricsPath, "", http.StatusMethodNotAllowed},
		"a long header":  {"GET", contract.MetricsPath, strings.Repeat("x", 64<<10), http.StatusRequestHeaderFieldsTooLarge},
	} {
		request, err := http.NewRequestWithContext(t.Context(), test.method, strings.TrimSuffix(metricsURL(port), contract.MetricsPath)+test.path, strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("X-Long", test.header)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := response.Body.Close(); err != nil || response.StatusCode != test.want {
			t.Errorf("%s: status %d, want %d, %v", name, response.StatusCode, test.want, err)
		}
	}
}
