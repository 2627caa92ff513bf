package cli_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/test/certtest"
	"example.com/memcached-operator/test/wait"
)

// routed is a router in a process of its own.
type routed struct {
	*drainertest.Process
	address, admin string
}

func route(t *testing.T, args ...string) *routed {
	t.Helper()
	return routeWith(t, "", args...)
}

// routeWith is route with one more environment variable.
func routeWith(t *testing.T, env string, args ...string) *routed {
	t.Helper()
	at := func() string { return fmt.Sprintf("127.0.0.1:%d", memcachedtest.FreePort(t)) }
	r := &routed{address: at(), admin: at()}
	// A busy machine delays members; a test of the router's patience sets its own, and one of its end.
	r.Process = drainertest.StartWith(t, env, append([]string{"route", "--" + contract.FlagListen + "=" + r.address, "--" + contract.FlagAdmin + "=" + r.admin,
		"--connect-timeout=60s", "--member-timeout=60s", "--spread=0s"}, args...)...)
	wait.For(t, "the router to be ready", func() error {
		_, err := r.get("/ready")
		return err
	})
	return r
}

func (r *routed) get(path string) (string, error) {
	client := http.Client{Timeout: wait.Long}
	response, err := client.Get("http://" + r.admin + path)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, text)
	}
	return string(text), err
}

// Items that are stored through the router are where a direct client looks, the router counts them, and it
// ends with exit code 0 on SIGTERM.
func TestTheRouterStoresWhereADirectClientLooks(t *testing.T) {
	t.Parallel()
	_, servers := drainertest.Survivors(t, 3)
	all := drainertest.Objects(17, 500)
	args := []string{"--client=dalli", "--linger=0s"}
	for _, s := range servers {
		args = append(args, "--server="+s)
	}
	r := route(t, args...)
	drainertest.Store(t, r.address, all)
	drainertest.Check(t, "dalli", servers, all)
	drainertest.Check(t, "dalli", []string{r.address}, all)
	wait.For(t, "the metrics", func() error {
		text, err := r.get("/metrics")
		want := fmt.Sprintf("memcached_router_requests_total{command=\"mg\",outcome=\"hit\",state=\"stable\"} %d\n", len(all))
		if err == nil && !strings.Contains(text, want) {
			err = fmt.Errorf("no %q in %s", want, text)
		}
		return err
	})
	r.Signal(syscall.SIGTERM)
	if code := r.Wait(); code != contract.ExitOK {
		t.Errorf("exit code %d: %s", code, r.Err.String())
	}
}

