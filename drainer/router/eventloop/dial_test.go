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
