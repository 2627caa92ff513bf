package pull

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/router/change"
)

const (
	// batchKeys and batchBytes bound a batch: clients wait for its leases.
	batchKeys  = 256
	batchBytes = 1 << 20
	// lanes move to the same owner at the same time.
	lanes = 2
)

// Pass moves keys of one member to their owners, to several at the same time.
type Pass struct {
	Dialer memcache.Dialer
	// From is the address of the member, To those of the owners.
	From string
	To   []string
	// KeepsCAS is Lane.KeepsCAS, by owner.
	KeepsCAS func(owner int) bool
	// Timeout is how long an owner, or the member, may not answer.
	Timeout time.Duration
	// Waiting is told why an owner, or the member (Member), is waited for; "" if it answers again.
	Waiting func(server int, why string)
	// Moved is told what came of keys of that owner. It is called by several goroutines.
	Moved func(ctx context.Context, owner int, keys []Key) error
}

// Member is the place of the member in calls of Waiting, and in a ServerError.
const Member = -1

// ServerError says which server a pass has failed at.
type ServerError struct {
	Server int
	Err    error
}

func (e *ServerError) Error() string { return e.Err.Error() }
func (e *ServerError) Unwrap() error { return e.Err }

// Misplaced is a key, its item's size in bytes (0 if that isn't known), and its owner's place in To.
type Misplaced struct {
	Key   []byte
	Size  int64
	Owner int
}

// Move moves the keys. They have to stay as they are until it returns.
func (p *Pass) Move(ctx context.Context, keys iter.Seq2[Misplaced, error]) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	batches, sizes, to := make([][]Key, len(p.To)), make([]int64, len(p.To)), make([]chan []Key, len(p.To))
	var running sync.WaitGroup
	for i := range to {
		to[i] = make(chan []Key)
		for range lanes {
			running.Go(func() {
				if err := p.lane(ctx, i, to[i]); err != nil {
					cancel(err)
				}
			})
		}
	}
	hand := func(i int) {
		if len(batches[i]) > 0 {
			select {
			case to[i] <- batches[i]:
			case <-ctx.Done():
			}
		}
		batches[i], sizes[i] = nil, 0
	}
	for k, err := range keys {
		if err != nil {
			cancel(err)
		}
		if ctx.Err() != nil {
			break
		}
		i := k.Owner
		batches[i] = append(batches[i], Key{Key: k.Key})
		if sizes[i] += k.Size; len(batches[i]) == batchKeys || sizes[i] >= batchBytes {
			hand(i)
		}
	}
	for i := range to {
		hand(i)
		close(to[i])
	}
	running.Wait()
	return context.Cause(ctx)
}

// lane moves batches of keys to one owner.
func (p *Pass) lane(ctx context.Context, owner int, batches <-chan []Key) error {
	l := link{pass: p, owner: owner}
	l.lane.KeepsCAS = p.KeepsCAS(owner)
	defer l.close()
	for keys := range batches {
		if err := l.move(ctx, keys); err != nil {
			return err
		}
		if err := p.Moved(ctx, owner, keys); err != nil {
			return err
		}
	}
	return nil
}

// link is a lane with its connections.
type link struct {
	pass  *Pass
	owner int
	lane  Lane
	stop  [2]func() bool
	// failed is where the last error was.
	failed change.Place
}

func (l *link) server(p change.Place) (place int, address string) {
	if p == change.Old {
		return Member, l.pass.From
	}
	return l.owner, l.pass.To[l.owner]
}

// move moves a batch, over other connections if these break.
func (l *link) move(ctx context.Context, keys []Key) error {
	waiting := func(why string) {
		for p := range l.lane.Owners {
			if server, _ := l.server(change.Place(p)); why == "" || change.Place(p) == l.failed {
				l.pass.Waiting(server, why)
			}
		}
	}
	err := memcache.Insist(ctx, l.pass.Timeout, waiting, func(timeout time.Duration) error {
		err := l.connect(ctx, timeout)
		if err == nil {
			err = l.lane.Move(keys)
		}
		if err != nil {
			var at *Error
			if errors.As(err, &at) {
				l.failed = at.Place
			}
			l.close()
		}
		return err
	})
	if err != nil {
		server, _ := l.server(l.failed)
		return &ServerError{server, err}
	}
	return nil
}

// connect makes ready for requests that take timeout at most.
func (l *link) connect(ctx context.Context, timeout time.Duration) error {
	for p, conn := range l.lane.Owners {
		if conn == nil {
			dialing, cancel := context.WithTimeout(ctx, timeout)
			_, address := l.server(change.Place(p))
			c, err := l.pass.Dialer.Dial(dialing, address)
			cancel()
			if err != nil {
				return &Error{change.Place(p), err}
			}
			conn = c
			l.lane.Owners[p], l.stop[p] = c, context.AfterFunc(ctx, func() { c.Close() })
		}
		if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
			return &Error{change.Place(p), err}
		}
	}
	return nil
}

func (l *link) close() {
	for p, conn := range l.lane.Owners {
		if conn != nil {
			l.stop[p]()
			conn.Close()
		}
		l.lane.Owners[p] = nil
	}
}
