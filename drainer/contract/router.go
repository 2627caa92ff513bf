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

// States of a ring change, in order. RingStable without an old ring comes before the first
// and after the last.
const (
	RingStable  = "stable"
	RingPrepare = "prepare"
	RingSettle  = "settle"
	RingMove    = "move"
	RingFinish  = "finish"
)

// Ring is what decides which member owns a key.
type Ring struct {
	// Client names the routing (see package routing).
	Client string `json:"client"`
	// KeyPrefix is what the client writes before its keys and doesn't hash.
	KeyPrefix string `json:"keyPrefix,omitempty"`
	// Servers are the members in ring order: "[NAME=]HOST:PORT".
	Servers []string `json:"servers"`
}

// RingTable is what routers are told of the rings.
type RingTable struct {
	// Number grows with each table. It is the time when the table was written (NumberTime), or
	// one more than the number before.
	Number int64 `json:"number"`
	// Before is the number of the table before this one; 0 for none.
	Before int64 `json:"before,omitempty"`
	// Acknowledged: every router had acknowledged the table before, when this one was written.
	Acknowledged bool   `json:"acknowledged,omitempty"`
	State        string `json:"state"`
	// Old is missing in RingStable.
	Old *Ring `json:"old,omitempty"`
	New Ring  `json:"new"`
	// Shared: direct clients use the members, too.
	Shared bool `json:"shared,omitempty"`
	// Until is when a router that has read nothing newer no longer serves keys that may have
	// moved; nil for never.
	Until *time.Time `json:"until,omitempty"`
	// Key signs the number that routers leave at the members (RingNumber). Clients of the cache
	// don't know it.
	Key string `json:"key,omitempty"`
	// Signer is the public key of whoever wrote the table, in base64: a router takes later ones from it
	// (RingSignature). Empty for nobody.
	Signer string `json:"signer,omitempty"`
}

// RingAcknowledged is what a router says of itself.
type RingAcknowledged struct {
	// Number of the table that it has read.
	Number int64 `json:"number"`
	// Acknowledged is the number of the table that all requests under way began with. The
	// next state may be announced when all routers have acknowledged this one.
	Acknowledged int64 `json:"acknowledged"`
	// Waiting says what for, if these differ.
	Waiting string `json:"waiting,omitempty"`
	// Error of the file, if it can't be read.
	Error string `json:"error,omitempty"`
	// Proof is ProveAcknowledged: no other server at the same address can say that.
	Proof string `json:"proof,omitempty"`
	// Refused is why it didn't take the table that it was given: whoever gave it says so, not the router.
	Refused string `json:"-"`
}

// RingWaits is how long a state of a ring change is waited for, at least.
const RingWaits = 20 * time.Second

// A router that is told to end. The operator gives its pod more time than both together.
const (
	// RouterLinger is how long it still takes connections.
	RouterLinger = 5 * time.Second
	// RouterDrain is how long it then waits for answers, at most.
	RouterDrain = 10 * time.Second
)

// RingNumberKey is an item of each member: the number of the newest table that any router has
// read (RingNumber). Routers keep it, so that one that reads no tables any more learns of it.
const RingNumberKey = "memcached-operator:ring-table"

// RingNumber is the value of the item RingNumberKey: the number, and what proves that a router
// has written it.
func RingNumber(number int64, key string) string {
	text := strconv.FormatInt(number, 10)
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(text))
	return text + " " + hex.EncodeToString(mac.Sum(nil)[:16])
}

// RingSignature is the header of PUT /ring, which gives a router a table: RingSigner.Sign of the body. The
// body has no key, since anybody may see it on its way.
const RingSignature = "Ring-Signature"

// RingSigner signs tables. Its private key (Ed25519) is known to this process alone.
type RingSigner struct{ private ed25519.PrivateKey }

// NewRingSigner makes a new pair of keys.
func NewRingSigner() *RingSigner {
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		panic(err) // the kernel has random numbers
	}
	return &RingSigner{private}
}

// Public is what RingTable.Signer is.
func (s *RingSigner) Public() string {
	return base64.StdEncoding.EncodeToString(s.private.Public().(ed25519.PublicKey))
}

// Sign proves that the text of a table comes from the signer, for the cluster with that key: an operator
// signs the tables of many, and routers of one may be in a stranger's hands.
func (s *RingSigner) Sign(text []byte, key string) string {
	return base64.StdEncoding.EncodeToString(ed25519.Sign(s.private, signedText(text, key)))
}

// signedText is what is signed: the key, a zero byte, the table.
func signedText(text []byte, key string) []byte {
	return slices.Concat([]byte(key), []byte{0}, text)
}

// ProveAcknowledged is what only a router of the cluster with that key can say. It is not RingNumber, which
// clients can read at the members.
func ProveAcknowledged(number int64, key string) string {
	mac := hmac.New(sha256.New, []byte(key))
	fmt.Fprintf(mac, "acknowledged %d", number)
	return hex.EncodeToString(mac.Sum(nil))
}

// RingSigned tells whether that signer, RingTable.Signer, has signed the text for the cluster with that key.
func RingSigned(text []byte, key, signer, signature string) bool {
	public, err := base64.StdEncoding.DecodeString(signer)
	if err != nil || len(public) != ed25519.PublicKeySize {
		return false
	}
	signed, err := base64.StdEncoding.DecodeString(signature)
	return err == nil && ed25519.Verify(public, signedText(text, key), signed)
}

// MaxRingNumber is the size of the item's value at most, in bytes.
const MaxRingNumber = 64

// ParseRingNumber is the inverse of RingNumber; 0 if no router with that key can have written
// the value.
func ParseRingNumber(value []byte, key string, now time.Time) int64 {
	text, _, _ := bytes.Cut(value, []byte(" "))
	number, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || number < 1 || number > NumberAt(now.Add(NumbersAhead)) || !hmac.Equal(value, []byte(RingNumber(number, key))) {
		return 0
	}
	return number
}

// numberEpoch is when the numbers of tables and lists begin. They are seconds, so that a list
// that was deleted and is made again has a later one, and fit into 31 bits until 2094.
var numberEpoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// NumbersAhead is by how much a number may be ahead of the clock. A later one is nobody's.
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

// NumberAt is the number of a table or list that is written at that time.
func NumberAt(now time.Time) int64 { return int64(now.Sub(numberEpoch) / time.Second) }

// NumberTime is when a table of that number was written, or later.
func NumberTime(number int64) time.Time {
	return numberEpoch.Add(time.Duration(number) * time.Second)
}

// Bounds of a table: whoever may write the ConfigMap may have written it.
const (
	// MaxRingTable is the size of a table at most, in bytes.
	MaxRingTable = 512 << 10
)

// ParseRingTable reads a table.
func ParseRingTable(text []byte) (*RingTable, error) {
	if len(text) > MaxRingTable {
		return nil, fmt.Errorf("a table of %d bytes, where %d are the most", len(text), MaxRingTable)
	}
	t := &RingTable{}
	if err := json.Unmarshal(text, t); err != nil {
		return nil, fmt.Errorf("a table of the rings: %w", err)
	}
	switch t.State {
	case RingStable:
		if t.Old != nil {
			return nil, errors.New("a stable table with an old ring")
		}
	case RingPrepare, RingSettle, RingMove, RingFinish:
		if t.Old == nil {
			return nil, fmt.Errorf("a table in state %s without an old ring", t.State)
		}
	default:
		return nil, fmt.Errorf("a table in state %.40q", t.State)
	}
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
