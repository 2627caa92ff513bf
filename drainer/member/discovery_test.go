package member

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/test/wait"
)

func two() *contract.List {
	return &contract.List{Version: 7, Nodes: []contract.Node{{Host: "a", IP: "10.0.0.1", Port: 11211}, {Host: "b", IP: "10.0.0.2", Port: 11211}}}
}

// ask sends a client's text, and returns all answers until the server closes.
func ask(t *testing.T, s *discoveryServer, sent string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := s.Serve(ctx, listener); err != nil {
			t.Error(err)
		}
	})
	defer serving.Wait()
	defer cancel()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(wait.Deadline())
	if _, err := io.WriteString(conn, sent); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	// A server that closes a connection with unread input resets it.
	if timeout := (net.Error)(nil); errors.As(err, &timeout) && timeout.Timeout() {
		t.Fatalf("after %q: %v", answer, err)
	}
	return string(answer)
}

func TestQuestionsAreAnsweredAsElastiCacheDoes(t *testing.T) {
	const list = "7\na|10.0.0.1|11211 b|10.0.0.2|11211\n"
	const config = "CONFIG cluster 0 36\r\n" + list + "\r\nEND\r\n"
	for name, test := range map[string]struct {
		list       *contract.List
		sent, want string
	}{
		"the list":                {two(), "config get cluster\r\nquit\r\n", config},
		"a bare line feed":        {two(), "config get cluster\nquit\n", config},
		"twice":                   {two(), "config get cluster\r\nconfig get cluster\r\nquit\r\n", config + config},
		"the item":                {two(), "get AmazonElastiCache:cluster\r\nquit\r\n", "VALUE AmazonElastiCache:cluster 0 36\r\n" + list + "\r\nEND\r\n"},
		"the version comes first": {two(), "version\r\nconfig get cluster\r\nquit\r\n", "VERSION 1.6.18\r\n" + config},
		"no list yet":             {nil, "config get cluster\r\nquit\r\n", "SERVER_ERROR this member has not been told of the others yet\r\n"},
		"no item yet":             {nil, "get AmazonElastiCache:cluster\r\nquit\r\n", "END\r\n"},
		"an empty line":           {two(), "\r\nquit\r\n", "ERROR\r\n"},
		"another config":          {two(), "config get others\r\nquit\r\n", "ERROR\r\n"},
		"a write":                 {two(), "set a 0 0 1\r\n1\r\n", "SERVER_ERROR this address tells where the members are: store items there\r\n"},
		"another item":            {two(), "get a\r\nquit\r\n", "ERROR\r\n"},
		"a line without end":      {two(), strings.Repeat("x", 600), ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := &discoveryServer{List: func() *contract.List { return test.list }, Version: "1.6.18"}
			if got := ask(t, s, test.sent); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestNoClientGetsTheListWithoutALogin(t *testing.T) {
	const config = "CONFIG cluster 0 36\r\n7\na|10.0.0.1|11211 b|10.0.0.2|11211\n\r\nEND\r\n"
	const refused = "CLIENT_ERROR authentication failure\r\n"
	for name, test := range map[string]struct{ sent, want string }{
		"logged in":               {"set auth 0 0 7\r\nann pwd\r\nconfig get cluster\r\nquit\r\n", "STORED\r\n" + config},
		"by the second login":     {"set auth 0 0 7\r\nbob two\r\nconfig get cluster\r\nquit\r\n", "STORED\r\n" + config},
		"no login":                {"config get cluster\r\nversion\r\nquit\r\n", "CLIENT_ERROR unauthenticated\r\nCLIENT_ERROR unauthenticated\r\n"},
		"no login, then one":      {"version\r\nset auth 0 0 7\r\nann pwd\r\nconfig get cluster\r\nquit\r\n", "CLIENT_ERROR unauthenticated\r\nSTORED\r\n" + config},
		"a wrong password":        {"set auth 0 0 7\r\nann two\r\nconfig get cluster\r\nquit\r\n", refused},
		"half a password":         {"set auth 0 0 5\r\nann p\r\nconfig get cluster\r\nquit\r\n", refused},
		"a size that is too much": {"set auth 0 0 99999999\r\n", refused},
		"a size below nothing":    {"set auth 0 0 -3\r\n", refused},
		"no end of the data":      {"set auth 0 0 7\r\nann pwdxx", refused},
	} {
		t.Run(name, func(t *testing.T) {
			s := &discoveryServer{
				List: two, Version: "1.6.18", Logins: func() ([]contract.Login, error) {
					return []contract.Login{{User: "ann", Password: "pwd"}, {User: "bob", Password: "two"}}, nil
				},
			}
			if got := ask(t, s, test.sent); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
	s := &discoveryServer{List: two, Logins: func() ([]contract.Login, error) { return nil, errors.New("no file") }}
	if got := ask(t, s, "set auth 0 0 0\r\n\r\nquit\r\n"); got != refused {
		t.Errorf("without logins: %q", got)
	}
}
