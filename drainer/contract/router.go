package contract

import (
	"encoding/json"
	"errors"
	"fmt"
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
	// Number grows with each table.
	Number int64  `json:"number"`
	State  string `json:"state"`
	// Old is missing in RingStable.
	Old *Ring `json:"old,omitempty"`
	New Ring  `json:"new"`
	// Shared: direct clients use the members, too.
	Shared bool `json:"shared,omitempty"`
	// Until is when a router that has read nothing newer no longer serves keys that may have
	// moved; nil for never.
	Until *time.Time `json:"until,omitempty"`
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
}

// RingWaits is how long a state of a ring change is waited for. A router that has read nothing
// newer for that long no longer serves keys that may have moved (RingTable.Until).
const RingWaits = 20 * time.Second

// A router that is told to end. The operator gives its pod more time than both together.
const (
	// RouterLinger is how long it still takes connections.
	RouterLinger = 5 * time.Second
	// RouterDrain is how long it then waits for answers, at most.
	RouterDrain = 10 * time.Second
)

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
	if t.Number < 1 || len(t.New.Servers) > maxNodes || t.Old != nil && len(t.Old.Servers) > maxNodes {
		return nil, fmt.Errorf("a table with number %d and %d servers", t.Number, len(t.New.Servers))
	}
	return t, nil
}
