package contract

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// RingState is a state of a ring change. All routers of a cluster go through the states in order, and none
// begins before all have acknowledged the one before.
type RingState uint8

const (
	// RingStable is no change: each key has one owner. It comes before the first and after the last of the
	// others.
	RingStable RingState = iota
	// RingPrepare sets keys at the old owner, and looks for them at both.
	RingPrepare
	// RingSettle sets keys at the new owner. No router is in RingStable any more.
	RingSettle
	// RingMove moves keys to the new owner. No router is in RingPrepare any more.
	RingMove
	// RingFinish has no old owner: nothing is left there. There may still be leases.
	RingFinish
)

// ringStates are the states' names, in the text of a table and in metrics.
var ringStates = [...]string{"stable", "prepare", "settle", "move", "finish"}

// String returns the state's name.
func (s RingState) String() string { return ringStates[s] }

// MarshalText implements encoding.TextMarshaler.
func (s RingState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *RingState) UnmarshalText(text []byte) error {
	i := slices.Index(ringStates[:], string(text))
	if i < 0 {
		return fmt.Errorf("a table in state %.40q", text)
	}
	*s = RingState(i)
	return nil
}

// Ring decides which member owns a key.
type Ring struct {
	// Client names the routing (see package routing).
	Client string `json:"client"`
	// KeyPrefix is what the client writes before its keys and doesn't hash.
	KeyPrefix string `json:"keyPrefix,omitempty"`
	// Servers are the members in ring order: "[NAME=]HOST:PORT".
	Servers []string `json:"servers"`
	// Out is the operator's note of the member that it leaves out of the first members, counted from 1; 0 for
	// none. Routers don't read it.
	Out int32 `json:"out,omitempty"`
}

// RingTable is what routers are told about the rings.
type RingTable struct {
	// Number grows with each table. It is the time when the table was written (NumberAt), or one more than
	// the previous number.
	Number int64 `json:"number"`
	// Before is the number of the previous table; 0 if there is none.
	Before int64 `json:"before,omitempty"`
	// Acknowledged means that every router had acknowledged the previous table when this one was written.
	Acknowledged bool      `json:"acknowledged,omitempty"`
	State        RingState `json:"state"`
	// Old is nil in RingStable.
	Old *Ring `json:"old,omitempty"`
	New Ring  `json:"new"`
	// Shared means that direct clients use the members, too.
	Shared bool `json:"shared,omitempty"`
	// Key authenticates the number that routers leave at the members (RingNumber). Clients of the cache don't
	// know it.
	Key string `json:"key,omitempty"`
	// Signer is the public key of the table's writer, in base64. A router takes later tables over HTTP only
	// from this writer (RingSignature). If Signer is empty, it takes none over HTTP.
	Signer string `json:"signer,omitempty"`
}

// RingAcknowledged is a router's report about its table.
type RingAcknowledged struct {
	// Number is the number of the table that the router has read.
	Number int64 `json:"number"`
	// Acknowledged is the number of the table that all requests under way began with. The next state may be
	// announced when all routers have acknowledged this one.
	Acknowledged int64 `json:"acknowledged"`
	// Waiting says what the router is waiting for, if the two numbers differ.
	Waiting string `json:"waiting,omitempty"`
	// Error is why the table's file can't be read.
	Error string `json:"error,omitempty"`
	// Proof is ProveAcknowledged. It proves that a router of this cluster answers, and no other server at its
	// address.
	Proof string `json:"proof,omitempty"`
	// Refused is why the router didn't take the table that it was given. The operator sets it, not the
	// router.
	Refused string `json:"-"`
}

// RingWaits is how long, at least, the operator waits for routers to acknowledge a state of a ring change.
const RingWaits = 20 * time.Second

// Times of a router that was told to end. The operator gives its pod more time than all of them together.
const (
	// RouterLinger is how long the router goes on as before, until all clients have learned that it is not ready.
	RouterLinger = 5 * time.Second
	// RouterSpread is over how long it then closes connections, one after the other.
	RouterSpread = 5 * time.Second
	// RouterDrain is how long, at most, it then waits for answers.
	RouterDrain = 10 * time.Second
)

// RingNumberKey is an item of each member: the number of the newest table that any router has read
// (RingNumber). Routers keep it up to date, so that a router that can't read tables any more learns of newer
// ones.
const RingNumberKey = "memcached-operator:ring-table"

// RingNumber returns the value of the item RingNumberKey: the number, and a proof that a router has written
// it.
func RingNumber(number int64, key string) string {
	text := strconv.FormatInt(number, 10)
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(text))
	return text + " " + hex.EncodeToString(mac.Sum(nil)[:16])
}

// RingSignature is the header of PUT /ring, which gives a router a table. Its value is RingSigner.Sign of the
// body. The body doesn't contain the key, because it is sent in plain text.
const RingSignature = "Ring-Signature"

