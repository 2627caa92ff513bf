package memcache

import (
	"bufio"
	"bytes"
	"fmt"
)

// Tally counts what became of items, each once.
type Tally struct {
	Added, Present, Rejected int64
	// TooLargeFlags counts those of the rejected ones whose client flags the server can't
	// store.
	TooLargeFlags int64
	// Bytes of keys and values that were added. If a server rejects items without
	// saying which, they count with the batch's average size.
	Bytes int64
}

func (t *Tally) add(o Tally) {
	t.Added += o.Added
	t.Present += o.Present
	t.Rejected += o.Rejected
	t.TooLargeFlags += o.TooLargeFlags
	t.Bytes += o.Bytes
}

// outcome is what the server said to one batch.
type outcome struct {
	Tally
	// refusal is the first line that rejected an item, quoted: it goes into the receipt,
	// which has little room.
	refusal string
}

// readReplies reads the answers to a batch up to its barrier. An error leaves
// the batch without an outcome: its connection is of no further use.
func readReplies(r *bufio.Reader, b *batch) (outcome, error) {
	var o outcome
	removed := int64(0)
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return outcome{}, err
		}
		line = bytes.TrimRight(line, "\r\n")
		switch {
		case string(line) == "MN":
			return o.close(b, removed)
		case string(line) == "STORED":
		case string(line) == "NOT_STORED":
			o.Present++
			removed += b.average()
		case bytes.HasPrefix(line, []byte("NS")):
			size, ok := b.sizeOf(line)
			if !ok {
				return outcome{}, fmt.Errorf("%w to an add: %.80q", ErrProtocol, line)
			}
			o.Present++
			removed += size
		case bytes.HasPrefix(line, []byte("SERVER_ERROR ")):
			o.Rejected++
			removed += b.average()
			if o.refusal == "" {
				o.refusal = fmt.Sprintf("%.80q", line)
			}
		default:
			return outcome{}, fmt.Errorf("%w to an add: %.80q", ErrProtocol, line)
		}
	}
}

// close computes what was added from what was refused.
func (o outcome) close(b *batch, removed int64) (outcome, error) {
	o.Added = int64(len(b.sizes)) - o.Present - o.Rejected
	if o.Added < 0 {
		return outcome{}, fmt.Errorf("%w: %d answers to %d adds", ErrProtocol, o.Present+o.Rejected, len(b.sizes))
	}
	o.Bytes = max(0, b.bytes-removed)
	if o.Added == 0 {
		o.Bytes = 0
	}
	return o, nil
}

// average size of the batch's items, 0 for an empty one.
func (b *batch) average() int64 {
	return b.bytes / int64(max(1, len(b.sizes)))
}

// sizeOf finds the item that an "NS O<position>" line is about.
func (b *batch) sizeOf(line []byte) (int64, bool) {
	_, token, ok := bytes.Cut(line, []byte(" O"))
	if !ok || len(token) == 0 || len(token) > 9 {
		return 0, false
	}
	n := 0
	for _, c := range token {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	if n >= len(b.sizes) {
		return 0, false
	}
	return int64(b.sizes[n]), true
}
