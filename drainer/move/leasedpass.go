package move

import (
	"context"
	"iter"
	"sync"
	"time"

	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/ringchange"
)

const (
	// batchKeys and batchBytes bound a batch, because clients wait for its leases.
	batchKeys  = 256
	batchBytes = 512 << 10
	// lanes is how many batches move at the same time, however many owners there are; ownLanes is how many of
	// them go to one owner. Each lane has a connection to the member.
	lanes    = 8
	ownLanes = 2
	// mostUnderWay bounds the items that are moved at the same time, in bytes, unless one item alone is
	// larger. mostWaiting bounds the keys that wait for more keys of the same owner, in bytes.
	mostUnderWay = 4 << 20
	mostWaiting  = 4 << 20
	// mostIdle bounds the idle connections to owners.
	mostIdle = 128
)

// leasedPass moves keys of one member to their owners, to several at the same time.
type leasedPass struct {
	Dialer memcache.Dialer
	// From is the address of the member, To has those of the owners.
	From string
	To   []string
	// KeepsCAS is KeyMover.KeepsCAS, by owner.
	KeepsCAS func(owner int) bool
	// Timeout bounds how long an owner, or the member, may not answer.
	Timeout time.Duration
	// Waiting is called with why an owner, or the member (theMember), is waited for; "" when it answers again.
	Waiting func(server int, why string)
	// Moved is called with the keys of an owner and their outcomes. Several goroutines call it.
	Moved func(ctx context.Context, owner int, keys []LeasedKey) error
}

// theMember is the index of the member in calls of Waiting, and in a passError.
const theMember = -1

// passError is the failure of a pass at a server.
type passError struct {
	Server int
	Err    error
}

func (e *passError) Error() string { return e.Err.Error() }
func (e *passError) Unwrap() error { return e.Err }

// misplacedKey is a key, its item's size in bytes (0 if unknown), and its owner's index in To.
type misplacedKey struct {
	Key   []byte
	Size  int64
	Owner int
}

// batch has keys of one owner.
type batch struct {
	owner int
	keys  []LeasedKey
	// bytes is the size of their items, waiting that of the keys while they wait.
	bytes, waiting int64
}

// Move moves the keys, which must not change until it returns. If keys yields an error, batches that are not
// full are left out, and Moved is not called for their keys.
func (p *leasedPass) Move(ctx context.Context, keys iter.Seq2[misplacedKey, error]) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	pool := ownersPool{pass: p, ctx: ctx, idle: make([][]*connection, len(p.To))}
	defer pool.close()
	to := handler{ctx: ctx, work: make(chan *batch), done: make(chan int64, lanes+1)}
	var running sync.WaitGroup
	for range min(lanes, ownLanes*len(p.To)) {
		running.Go(func() {
			if err := p.lane(ctx, &pool, &to); err != nil {
				cancel(err)
			}
		})
	}
	err := p.batches(ctx, keys, to.hand)
	close(to.work)
	running.Wait()
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// batches hands over the keys, batch by batch.
func (p *leasedPass) batches(ctx context.Context, keys iter.Seq2[misplacedKey, error], hand func(*batch)) error {
	of, waiting := make([]batch, len(p.To)), int64(0)
	end := func(b *batch) {
		waiting -= b.waiting
		if len(b.keys) > 0 {
			hand(&batch{owner: b.owner, keys: b.keys, bytes: b.bytes})
		}
		*b = batch{}
	}
	for k, err := range keys {
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
		const more = 64 // bytes of memory, beside the key's own
		b := &of[k.Owner]
		b.owner, b.keys, b.bytes = k.Owner, append(b.keys, LeasedKey{Key: k.Key}), b.bytes+k.Size
		b.waiting += int64(len(k.Key)) + more
		if waiting += int64(len(k.Key)) + more; len(b.keys) == batchKeys || b.bytes >= batchBytes {
			end(b)
		} else if waiting >= mostWaiting {
			end(largest(of))
		}
	}
	for i := range of {
		end(&of[i])
	}
	return nil
}

func largest(of []batch) *batch {
	most := &of[0]
	for i := range of {
		if of[i].waiting > most.waiting {
			most = &of[i]
		}
	}
	return most
}

// handler hands batches to lanes.
type handler struct {
	ctx  context.Context
	work chan *batch
	// done gets the bytes of batches that lanes have finished; underWay counts those of the others.
	done     chan int64
	underWay int64
}

// hand waits until there is room, and a free lane.
func (h *handler) hand(b *batch) {
	for {
		work := h.work
		if h.underWay > 0 && h.underWay+b.bytes > mostUnderWay {
			work = nil
		}
		select {
		case n := <-h.done: // there is always room for one of each lane, and one more
			h.underWay -= n
			continue
		default:
		}
		select {
		case n := <-h.done:
			h.underWay -= n
		case work <- b:
			h.underWay += b.bytes
			return
		case <-h.ctx.Done():
			return
		}
	}
}

// lane moves batches.
func (p *leasedPass) lane(ctx context.Context, pool *ownersPool, from *handler) error {
	l := leasedLink{pool: pool}
	defer l.close()
	for b := range from.work {
		l.owner, l.lane.KeepsCAS = b.owner, p.KeepsCAS(b.owner)
		if err := l.move(ctx, b.keys); err != nil {
			return err
		}
		l.release(ringchange.New)
		if err := p.Moved(ctx, b.owner, b.keys); err != nil {
			return err
		}
		from.done <- b.bytes
	}
	return nil
}
