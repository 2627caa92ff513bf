package cli_test

import (
	"bufio"
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
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/test/wait"
)

// give sends the router a table, and returns the status of the answer.
func (r *routed) give(t *testing.T, body, signature string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+r.admin+"/ring", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set(contract.RingSignature, signature)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}

// says waits until the router reports that it has acknowledged the table, and whether there is trouble.
func (r *routed) says(t *testing.T, what string, number int64, trouble bool) (a contract.RingAcknowledged) {
	t.Helper()
	wait.For(t, what, func() error {
		text, err := r.get("/ring")
		a = contract.RingAcknowledged{}
		if err := errors.Join(err, json.Unmarshal([]byte(text), &a)); err != nil || a.Acknowledged != number || (a.Error != "") != trouble {
			return fmt.Errorf("%s: %w", text, err)
		}
		return nil
	})
	return a
}

// A router takes a table before its file has it, also when its table's time is over and its file is no longer
// updated. The router takes tables only from the writer of its present table, and only newer ones.
func TestARouterIsGivenTables(t *testing.T) {
	t.Parallel()
	const key = "uid"
	signer, other := contract.NewRingSigner(), contract.NewRingSigner()
	members := []string{memcachedtest.Start(t).Address(), memcachedtest.Start(t).Address()}
	path, first := filepath.Join(t.TempDir(), "ring"), contract.NumberAt(time.Now())-100
	table := func(n int64, size int, key string) contract.RingTable {
		return contract.RingTable{Number: first + n, Before: first + n - 1, State: contract.RingStable, New: contract.Ring{Client: "gomemcache", Servers: members[:size]}, Key: key, Signer: signer.Public()}
	}
	text := func(n int64, size int) string {
		text, err := json.Marshal(table(n, size, ""))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	writeRing(t, path, table(0, 1, key))
	r := route(t, "--linger=20s", "--ring-file="+path)
	if a := r.says(t, "the file's table", first, false); a.Proof != contract.ProveAcknowledged(first, key) {
		t.Errorf("its proof is %q", a.Proof)
	}
	for what, c := range map[string]struct {
		text, signature string
		status          int
	}{
		"unsigned":          {text(1, 2), "", http.StatusForbidden},
		"another's":         {text(1, 2), other.Sign([]byte(text(1, 2)), key), http.StatusForbidden},
		"another cluster's": {text(1, 2), signer.Sign([]byte(text(1, 2)), "another"), http.StatusForbidden},
		"another table's":   {text(1, 2), signer.Sign([]byte(text(1, 1)), key), http.StatusForbidden},
		"no table":          {"{}", signer.Sign([]byte("{}"), key), http.StatusBadRequest},
		"without end":       {strings.Repeat(" ", contract.MaxRingTable+1), "", http.StatusBadRequest},
		"the one it has":    {text(0, 2), signer.Sign([]byte(text(0, 2)), key), http.StatusOK},
		"one before":        {text(-1, 2), signer.Sign([]byte(text(-1, 2)), key), http.StatusOK},
		"of the future":     {text(1<<40, 2), signer.Sign([]byte(text(1<<40, 2)), key), http.StatusBadRequest},
		"without a server":  {text(1, 0), signer.Sign([]byte(text(1, 0)), key), http.StatusBadRequest},
	} {
		if status := r.give(t, c.text, c.signature); status != c.status {
			t.Errorf("%s: %d, want %d", what, status, c.status)
		}
	}
	// The router reads its file after it has looked at the given table.
	read := func(number int64, text any) {
		t.Helper()
		writeRing(t, path, "no table")
		r.says(t, "the file is broken", number, true)
		writeRing(t, path, text)
		if a := r.says(t, "it is not", number, false); a.Number != number {
			t.Errorf("it has read table %d, want %d still", a.Number, number)
		}
	}
	read(first, table(0, 1, key))
	give := func(n int64, size int) {
		t.Helper()
		if status := r.give(t, text(n, size), signer.Sign([]byte(text(n, size)), key)); status != http.StatusOK {
			t.Errorf("table %d: %d", n, status)
		}
		r.says(t, "it has what it was given", first+n, false)
	}
	give(1, 2)
	read(first+1, table(-1, 1, key)) // the file is behind
	read(first+1, table(0, 1, key))
	writeRing(t, path, table(1, 2, key))
	writeRing(t, path, table(2, 1, key))
	r.says(t, "the file is newer", first+2, false)
	read(first+2, table(2, 1, key))
	r.Signal(syscall.SIGTERM)
	wait.For(t, "it to be not ready", func() error {
		if _, err := r.get("/ready"); err == nil {
			return errors.New("it is ready")
		}
		return nil
	})
	give(3, 2)
}

// If the router's table has no signer, no other table can be signed.
func TestARouterWithoutASignerIsGivenNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ring")
	ring := contract.Ring{Client: "gomemcache", Servers: []string{memcachedtest.Start(t).Address()}}
	writeRing(t, path, contract.RingTable{Number: 7, State: contract.RingStable, New: ring})
	text, err := json.Marshal(contract.RingTable{Number: 8, State: contract.RingStable, New: ring})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []*routed{route(t, "--ring-file="+path), route(t, "--client=gomemcache", "--server="+ring.Servers[0])} {
		if status := r.give(t, string(text), contract.NewRingSigner().Sign(text, "")); status != http.StatusForbidden {
			t.Errorf("status %d", status)
		}
	}
}

// Any pod may be able to send tables that never arrive in full. These tables don't keep the operator's out.
func TestTablesThatDoNotComeKeepNoOtherOut(t *testing.T) {
	t.Parallel()
	const key = "uid"
	signer := contract.NewRingSigner()
	path, first := filepath.Join(t.TempDir(), "ring"), contract.NumberAt(time.Now())-100
	table := contract.RingTable{Number: first, State: contract.RingStable, Key: key, Signer: signer.Public(),
		New: contract.Ring{Client: "gomemcache", Servers: []string{memcachedtest.Start(t).Address()}}}
	writeRing(t, path, table)
	r := route(t, "--ring-file="+path)
	for range 8 {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", r.admin)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write([]byte("PUT /ring HTTP/1.1\r\nHost: router\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 100 ") {
			t.Errorf("the router does not read it: %q, %v", line, err)
		}
	}
	table.Number, table.Key = first+1, ""
	text, err := json.Marshal(table)
	if err != nil {
		t.Fatal(err)
	}
	if status := r.give(t, string(text), signer.Sign(text, key)); status != http.StatusOK {
		t.Errorf("status %d", status)
	}
}

// A request whose table doesn't arrive is given up after a time that suffices for a table. Other requests may
// take much longer.
func TestATableThatDoesNotComeIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	r := route(t, "--client=gomemcache", "--server="+memcachedtest.Start(t).Address())
	silent := func(begin string) net.Conn {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", r.admin)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if _, err := conn.Write([]byte(begin)); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	other, table := silent("GET /ring HTTP/1.1\r\n"), silent("PUT /ring HTTP/1.1\r\nHost: router\r\nContent-Length: 9\r\n\r\n{")
	answer, err := io.ReadAll(table)
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 400 ") {
		t.Errorf("the table's: %q, %v", answer, err)
	}
	_ = other.SetReadDeadline(time.Now().Add(time.Millisecond))
	if n, err := other.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the other request was ended before: %d, %v", n, err)
	}
}