// RingSigner signs tables. Its private key (Ed25519) is known to this process alone.
type RingSigner struct{ private ed25519.PrivateKey }

// NewRingSigner makes a new pair of keys.
func NewRingSigner() *RingSigner {
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		panic(err) // the kernel always has random numbers
	}
	return &RingSigner{private}
}

// Public returns the value for RingTable.Signer.
func (s *RingSigner) Public() string {
	return base64.StdEncoding.EncodeToString(s.private.Public().(ed25519.PublicKey))
}

// Sign proves that the text of a table comes from the signer, for the cluster with that key. One operator
// signs the tables of many clusters, and a stranger may control the routers of one of them.
func (s *RingSigner) Sign(text []byte, key string) string {
	return base64.StdEncoding.EncodeToString(ed25519.Sign(s.private, signedText(text, key)))
}

// signedText returns what is signed: the key, a zero byte, the table.
func signedText(text []byte, key string) []byte {
	return slices.Concat([]byte(key), []byte{0}, text)
}

// ProveAcknowledged returns a proof that only a router of the cluster with that key can make. It differs from
// RingNumber, which clients can read at the members.
func ProveAcknowledged(number int64, key string) string {
	mac := hmac.New(sha256.New, []byte(key))
	fmt.Fprintf(mac, "acknowledged %d", number)
	return hex.EncodeToString(mac.Sum(nil))
}

// RingSigned tells whether the signer (RingTable.Signer) has signed the text for the cluster with that key.
func RingSigned(text []byte, key, signer, signature string) bool {
	public, err := base64.StdEncoding.DecodeString(signer)
	if err != nil || len(public) != ed25519.PublicKeySize {
		return false
	}
	signed, err := base64.StdEncoding.DecodeString(signature)
	return err == nil && ed25519.Verify(public, signedText(text, key), signed)
}

// MaxRingNumber bounds the size of the value, in bytes.
const MaxRingNumber = 64

// ParseRingNumber is the inverse of RingNumber; it returns 0 if no router with that key can have written the
// value.
func ParseRingNumber(value []byte, key string, now time.Time) int64 {
	text, _, _ := bytes.Cut(value, []byte(" "))
	number, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || number < 1 || number > NumberAt(now.Add(NumbersAhead)) || !hmac.Equal(value, []byte(RingNumber(number, key))) {
		return 0
	}
	return number
}

// numberEpoch is the origin of the numbers of tables and lists. They count seconds, so that a list that was
// deleted and is made again has a larger number. They fit into 31 bits until 2094.
var numberEpoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// NumbersAhead is how far a number may be ahead of the clock. A number further ahead is not one of the
// operator's.
const NumbersAhead = 24 * time.Hour

// ClockOf one who has a table of that number: it is no earlier than when that was written, whatever this machine's clock
// says.
func ClockOf(number int64) time.Time {
	now, written := time.Now(), NumberTime(number)
	if written.After(now) {
		return written
	}
	return now
}

// NumberAt returns the number of a table or list that is written at that time.
func NumberAt(now time.Time) int64 { return int64(now.Sub(numberEpoch) / time.Second) }

// NumberTime returns the time of a number; the table was written then or before.
func NumberTime(number int64) time.Time {
	return numberEpoch.Add(time.Duration(number) * time.Second)
}

// Bounds of a table. Tables are read from a ConfigMap, which other writers can change.
const (
	// MaxRingTable bounds the size of a table, in bytes.
	MaxRingTable = 512 << 10
)

// ParseRingTable reads and checks a table.
func ParseRingTable(text []byte) (*RingTable, error) {
	if len(text) > MaxRingTable {
		return nil, fmt.Errorf("a table of %d bytes, where %d are the most", len(text), MaxRingTable)
	}
	t := &RingTable{}
	told := struct {
		*RingTable
		State *RingState `json:"state"`
	}{RingTable: t}
	if err := json.Unmarshal(text, &told); err != nil {
		return nil, fmt.Errorf("a table of the rings: %w", err)
	}
	switch {
	case told.State == nil:
		return nil, errors.New("a table without a state")
	case *told.State == RingStable && t.Old != nil:
		return nil, errors.New("a stable table with an old ring")
	case *told.State != RingStable && t.Old == nil:
		return nil, fmt.Errorf("a table in state %s without an old ring", *told.State)
	}
	t.State = *told.State
	for _, r := range []*Ring{&t.New, t.Old} {
		if r != nil && (len(r.Servers) == 0 || len(r.Servers) > maxNodes) {
			return nil, fmt.Errorf("a table of a ring with %d servers", len(r.Servers))
		}
	}
	if t.Number < 1 {
		return nil, fmt.Errorf("a table with number %d", t.Number)
	}
	return t, nil
}