// A router follows its file, reports what it has acknowledged and what it waits for, and keeps its table if
// the file is broken.
func TestRouteRingFile(t *testing.T) {
	t.Parallel()
	_, servers := drainertest.Survivors(t, 3)
	path := filepath.Join(t.TempDir(), "ring")
	write := func(table any) {
		t.Helper()
		text, err := json.Marshal(table)
		if err == nil {
			err = os.WriteFile(path+".new", text, 0o600)
		}
		if err == nil {
			err = os.Rename(path+".new", path)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	three, two := contract.Ring{Client: "gomemcache", Servers: servers}, contract.Ring{Client: "gomemcache", Servers: servers[:2]}
	write(contract.RingTable{Number: 1, State: contract.RingStable, New: three})
	r := route(t, "--linger=0s", "--ring-file="+path)
	says := func(what string, want func(a contract.RingAcknowledged) bool) {
		t.Helper()
		wait.For(t, what, func() error {
			text, err := r.get("/ring")
			if err != nil {
				return err
			}
			var a contract.RingAcknowledged
			if err := json.Unmarshal([]byte(text), &a); err != nil || !want(a) {
				return fmt.Errorf("%s: %w", text, err)
			}
			return nil
		})
	}
	all := drainertest.Objects(19, 300)
	drainertest.Store(t, r.address, all)
	for i, state := range []contract.RingState{contract.RingPrepare, contract.RingSettle, contract.RingMove} {
		number := int64(i + 2)
		write(contract.RingTable{Number: number, State: state, Old: &three, New: two})
		says(state.String(), func(a contract.RingAcknowledged) bool { return a.Acknowledged == number && a.Waiting == "" })
		drainertest.Check(t, "gomemcache", []string{r.address}, all)
	}
	write("no table")
	says("the error", func(a contract.RingAcknowledged) bool { return a.Acknowledged == 4 && a.Error != "" })
	drainertest.Check(t, "gomemcache", []string{r.address}, all)
	write(contract.RingTable{Number: 5, State: contract.RingStable, New: two})
	says("the new ring", func(a contract.RingAcknowledged) bool { return a.Acknowledged == 5 && a.Error == "" })
	gone := contract.Ring{Client: "gomemcache", Servers: append([]string{"127.0.0.1:1"}, servers[:2]...)}
	write(contract.RingTable{Number: 6, State: contract.RingPrepare, Old: &two, New: gone})
	says("what it waits for", func(a contract.RingAcknowledged) bool {
		return a.Number == 6 && a.Acknowledged == 5 && strings.Contains(a.Waiting, "127.0.0.1:1: ")
	})
	drainertest.Check(t, "gomemcache", []string{r.address}, drainertest.Held(t, r.address, all))
	r.Signal(syscall.SIGTERM)
	if code := r.Wait(); code != contract.ExitOK {
		t.Errorf("exit code %d: %s", code, r.Err.String())
	}
}

// The router uses TLS and logins towards applications and towards members.
func TestARouterSpeaksTLSAndLogsInOnBothSides(t *testing.T) {
	t.Parallel()
	secured := memcachedtest.NewSecured(t)
	connection := secured.Connection()
	dir := t.TempDir()
	for name, text := range certtest.NewAuthority(t).Files(t, []string{"127.0.0.1"}) {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	login := filepath.Join(dir, contract.AuthFileKey)
	if err := os.WriteFile(login, []byte("application:secret\nother:word\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"--client=gomemcache", "--linger=0s", "--tls-dir=" + connection.TLSDir, "--auth-file=" + connection.AuthFile,
		"--client-tls-dir=" + dir, "--client-auth-file=" + login}
	var servers []string
	for range 2 {
		s := memcachedtest.StartBy(t, connection).Address()
		servers = append(servers, s)
		args = append(args, "--server="+s)
	}
	r := route(t, args...)
	application := memcache.Dialer{Connection: contract.Connection{TLSDir: dir, AuthFile: login}}
	all := drainertest.Objects(18, 300)
	drainertest.StoreBy(t, application, r.address, all)
	drainertest.CheckBy(t, application, "gomemcache", []string{r.address}, all)
	drainertest.CheckBy(t, memcache.Dialer{Connection: connection}, "gomemcache", servers, all)

	ctx, cancel := context.WithDeadline(t.Context(), wait.Deadline())
	defer cancel()
	if conn, err := (memcache.Dialer{Connection: connection}).Dial(ctx, r.address); err == nil {
		conn.Close()
		t.Error("a client that doesn't know the router's certificate is connected")
	}
	other := filepath.Join(t.TempDir(), "login")
	if err := os.WriteFile(other, []byte("application:wrong\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	wrong := memcache.Dialer{Connection: contract.Connection{TLSDir: dir, AuthFile: other}}
	if conn, err := wrong.Dial(ctx, r.address); !errors.Is(err, memcache.ErrLogin) {
		t.Errorf("a wrong password: %v", err)
		if conn != nil {
			conn.Close()
		}
	}
	conn, err := tls.Dial("tcp", r.address, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	expectRefused(t, conn)
	r.Signal(syscall.SIGTERM)
	if code := r.Wait(); code != contract.ExitOK || strings.Contains(r.Err.String(), "secret") {
		t.Errorf("exit code %d: %s", code, r.Err.String())
	}
}

// expectRefused expects no answer without a login.
func expectRefused(t *testing.T, conn net.Conn) {
	t.Helper()
	_ = conn.SetDeadline(wait.Deadline())
	if _, err := io.WriteString(conn, "get a\r\nset a 0 0 5\r\nabcde\r\nversion\r\nquit\r\n"); err != nil {
		t.Fatal(err)
	}
	want := "CLIENT_ERROR unauthenticated\r\nCLIENT_ERROR bad authentication token format\r\n" + strings.Repeat("CLIENT_ERROR unauthenticated\r\n", 2)
	got := make([]byte, len(want))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != want {
		t.Errorf("without a login: %q, %v", got, err)
	}
}
