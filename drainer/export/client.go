package export

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"time"

	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/memcache"
)

// Stream is a mover's connection to a supervisor.
type Stream struct {
	Hello
	// End is the end of the last pass.
	End
	conn *memcache.Conn
	// silence bounds the time without a frame from the supervisor.
	silence time.Duration
	stop    func() bool
	frame   []byte
}

// ErrRefused means that the supervisor answers, but streams nothing.
var ErrRefused = errors.New("the supervisor refuses to stream")

// connecting bounds the time to reach a supervisor. A network policy in the way would leave the connection
// without an answer.
const connecting = 10 * time.Second

// surveying is how many times silence the first answer may take: the supervisor scans all of the file first,
// and sends nothing meanwhile.
const surveying = 5

// Open asks the supervisor at address for a stream, until ctx ends. silence bounds the time without a frame
// during a pass.
func Open(ctx context.Context, d memcache.Dialer, address string, r *Request, silence time.Duration) (*Stream, error) {
	request, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	dialCtx, cancel := context.WithTimeout(ctx, min(connecting, silence))
	defer cancel()
	d.AnyServer = true // the server is a supervisor
	conn, err := d.Dial(dialCtx, address)
	if err != nil {
		return nil, err
	}
	s := &Stream{conn: conn, silence: silence, stop: context.AfterFunc(ctx, func() { conn.Close() })}
	if err := s.open(request); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Stream) open(request []byte) error {
	if err := s.send(Export + string(request)); err != nil {
		return err
	}
	if err := s.conn.SetReadDeadline(time.Now().Add(surveying * s.silence)); err != nil {
		return err
	}
	line, err := s.conn.Line()
	if err != nil {
		return err
	}
	hello, ok := strings.CutPrefix(string(line), OK)
	if !ok {
		return fmt.Errorf("%w: %.200s", ErrRefused, line)
	}
	if err := json.Unmarshal([]byte(hello), &s.Hello); err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	s.Expected = max(0, s.Expected)
	return nil
}

func (s *Stream) send(line string) error {
	if err := s.conn.SetDeadline(time.Now().Add(s.silence)); err != nil {
		return err
	}
	return s.conn.Send([]byte(line + "\r\n"))
}

// Close closes the connection.
func (s *Stream) Close() {
	s.stop()
	s.conn.Close()
}

// Items yields the items of one pass, each valid until the next one, with times by the member's clock. An
// error is the last thing yielded. After the last item, s.End is set.
func (s *Stream) Items() iter.Seq2[*item.Item, error] {
	return func(yield func(*item.Item, error) bool) {
		s.End = End{}
		if err := s.send(Pass); err != nil {
			yield(nil, err)
			return
		}
		var it item.Item
		for {
			kind, frame, err := s.next()
			if err == nil && kind == Ended {
				if err = json.Unmarshal(frame, &s.End); err == nil && s.Error == "" {
					return
				}
				err = errors.Join(err, errors.New(s.Error))
			}
			for len(frame) > 0 && err == nil {
				if frame, err = NextItem(frame, &it); err == nil && !yield(&it, nil) {
					return
				}
			}
			if err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// next reads a frame.
func (s *Stream) next() (kind byte, frame []byte, err error) {
	if err := s.conn.SetReadDeadline(time.Now().Add(s.silence)); err != nil {
		return 0, nil, err
	}
	var head [FrameHead]byte
	if _, err := io.ReadFull(s.conn, head[:]); err != nil {
		return 0, nil, err
	}
	kind, size, err := Head(head[:])
	if err != nil {
		return 0, nil, err
	}
	// Memory is only allocated for bytes that have arrived.
	const step = 1 << 20
	frame = s.frame[:0]
	for len(frame) < size && err == nil {
		n := min(size-len(frame), max(step, len(frame)))
		frame = slices.Grow(frame, n)
		_, err = io.ReadFull(s.conn, frame[len(frame):len(frame)+n])
		frame = frame[:len(frame)+n]
	}
	s.frame = frame
	return kind, frame, err
}
