// Package resp is the little of Redis' protocol that the sample with Redis needs.
package resp

import (
	"bufio"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"net"
	"strconv"
	"time"
)

// Owner is the server, of that many, that has the key: the clients' rule. The rule is the jump consistent
// hash of Lamping and Veach: if the last server leaves, only the keys of that server get another one.
func Owner(key string, servers int) int {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key)) // it never fails
	k, owner, next := h.Sum64(), 0, 0.0
	for next < float64(servers) {
		owner = int(next)
		k = k*2862933555777941757 + 1
		next = math.Floor(float64(owner+1) * (float64(1<<31) / float64(k>>33+1)))
	}
	return owner
}

// Error is an answer that begins with a minus.
type Error string

func (e Error) Error() string { return string(e) }

// Conn is a connection to a Redis server.
type Conn struct {
	net.Conn
	r *bufio.Reader
	// Timeout bounds each call.
	Timeout time.Duration
}

// Dial connects to a server.
func Dial(network, address string, timeout time.Duration) (*Conn, error) {
	c, err := net.DialTimeout(network, address, timeout)
	if err != nil {
		return nil, err
	}
	return &Conn{c, bufio.NewReader(c), timeout}, nil
}

// Call sends a command and reads its answer: a string, an int64, nil, or a list of these. An answer
// that is an error is returned as an Error.
func (c *Conn) Call(args ...string) (any, error) {
	if err := c.SetDeadline(time.Now().Add(c.Timeout)); err != nil {
		return nil, err
	}
	command := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, a := range args {
		command = fmt.Appendf(command, "$%d\r\n%s\r\n", len(a), a)
	}
	if _, err := c.Write(command); err != nil {
		return nil, err
	}
	return c.answer()
}

func (c *Conn) answer() (any, error) {
	line, err := c.r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	if len(line) < 3 {
		return nil, fmt.Errorf("%q is no answer", line)
	}
	kind, rest := line[0], line[1:len(line)-2]
	switch kind {
	case '+':
		return rest, nil
	case '-':
		return nil, Error(rest)
	}
	n, err := strconv.ParseInt(rest, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%q is no answer", line)
	}
	switch {
	case kind == ':':
		return n, nil
	case n < 0:
		return nil, nil
	case kind == '$':
		text := make([]byte, n+2)
		if _, err := io.ReadFull(c.r, text); err != nil {
			return nil, err
		}
		return string(text[:n]), nil
	case kind == '*':
		list := make([]any, n)
		for i := range list {
			if list[i], err = c.answer(); err != nil {
				return nil, err
			}
		}
		return list, nil
	}
	return nil, fmt.Errorf("%q is no answer", line)
}

// Keys has all keys of the server's first database, each once.
func (c *Conn) Keys() ([]string, error) {
	seen, keys, cursor := map[string]bool{}, []string(nil), "0"
	for {
		answer, err := c.Call("SCAN", cursor, "COUNT", "1000")
		if err != nil {
			return nil, err
		}
		page, ok := answer.([]any)
		if !ok || len(page) != 2 {
			return nil, fmt.Errorf("SCAN answers %v", answer)
		}
		names, _ := page[1].([]any)
		for _, name := range names {
			key, _ := name.(string)
			if !seen[key] { // SCAN may name a key twice
				seen[key], keys = true, append(keys, key)
			}
		}
		if cursor, _ = page[0].(string); cursor == "0" || cursor == "" {
			return keys, nil
		}
	}
}
