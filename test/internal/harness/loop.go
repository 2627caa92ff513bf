package harness

import (
	"bufio"
	"context"
	"net"
	"time"

	"golang.org/x/sync/errgroup"
)

// Conn is a client's connection, with the reader of its answers.
type Conn struct {
	net.Conn
	Answers *bufio.Reader
	stop    func() bool
}

// Dial connects to an address. The connection is closed when the context ends.
func Dial(ctx context.Context, address string) (*Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	return &Conn{Conn: conn, Answers: bufio.NewReaderSize(conn, 64<<10), stop: stop}, nil
}

// Close closes the connection.
func (c *Conn) Close() error {
	c.stop()
	return c.Conn.Close()
}

// Load has the clients' results.
type Load struct {
	Requests int
	// Took is how long all of it took, and Times how long each answer, or pipeline of answers, took.
	Took  time.Duration
	Times Times
}

// Rate is the requests in a second.
func (l *Load) Rate() float64 { return float64(l.Requests) / l.Took.Seconds() }

// Closed runs a closed loop: clients that each wait for an answer before the next request, for so long, with
// a connection each. client returns the repeated work of the n-th: it sends a request, or a pipeline of some,
// reads the answers, and returns how many these are. Each client works once at least.
func Closed(ctx context.Context, address string, clients int, lasts time.Duration, client func(n int) func(*Conn) (int, error)) (*Load, error) {
	ctx, cancel := context.WithTimeout(ctx, lasts+Patience)
	defer cancel()
	each := make([]Load, clients)
	group, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	for n := range each {
		group.Go(func() error { return each[n].run(ctx, address, began.Add(lasts), client(n)) })
	}
	err := group.Wait()
	all := &Load{Took: time.Since(began)}
	for i := range each {
		all.Requests += each[i].Requests
		all.Times = append(all.Times, each[i].Times...)
	}
	return all, err
}

func (l *Load) run(ctx context.Context, address string, end time.Time, request func(*Conn) (int, error)) error {
	conn, err := Dial(ctx, address)
	if err != nil {
		return err
	}
	defer conn.Close()
	for {
		began := time.Now()
		n, err := request(conn)
		if err != nil {
			return err
		}
		now := time.Now()
		l.Requests += n
		l.Times = append(l.Times, now.Sub(began))
		if !now.Before(end) {
			return nil
		}
	}
}

// Open runs an open loop: a request is due after the first pause and then at each interval, until the context
// ends. Requests that are late because one before them took long are made right after it.
func Open(ctx context.Context, first, interval time.Duration, request func(due time.Time)) {
	for at := time.Now().Add(first); ; at = at.Add(interval) {
		now := time.Now()
		at = due(at, now)
		if Sleep(ctx, at.Sub(now)) != nil {
			return
		}
		request(at)
	}
}

// due returns when a request at that time is due: a person who has waited for too long has gone away.
func due(at, now time.Time) time.Time {
	const tooLong = 5 * time.Second
	if now.Sub(at) > tooLong {
		return now
	}
	return at
}
