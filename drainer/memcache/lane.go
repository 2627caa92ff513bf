package memcache

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"example.com/memcached-operator/drainer/item"
)

// lane is one connection of a Writer and its successors. When a connection breaks, the batches without an
// outcome are sent over the next one, in full and in order. An add that had been applied is then answered as
// already present, so that each item is counted once, and the first value stays.
type lane struct {
	w *Writer
	// number is the lane's number in the Writer.
	number int
	// resend has the batches without an outcome, oldest first.
	resend   []*batch
	patience patience
	// waiting means that the Writer's owner has been told that the server is silent.
	waiting bool
}

// run sends batches until the context ends, and then returns no error. run returns an error if it gives the
// server up.
func (l *lane) run(ctx context.Context) error {
	for {
		// Without work there is no connection: a server that isn't needed may be down.
		if len(l.resend) == 0 {
			select {
			case b := <-l.w.work:
				l.resend = append(l.resend, b)
				l.patience = newPatience(l.w.options.UnreachableTimeout)
			case <-ctx.Done():
				return nil
			}
		}
		err := l.connectAndPump(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if !errors.Is(err, ErrProtocol) && !errors.Is(err, item.ErrFault) && !errors.As(err, new(*TwinError)) {
			l.waiting = true
			l.w.options.Waiting(err.Error())
			err = l.patience.wait(ctx, err)
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", l.w.options.Address, err)
		}
	}
}

// answered records that the server is alive.
func (l *lane) answered() {
	l.patience.reset()
	if l.waiting {
		l.waiting = false
		l.w.options.Waiting("")
	}
}

func (l *lane) connectAndPump(ctx context.Context) error {
	dialCtx, cancel := context.WithTimeout(ctx, l.patience.attempt())
	conn, err := l.w.options.Dialer.Dial(dialCtx, l.w.options.Address)
	cancel()
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if err := conn.SetDeadline(time.Now().Add(l.patience.attempt())); err != nil {
		return err
	}
	clock, flushed, err := conn.lastFlush()
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	if err != nil {
		return err
	}
	l.w.flushedAt(flushed)
	for _, b := range l.resend {
		b.resent = true
	}
	p := pump{lane: l, conn: conn.conn, clock: clock, old: len(l.resend),
		inflight: make(chan *batch, inFlight), broken: make(chan struct{})}
	return p.run(ctx)
}

// pump sends batches over one connection: one goroutine writes, one reads. The reader never waits for the
// writer, so the buffers of the two ends can't block each other forever.
type pump struct {
	*lane
	conn  net.Conn
	clock serverClock
	// old is the number of batches that an earlier connection left over.
	old      int
	inflight chan *batch
	// broken is closed by the reader when it stops. Then unsettled is the batch whose answers are missing, and
	// readErr is the reason.
	broken    chan struct{}
	unsettled *batch
	readErr   error
	// buffers has the buffers of a write.
	buffers net.Buffers
}

func (p *pump) run(ctx context.Context) error {
	go p.read()
	queue := p.resend
	err := p.write(ctx, &queue)
	close(p.inflight)
	p.letReaderEnd(err)
	p.resend = nil
	if p.unsettled != nil {
		p.resend = append(p.resend, p.unsettled)
	}
	for b := range p.inflight {
		p.resend = append(p.resend, b)
	}
	for _, b := range p.resend {
		select {
		case <-b.sent:
		default: // the token was taken, or the batch was never written
		}
	}
	p.resend = append(p.resend, queue...)
	if err == nil || errors.Is(p.readErr, ErrProtocol) {
		return p.readErr
	}
	return err
}

// letReaderEnd gives the reader a moment, after a failed write, to read the line in which the server said why
// it closed the connection.
func (p *pump) letReaderEnd(writeErr error) {
	if writeErr != nil {
		timer := time.AfterFunc(time.Second, func() { p.conn.Close() })
		defer timer.Stop()
	}
	<-p.broken
	p.conn.Close()
}

// write sends the batches in queue, and then the Writer's next batches. A batch is in inflight before
// its first byte is sent.
func (p *pump) write(ctx context.Context, queue *[]*batch) error {
	for {
		if len(*queue) == 0 {
			select {
			case b := <-p.w.work:
				*queue = append(*queue, b)
			case <-p.broken:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		b := (*queue)[0]
		select {
		case p.inflight <- b:
			*queue = (*queue)[1:]
		case <-p.broken:
			return nil
		}
		// Errors show in the write itself.
		_ = p.conn.SetWriteDeadline(time.Now().Add(p.w.options.UnreachableTimeout))
		err := p.send(b)
		b.sent <- struct{}{}
		if err != nil {
			return err
		}
	}
}

func (p *pump) send(b *batch) error {
	if sending := p.w.options.Sending; sending != nil {
		if err := sending(b.places()); err != nil {
			p.w.cancel(err)
			return err
		}
	}
	if len(b.held) == 0 {
		_, err := p.conn.Write(b.buf)
		return err
	}
	p.buffers = b.appendTo(p.buffers[:0])
	rest := p.buffers // the write consumes it
	_, err := rest.WriteTo(p.conn)
	if errors.Is(err, syscall.EFAULT) { // not the server's fault
		err = fmt.Errorf("%w: %w", item.ErrFault, err)
	}
	return err
}

// read settles the batches in the order in which they were sent.
func (p *pump) read() {
	defer close(p.broken)
	r := bufio.NewReaderSize(p.conn, 16<<10)
	for n := 0; ; n++ {
		b, ok := <-p.inflight
		if !ok {
			return
		}
		if n >= p.old {
			p.patience.reset()
		}
		_ = p.conn.SetReadDeadline(time.Now().Add(p.patience.attempt()))
		o, err := readReplies(r, b)
		if err != nil {
			p.unsettled, p.readErr = b, err
			return
		}
		<-b.sent
		p.answered()
		if flushed := p.clock.at(o.oldest); p.w.flushedAt(flushed) > b.flushed {
			if err := p.takeBack(b, &o); err != nil {
				p.unsettled, p.readErr = b, err
				return
			}
		}
		if answered := p.w.options.Answered; answered != nil {
			if err := answered(p.number, Answered{b, o.Rejected > 0}); err != nil {
				p.w.cancel(err)
			}
		}
		p.w.settle(b, o)
	}
}
