package listen

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"example.com/memcached-operator/test/wait"
)

// Clients that open connections and send nothing, or half of a request, keep no other client out, and the
// number of connections stays bounded.
func TestManyConnectionsKeepNoClientOut(t *testing.T) {
	t.Parallel()
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := HTTP(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }))
	bounded := Bounded(plain).(*bounded)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(bounded) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("it ended: %v", err)
		}
	})
	closed := make(chan error, 3*most)
	for range 3 * most {
		c, err := net.Dial("tcp", plain.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n"); err != nil {
			t.Fatal(err)
		}
		go func() {
			_, err := c.Read(make([]byte, 1))
			closed <- err
		}()
	}
	answer, err := http.Get("http://" + plain.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	bounded.mu.Lock()
	open := len(bounded.open)
	bounded.mu.Unlock()
	if open > most {
		t.Errorf("%d are open, want %d at most", open, most)
	}
	if answer.StatusCode != http.StatusOK {
		t.Errorf("the answer is %s", answer.Status)
	}
	for range 2 * most {
		if err := wait.Receive(t, "the end of the oldest ones", closed); err == nil {
			t.Error("half of a request was answered")
		}
	}
}

// failing is a listener whose first connections fail.
type failing struct {
	net.Listener
	why []error
}

func (f *failing) Accept() (net.Conn, error) {
	if len(f.why) > 0 {
		err := f.why[0]
		f.why = f.why[1:]
		return nil, &net.OpError{Op: "accept", Err: err}
	}
	return f.Listener.Accept()
}

// A connection that the kernel can't make does not end the server.
func TestAConnectionThatFailsEndsNoServer(t *testing.T) {
	t.Parallel()
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := HTTP(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }))
	ended := make(chan error, 1)
	go func() {
		ended <- server.Serve(Bounded(&failing{plain, []error{syscall.ENOBUFS, syscall.ENOMEM, syscall.EMFILE, syscall.EPROTO, syscall.EPERM}}))
	}()
	answer, err := http.Get("http://" + plain.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	if err := wait.Receive(t, "the server's end", ended); !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("it ended: %v", err)
	}
}

// Few answers with metrics are made at once, however many clients ask; the others are told to come back.
func TestFewScrapesAreAnsweredAtOnce(t *testing.T) {
	t.Parallel()
	const asked = scrapes
	begun, release := make(chan struct{}, asked), make(chan struct{})
	var calls atomic.Int32
	handler := Metrics(func(to chan<- prometheus.Metric) {
		if calls.Add(1) > asked {
			return
		}
		begun <- struct{}{}
		<-release
		to <- prometheus.MustNewConstMetric(prometheus.NewDesc("one", "One.", nil, nil), prometheus.GaugeValue, 1)
	})
	get := func() *httptest.ResponseRecorder {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		return answer
	}
	answers := make(chan *httptest.ResponseRecorder, asked)
	for range asked {
		go func() { answers <- get() }()
	}
	for range asked {
		<-begun
	}
	if further := get(); further.Code != http.StatusServiceUnavailable {
		t.Errorf("one more has status %d", further.Code)
	}
	close(release)
	for range asked {
		if answer := <-answers; answer.Code != http.StatusOK || !strings.Contains(answer.Body.String(), "\none 1\n") {
			t.Errorf("status %d: %s", answer.Code, answer.Body)
		}
	}
}

// Clients that don't read their answers keep no other client from the metrics, and few of their answers are kept.
func TestClientsThatReadNoMetricsKeepNoClientOut(t *testing.T) {
	t.Parallel()
	const size = 8 << 20 // more than the kernel takes
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
	if n, err := io.Copy(io.Discard, all[0]); n > size || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the oldest client has got %d bytes, %v", n, err)
	}
}
