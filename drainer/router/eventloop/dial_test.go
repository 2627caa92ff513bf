package eventloop_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.com/memcached-operator/drainer/router/eventloop"
	"example.com/memcached-operator/test/wait"
)

// A loop gets a connection only to a memcached that answers, and another one when it is lost.
func TestAMemberIsConnectedWhenItAnswers(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	answers := []string{"SERVER_ERROR busy\r\n", "VERSION 1.6.38\r\n", "VERSION 1.6.39\r\n"}
	go func() {
		for _, answer := range answers {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			if line, err := bufio.NewReader(c).ReadString('\n'); line != "version\r\n" {
				t.Errorf("it was asked %q, %v", line, err)
			}
			_, _ = io.WriteString(c, answer)
		}
	}()
	ctx, cancel := context.WithCancel(context.Background())
	lost, versions, failures, ended := make(chan struct{}, 1), make(chan string), make(chan string, 10), make(chan struct{})
	go func() {
		defer close(ended)
		(&eventloop.Members{Timeout: 10 * time.Second, Logf: t.Logf}).Keep(ctx, listener.Addr().String(), lost, eventloop.Loop{
			Connected: func(fd int, version string) bool {
				_ = unix.Close(fd)
				versions <- strings.TrimSpace(version)
				return true
			},
			Failed: func(why string) { failures <- why },
		})
	}()
	if got := <-versions; got != "1.6.38" {
		t.Errorf("it is of version %q", got)
	}
	if got := <-failures; !strings.Contains(got, "SERVER_ERROR busy") {
		t.Errorf("the first one failed: %q", got)
	}
	lost <- struct{}{}
	if got := <-versions; got != "1.6.39" {
		t.Errorf("the next one is of version %q", got)
	}
	cancel()
	<-ended
}

// A member may be taken off the list and named again before its last answer has come. Its first connection then
// ends beside the second one, and must not give up the place of that.
func TestAMemberThatIsNamedAgainKeepsItsPlace(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "VERSION 1.6.38\r\n")
		}
	}()
	var places eventloop.Places
	failures, avoided := make(chan string, 10), make(chan string, 10)
	keep := func(address string) (connected chan struct{}, end func()) {
		ctx, cancel := context.WithCancel(context.Background())
		connected, ended := make(chan struct{}, 10), make(chan struct{})
		go func() {
			defer close(ended)
			(&eventloop.Members{Timeout: wait.Long, Logf: t.Logf}).Keep(ctx, address, nil, eventloop.Loop{
				Connected: func(fd int, _ string) bool {
					_ = unix.Close(fd)
					connected <- struct{}{}
					return true
				},
				Failed: func(why string) {
					select {
					case failures <- why:
					case <-ctx.Done():
					}
				},
				Places: &places,
				Avoid: func(address, _ string) {
					select {
					case avoided <- address:
					case <-ctx.Done():
					}
				},
			})
		}()
		return connected, func() {
			cancel()
			<-ended
		}
	}
	address := listener.Addr().String()
	first, leave := keep(address)
	<-first
	second, end := keep(address)
	<-second
	defer end()
	leave()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	twin, end := keep("localhost:" + port)
	defer end()
	select {
	case <-twin:
		t.Error("another name that leads there is asked, too")
	case why := <-failures:
		if !strings.Contains(why, "its name resolves to") {
			t.Errorf("the other name failed: %q", why)
		}
		if got := <-avoided; got != address {
			t.Errorf("%s is not asked", got)
		}
	}
}
