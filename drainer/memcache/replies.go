package memcache

import (
	"bufio"
	"bytes"
	"fmt"
	"strconv"
)

// Tally counts the outcomes of items, each once.
type Tally struct {
	Added, Present, Rejected int64
	// TooLargeFlags counts the rejected items whose client flags the server can't store.
	TooLargeFlags int64
	// TooLarge counts the rejected items that are larger than the server's limit.
	TooLarge int64
	// Invalidated counts items that were last accessed before clients flushed the server.
	Invalidated int64
	// Bytes is the size of keys and values that were added. If a server doesn't say which items it has not
	// added, they count with the batch's average size.
	Bytes int64
}

func (t *Tally) add(o Tally) {
	t.Added += o.Added
	t.Present += o.Present
	t.Rejected += o.Rejected
	t.TooLargeFlags += o.TooLargeFlags
	t.TooLarge += o.TooLarge
	t.Invalidated += o.Invalidated
	t.Bytes += o.Bytes
}

// outcome is the result of one batch.
type outcome struct {
	Tally
	// refusal is the first line that rejected an item, quoted for the receipt, which has little room.
	refusal string
	// oldest is the server's last flush, in seconds of its own clock: items last accessed up to then are
	// flushed. 0 for none.
	oldest int64
}

// readReplies reads the answers to a batch up to its barrier. After an error the batch has no outcome, and
// its connection can't be used any more.
func readReplies(r *bufio.Reader, b *batch) (outcome, error) {
	var o outcome
	removed, classic := int64(0), 0
	for lines := 0; ; lines++ {
		if lines > len(b.adds)+maxStats {
			return outcome{}, fmt.Errorf("%w: more than %d lines to %d adds", ErrProtocol, lines, len(b.adds))
		}
		line, err := r.ReadSlice('\n')
		if err != nil {
			return outcome{}, err
		}
		line = bytes.TrimRight(line, "\r\n")
		switch {
		case string(line) == "END":
			return o.close(b, removed)
		case bytes.HasPrefix(line, []byte("STAT oldest ")):
			if o.oldest, err = strconv.ParseInt(string(line[len("STAT oldest "):]), 10, 64); err != nil {
				return outcome{}, fmt.Errorf("%w to stats settings: %.80q", ErrProtocol, line)
			}
		case bytes.HasPrefix(line, []byte("STAT ")):
		case string(line) == "STORED", string(line) == "NOT_STORED":
			a := b.classic(&classic)
			if string(line) == "STORED" {
				continue
			}
			o.Present++
			if a == nil || o.Rejected > 0 {
				removed += b.average() // a refusal doesn't say which add it is about
				continue
			}
			a.present = true
			removed += int64(a.bytes)
		case isNotStored(bytes.TrimRight(line, " ")):
			o.Present++
			removed += b.average()
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

// close computes from the refusals how many items were added.
func (o outcome) close(b *batch, removed int64) (outcome, error) {
	o.Added = int64(len(b.adds)) - o.Present - o.Rejected
	if o.Added < 0 {
		return outcome{}, fmt.Errorf("%w: %d answers to %d adds", ErrProtocol, o.Present+o.Rejected, len(b.adds))
	}
	o.Bytes = max(0, b.bytes-removed)
	if o.Added == 0 {
		o.Bytes = 0
	}
	return o, nil
}

// average returns the average size of the batch's items, 0 for an empty batch.
func (b *batch) average() int64 {
	return b.bytes / int64(max(1, len(b.adds)))
}

// classic returns the next classic add from that position on, and moves the position behind it; nil if there
// is none.
func (b *batch) classic(next *int) *add {
	for ; *next < len(b.adds); *next++ {
		if a := &b.adds[*next]; a.classic {
			*next++
			return a
		}
	}
	return nil
}

// isNotStored tells whether a meta set was not carried out: there is an item, or not the one that was to be
// replaced.
func isNotStored(line []byte) bool {
	return string(line) == "NS" || string(line) == "EX" || string(line) == "NF"
}
