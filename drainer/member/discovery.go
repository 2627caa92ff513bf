package member

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/listen"
	"example.com/memcached-operator/drainer/memcache"
)

// Bounds of the resources that clients of discovery can take, even before they log in.
const (
	maxConnections = 1024
	maxLine        = 512
	// handshake bounds TLS, and then the login. idle bounds the time between two requests, and answering the
	// time that a client takes to read an answer.
	handshake = 10 * time.Second
	idle      = 10 * time.Minute
	answering = 30 * time.Second
)

// discoveryServer answers ElastiCache's discovery protocol: a client sends `config get cluster`, and gets the list
// of the servers. Google's Memorystore answers the same. Its functions are called from many goroutines.
type discoveryServer struct {
	// List returns the list for clients; nil if it isn't known yet.
	List func() *contract.List
	// TLS returns the configuration for a new connection; nil for plain text.
	TLS func() (*tls.Config, error)
	// Logins returns the accepted logins; nil accepts clients without a login.
	Logins func() ([]contract.Login, error)
	// Version is reported as memcached's version. Clients choose their command by it.
	Version string
}

// Serve answers clients until ctx ends, and closes the listener.
func (s *discoveryServer) Serve(ctx context.Context, listener net.Listener) error {
	var clients sync.WaitGroup
	defer clients.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	slots := make(chan struct{}, maxConnections)
	err := listen.Each(ctx, listener, func(conn net.Conn) {
		select {
		case slots <- struct{}{}:
		default:
			_ = conn.Close()
			return
		}
		clients.Go(func() {
			defer func() { <-slots }()
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
			s.converse(ctx, conn)
		})
	})
	if err != nil {
		return fmt.Errorf("listen for discovery: %w", err)
	}
	return nil
}

// conversation is the state of a connection with one client.
type conversation struct {
	*discoveryServer
	conn     net.Conn
	r        *bufio.Reader
	loggedIn bool
}

// converse answers one client until it leaves, or sends a request that can't be answered.
func (s *discoveryServer) converse(ctx context.Context, conn net.Conn) {
	if s.TLS != nil {
		config, err := s.TLS()
		if err != nil {
			return
		}
		secured := tls.Server(conn, config)
		handshakeCtx, cancel := context.WithTimeout(ctx, handshake)
		defer cancel()
		if secured.HandshakeContext(handshakeCtx) != nil {
			return
		}
		conn = secured
	}
	c := &conversation{discoveryServer: s, conn: conn, r: bufio.NewReaderSize(conn, maxLine), loggedIn: s.Logins == nil}
	for {
		patience := idle
		if !c.loggedIn {
			patience = handshake
		}
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			return
		}
		answer, last := c.answer(strings.TrimRight(string(line), "\r\n"))
		_ = conn.SetWriteDeadline(time.Now().Add(answering))
		if _, err := io.WriteString(conn, answer); err != nil || last {
			return
		}
	}
}

// answer returns the answer to a line; last tells whether the connection ends with it.
func (c *conversation) answer(line string) (answer string, last bool) {
	words := strings.Fields(line)
	switch {
	case len(words) == 0:
		return "ERROR\r\n", false
	case words[0] == "quit":
		return "", true
	case !c.loggedIn:
		return c.logIn(words)
	case line == "version":
		return "VERSION " + c.Version + "\r\n", false
	case len(words) == 3 && words[0] == "config" && words[1] == "get" && words[2] == "cluster":
		list := c.List()
		if list == nil {
			return notYet, false
		}
		text := list.String()
		return fmt.Sprintf("CONFIG cluster 0 %d\r\n%s\r\nEND\r\n", len(text), text), false
	case len(words) == 2 && words[0] == "get" && words[1] == contract.ListKey:
		list := c.List()
		if list == nil {
			return "END\r\n", false
		}
		text := list.String()
		return fmt.Sprintf("VALUE %s 0 %d\r\n%s\r\nEND\r\n", contract.ListKey, len(text), text), false
	}
	if slices.Contains(stores, words[0]) {
		return notHere, true // a value follows the line
	}
	return "ERROR\r\n", false
}

// stores are the commands that a value follows. Some clients use the discovery address as that of a member
// until they have the list.
var stores = []string{"set", "add", "replace", "append", "prepend", "cas", "ms"}

const notHere = "SERVER_ERROR this address tells where the members are: store items there\r\n"

const notYet = "SERVER_ERROR this member has not been told of the others yet\r\n"

// logIn expects a login in memcached's form: the first command is a set, whose value is user and password.
func (c *conversation) logIn(words []string) (answer string, last bool) {
	const refused = "CLIENT_ERROR authentication failure\r\n"
	if words[0] != "set" || len(words) != 5 {
		return "CLIENT_ERROR unauthenticated\r\n", false
	}
	admitted, err := memcache.Admit(words, c.r, c.Logins)
	if c.loggedIn = admitted && err == nil; !c.loggedIn {
		return refused, true
	}
	return "STORED\r\n", false
}
