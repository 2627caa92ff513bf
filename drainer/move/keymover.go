package move

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"

	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/ringchange"
	"example.com/memcached-operator/drainer/wire"
)

// keyOutcome is the fate of a key.
type keyOutcome uint8

const (
	// keyLater means that another process has the key's lease, so the item may still be at its old owner.
	keyLater keyOutcome = iota
	// keyMoved means that the item is at its new owner.
	keyMoved
	// keyPresent means that its new owner has a newer value. The old one is deleted.
	keyPresent
	// keyGone means that neither owner has the item: it was deleted, evicted, or has expired.
	keyGone
	// keyOutdated means that a client has marked the item, or is about to store it again. The item is still
	// at its old owner.
	keyOutdated
	// keyRefused means that its new owner doesn't accept it.
	keyRefused
	// keyNoTextForm means that the text protocol can't carry its key, so clients of routers can't ask for it.
	keyNoTextForm
	// keyFlushed means that clients have flushed one of its owners since it was last used. Neither has an older
	// value any more.
	keyFlushed
)

// LeasedKey is a key that is to be moved, and its outcome.
type LeasedKey struct {
	Key     []byte
	Outcome keyOutcome
	// Bytes is the size of key and value, if it was moved.
	Bytes int64
	// Why is the reason of a refusal.
	Why string
}

// ownerError is an error about one of the two owners.
type ownerError struct {
	Place ringchange.Place
	Err   error
}

func (e *ownerError) Error() string { return e.Err.Error() }
func (e *ownerError) Unwrap() error { return e.Err }

// KeyMover moves keys from one member to another under their leases, as routers do with keys that are read: by the
// steps of package ringchange. The keys of a batch take each step together, so a step is one round trip for all of
// them. A KeyMover is for one goroutine.
type KeyMover struct {
	// Owners are connections to both, by ringchange.Place, for this lane alone.
	Owners [2]*memcache.Conn
	// KeepsCAS means that the new owner can be told the CAS value of an item (memcached 1.6.27 and later).
	KeepsCAS bool

	moves    []keyMove
	requests [2][]byte
	// asked is when the requests of the present step were made, in Unix seconds. An answer may be read much
	// later, so the times in it count from then: an item must not seem to be used after a flush.
	asked int64
	flushing
}

// keyMove is the move of one key.
type keyMove struct {
	key     *LeasedKey
	mover   ringchange.Mover
	step    ringchange.Step
	asked   ringchange.Place // the owner that has to answer
	request ringchange.Request
	fetched ringchange.Fetched
	// accessed is when the item was last used, in Unix seconds.
	accessed int64
	// copied is the index of the key's copy among the lane's, counted from 1; 0 if there is none. copiedBefore is that of
	// the copy that this one replaces.
	copied, copiedBefore int
}

// Move moves keys. After an *ownerError their outcomes are unknown: the same keys can be moved again, over other
// connections.
func (l *KeyMover) Move(keys []LeasedKey) error {
	l.moves, l.outdated = l.moves[:0], l.outdated[:0]
	for i := range keys {
		k := &keys[i]
		k.Outcome = keyLater
		text, binary, err := memcache.AppendKey(nil, k.Key)
		if err != nil {
			k.Outcome = keyNoTextForm
			continue
		}
		m := keyMove{key: k, mover: ringchange.NewMover(0), request: ringchange.ForKey(text, binary)}
		m.step = m.mover.Start()
		l.moves = append(l.moves, m)
	}
	for l.ask = true; len(l.moves) > 0; l.ask = false {
		if err := l.round(); err != nil {
			return err
		}
		if l.ask {
			l.begin()
		}
		left := l.moves[:0]
		for _, m := range l.moves {
			if m.step.Action != ringchange.Done {
				left = append(left, m)
			}
		}
		clear(l.moves[len(left):])
		l.moves = left
	}
	return l.obey()
}

// round makes one step of each key.
func (l *KeyMover) round() error {
	l.asked = time.Now().Unix()
	for p := range l.requests {
		if l.requests[p] = l.requests[p][:0]; cap(l.requests[p]) > mostKept {
			l.requests[p] = nil
		}
		if l.ask {
			l.requests[p] = append(l.requests[p], memcache.AskFlushes...)
		}
	}
	for i := range l.moves {
		m := &l.moves[i]
		m.asked = m.step.Place
		to := &l.requests[m.asked]
		if m.step.Action == ringchange.Copy {
			l.sendsCopy(m)
			*to = m.request.AppendCopy(*to, &m.fetched, m.step, l.KeepsCAS, time.Now().Unix())
			continue
		}
		*to = m.request.Append(*to, m.step)
	}
	// An owner answers before it has read all requests, so writing and reading go on at the same time.
	sent := make(chan error, len(l.Owners))
	for p, c := range l.Owners {
		go func() {
			var err error
			if len(l.requests[p]) > 0 {
				err = c.Send(l.requests[p])
			}
			if err != nil {
				err = &ownerError{ringchange.Place(p), err}
			}
			sent <- err
		}()
	}
	err := l.hear()
	if err != nil { // the rest of the sending is not waited for
		for _, c := range l.Owners {
			c.Close()
		}
	}
	for range l.Owners {
		err = errors.Join(err, <-sent)
	}
	return err
}

// hear reads the answers, in the order of the requests of each owner.
func (l *KeyMover) hear() error {
	for p, c := range l.Owners {
		if l.ask {
			var err error
			if l.latest[p], err = c.Flushes(); err != nil {
				return &ownerError{ringchange.Place(p), err}
			}
		}
		for i := range l.moves {
			m := &l.moves[i]
			if m.asked != ringchange.Place(p) {
				continue
			}
			answer, err := readAnswer(c)
			if err == nil {
				err = l.heard(m, answer)
			}
			if err != nil {
				return &ownerError{ringchange.Place(p), err}
			}
		}
	}
	return nil
}

// readAnswer reads an answer with its data block.
func readAnswer(c *memcache.Conn) ([]byte, error) {
	line, err := c.Line()
	if err != nil {
		return nil, err
	}
	answer := bytes.NewBuffer(append(bytes.Clone(line), "\r\n"...))
	var a wire.Answer
	if a.Parse(wire.MetaValue, answer.Bytes()); a.Code == wire.Broken {
		return nil, fmt.Errorf("%w: %.80q", memcache.ErrProtocol, line)
	}
	if _, err := io.CopyN(answer, c, int64(a.Block)); err != nil { // memory is only allocated for bytes that have arrived
		return nil, err
	}
	return answer.Bytes(), nil
}
