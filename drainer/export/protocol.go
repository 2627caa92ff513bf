package export

import (
	"encoding/binary"
	"errors"
	"fmt"

	"example.com/memcached-operator/drainer/item"
)

// Request is the mover's request.
type Request struct {
	// Client and KeyPrefix name the routing; Servers are its list, as the client names them.
	Client    string   `json:"client"`
	KeyPrefix string   `json:"keyPrefix,omitempty"`
	Servers   []Listed `json:"servers"`
	// Self is the member's index among the servers, NoServer if it is none of them.
	Self int `json:"self"`
	// OldestFirst asks for the least recently used items first.
	OldestFirst bool `json:"oldestFirst,omitempty"`
}

// NoServer is the index of a member that is none of the servers: others own all of its items.
const NoServer = -1

// Listed is a server of the routing's list.
type Listed struct {
	Name string `json:"name,omitempty"`
	Host string `json:"host"`
	Port uint16 `json:"port"`
}

// Hello is the supervisor's answer.
type Hello struct {
	// Version is memcached's version.
	Version string `json:"version"`
	// Expected is roughly how many items others own.
	Expected int64 `json:"expected"`
	// Silence is when a client last called, nil if that is not known.
	Silence *Silence `json:"silence,omitempty"`
}

// Silence is a time in which no client called memcached.
type Silence struct {
	// Commands is how many commands memcached had counted (memcache.ClientCommands) at its end.
	Commands int64 `json:"commands"`
	// Seconds is how long ago it began.
	Seconds float64 `json:"seconds"`
}

// End is sent at the end of a pass.
type End struct {
	// Items is how many items were sent; Asked is for how many keys memcached was asked.
	Items int64 `json:"items"`
	Asked int64 `json:"asked"`
	// Complete means that every item that existed from the beginning of the pass to its end was sent.
	Complete bool `json:"complete"`
	// Error is why the pass ended early.
	Error string `json:"error,omitempty"`
}

// The words that begin lines.
const (
	Export = "export "
	OK     = "OK "
	Pass   = "pass"
	// MaxLine bounds a request, in bytes: MaxServers take less than a fifth of it.
	MaxLine = 512 << 10
	// MaxServers bounds the cluster's size: some clients hash a key once for each server.
	MaxServers = 512
)

// Kinds of frames. A frame is its kind, the number of bytes that follow, in 32 bits, and these bytes. A frame
// without items says that the pass goes on.
const (
	Items     = 'I'
	Ended     = 'E'
	FrameHead = 5
	// maxFrame is more than the largest item that memcached can be told to accept, 1 GiB.
	maxFrame = 1<<30 + 1<<20
)

// PutHead writes a frame's head into the first bytes of b, which is the whole frame.
func PutHead(b []byte, kind byte) {
	b[0] = kind
	binary.LittleEndian.PutUint32(b[1:], uint32(len(b)-FrameHead))
}

// Head reads the head of a frame.
func Head(b []byte) (kind byte, size int, err error) {
	kind, size = b[0], int(binary.LittleEndian.Uint32(b[1:]))
	if kind != Items && kind != Ended || size > maxFrame {
		return 0, 0, fmt.Errorf("%w: a frame %q of %d bytes", ErrMalformed, kind, size)
	}
	return kind, size, nil
}

// ErrMalformed means that the received bytes don't follow this protocol.
var ErrMalformed = errors.New("malformed stream")

// The head of a record: the lengths of value and key, state and form, CAS, client flags,
// expiry, last access.
const recordHead = 40

const binaryKey = 4

// AppendItem writes an item; its times are by the member's clock.
func AppendItem(b []byte, it *item.Item) []byte {
	var head [recordHead]byte
	binary.LittleEndian.PutUint32(head[0:], uint32(len(it.Value)))
	head[4] = byte(len(it.Key))
	head[5] = byte(it.State)
	if it.BinaryKey {
		head[5] |= binaryKey
	}
	binary.LittleEndian.PutUint64(head[8:], it.CAS)
	binary.LittleEndian.PutUint64(head[16:], it.Flags)
	binary.LittleEndian.PutUint64(head[24:], uint64(it.ExpireAt))
	binary.LittleEndian.PutUint64(head[32:], uint64(it.LastAccess))
	return append(append(append(b, head[:]...), it.Key...), it.Value...)
}

// NextItem reads the first item of b into it, whose slices are parts of b, and returns the rest.
func NextItem(b []byte, it *item.Item) (rest []byte, err error) {
	if len(b) < recordHead {
		return nil, fmt.Errorf("%w: an item of %d bytes", ErrMalformed, len(b))
	}
	value, key := int(binary.LittleEndian.Uint32(b)), int(b[4])
	end := recordHead + key + value
	state := item.State(b[5] &^ binaryKey)
	if key < 1 || key > 250 || value > maxFrame || end > len(b) || state > item.Invalidated {
		return nil, fmt.Errorf("%w: an item with a key of %d bytes, a value of %d and state %d", ErrMalformed, key, value, state)
	}
	*it = item.Item{
		Key: b[recordHead : recordHead+key], Value: b[recordHead+key : end],
		CAS: binary.LittleEndian.Uint64(b[8:]), Flags: binary.LittleEndian.Uint64(b[16:]),
		ExpireAt: int64(binary.LittleEndian.Uint64(b[24:])), LastAccess: int64(binary.LittleEndian.Uint64(b[32:])),
		BinaryKey: b[5]&binaryKey != 0, State: state,
	}
	return b[end:], nil
}
