// Package ring says where clients look for a key, and when members may have items that clients look for
// elsewhere. Package ring is pure.
//
// An example: the ring has serial 4, and the claims of members 0 to 2 say that their items were
// moved by serial 4. Member 3 joins: now the ring has serial 5, and From is the ring before, with
// three members. Each of the three claims says 4, which is less than 5, and its member was on the
// ring before, so its items have to be moved. Member 3 was not on that ring, and came empty. When
// all three claims say 5, the ring may change again.
package ring

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/drainer/routing"
)

// Ring decides where clients look: their library, and the first Size members of a cluster, in
// order, without the one that is out, by the names that the library uses.
type Ring struct {
	Client     string `json:"client"`
	KeyPrefix  string `json:"keyPrefix,omitempty"`
	ServerName string `json:"serverName,omitempty"`
	Port       int32  `json:"port"`
	Size       int32  `json:"size"`
	// Stable: the client hashes the servers' addresses, which are those of Services and don't
	// change.
	Stable bool `json:"stable,omitempty"`
	// Out is the member that has stepped out for its restart, counted from 1; 0 if none has. Only routers
	// are told of such a ring. The clients' list keeps the member.
	Out int32 `json:"out,omitempty"`
}

// Of returns the ring with this number of members, none of them out.
func (r Ring) Of(size int32) Ring {
	r.Size, r.Out = size, 0
	return r
}

// Without returns the ring with this member out.
func (r Ring) Without(ordinal int32) Ring {
	r.Out = ordinal + 1
	return r
}

// Whole returns the ring with no member out.
func (r Ring) Whole() Ring { return r.Of(r.Size) }

// IsOut tells whether this member is out.
func (r Ring) IsOut(ordinal int32) bool { return r.Out == ordinal+1 }

// Has tells whether the member owns keys.
func (r Ring) Has(ordinal int32) bool { return 0 <= ordinal && ordinal < r.Size && !r.IsOut(ordinal) }

// Members are the ordinals of the members that own keys, in order.
func (r Ring) Members() []int32 {
	members := make([]int32, 0, r.Size)
	for i := range r.Size {
		if !r.IsOut(i) {
			members = append(members, i)
		}
	}
	return members
}

// Fragile tells whether clients look elsewhere when a member gets another address.
func (r Ring) Fragile() bool { return routing.HashesAddresses(r.Client) && !r.Stable }

// HashesPort tells whether clients look elsewhere when the members listen at another port.
func (r Ring) HashesPort() bool {
	const members, one, other = 2, 1, 2
	from, to := r.Of(members), r.Of(members)
	from.Port, to.Port = one, other
	return Share(from, to) > 0
}

// Record is the record of a cluster's rings, written beside the clients' list. A ring without
// members is not recorded, so a hibernated cluster resumes with its last ring.
type Record struct {
	// Ring is where clients look.
	Ring Ring `json:"ring"`
	// Serial counts how often a new ring has moved keys between members that stay. A member whose
	// items were last moved by an earlier serial may have items that clients look for elsewhere.
	Serial int64 `json:"serial"`
	// From is the ring before the last one that moved keys. Its members had items then;
	// other members came empty.
	From Ring `json:"from,omitzero"`
}

// Unknown is the record if it is not known by which ring clients filled the first n members. serial
// is the highest serial that any of them has.
func Unknown(serial int64, n int32) Record {
	return Record{Serial: serial, Ring: Ring{Size: min(max(n, 0), maxSize)}}
}

// Moved returns the serial on a member's claim; 0 if no ring has had this serial yet.
func (r Record) Moved(serial int64) int64 {
	if serial > r.Serial {
		return 0
	}
	return serial
}

// Next is the record when clients look by another ring.
func (r Record) Next(to Ring) Record {
	if to.Size == 0 || to == r.Ring {
		return r
	}
	// A step counts even if no member that stays loses a key: the items of the member that steps out are moved.
	if to.Out != r.Ring.Out || Share(r.Ring, to) > 0 {
		return Record{Ring: to, Serial: r.Serial + 1, From: r.Ring}
	}
	r.Ring = to
	return r
}

// StepsOut tells whether the ring is the one before without a member. Then only the items of that member have
// to be moved.
func (r Record) StepsOut() bool { return r.Ring.Out > 0 && r.From == r.Ring.Whole() }

// Target names the ring uniquely. The serial is not enough: rings that moved no keys
// share one, and a lost record may lead to the same serial again.
func (r Record) Target() string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(r.Ring.String()))
	return fmt.Sprintf("%d-%08x", r.Serial, h.Sum32())
}

func (r Ring) String() string {
	b, _ := json.Marshal(r) // strings and numbers can always be marshalled
	return string(b)
}

func (r Record) String() string {
	b, _ := json.Marshal(r) // as above
	return string(b)
}

// MaxRecord bounds a record that is read, in bytes.
const MaxRecord = 4 << 10

// These bound a record.
const (
	maxSize = cachev1alpha1.MaxSize
	// As in the API, which allows only ASCII in both.
	maxKeyPrefix, maxServerName = 200, 253
)

// Parse is the inverse of String. Any client may have written the input, so Parse returns an error
// for a record that this package would not write.
func Parse(s string) (Record, error) {
	if len(s) > MaxRecord {
		return Record{}, fmt.Errorf("a record of %d bytes is too long", len(s))
	}
	var r Record
	if err := json.Unmarshal([]byte(s), &r); err != nil {
		return Record{}, err
	}
	if r.Serial < 0 || r.Serial > MaxSerial {
		return Record{}, fmt.Errorf("%d rings have moved keys", r.Serial)
	}
	if err := cmp.Or(r.Ring.check(), r.From.check()); err != nil {
		return Record{}, err
	}
	return r, nil
}

// check returns an error if no spec makes this ring. The client may be empty (Unknown).
func (r Ring) check() error {
	switch {
	case r.Size < 0 || r.Size > maxSize:
		return fmt.Errorf("a ring can't have %d members", r.Size)
	case r.Out < 0 || r.Out > r.Size || r.Out > 0 && r.Size == 1:
		return fmt.Errorf("member %d of %d can't be out", r.Out-1, r.Size)
	case r.Port < 0 || r.Port > math.MaxUint16:
		return fmt.Errorf("%d is not a port", r.Port)
	case r.Client != "" && !slices.Contains(routing.Clients(), r.Client):
		return errors.New("the client is not known")
	case len(r.KeyPrefix) > maxKeyPrefix || len(r.ServerName) > maxServerName:
		return errors.New("a name is too long")
	}
	return nil
}

// Source is the source in a move's receipt. The prefix and the target keep the receipt from counting as that
// of a drain, whose source is the claim's UID alone.
func Source(claim types.UID, target string) string {
	return fmt.Sprintf("%s%s/%s", movePrefix, claim, target)
}

const movePrefix = "move/"

// shares caches the results of Share, and is emptied when it has more entries than clusters need.
var shares = struct {
	sync.Mutex
	of map[[2]Ring]float64
}{of: map[[2]Ring]float64{}}

const maxShares = 4096

// Share is the share of keys, from 0 to 1, that get another owner although their member stays; 1 if a ring's
// client is not known. A sample of 20,000 keys is exact to half a percent. If a client hashes each key for
// each server, and there are more than about 50 servers, the sample is smaller: 1,000 keys for 512 members,
// exact to two percent. A consistent client moves none of these keys when members leave; if a small sample
// can't prove that, the share is not 0.
func Share(from, to Ring) float64 {
	if from.Size == 0 || to.Size == 0 {
		return 0 // one ring has no members
	}
	key := [2]Ring{from, to}
	shares.Lock()
	share, ok := shares.of[key]
	shares.Unlock()
	if ok {
		return share
	}
	share = computeShare(from, to)
	shares.Lock()
	defer shares.Unlock()
	if len(shares.of) >= maxShares {
		clear(shares.of)
	}
	shares.of[key] = share
	return share
}

// Bounds of the work of Share: keys, and hashes of keys.
const (
	maxSample = 20_000
	maxHashes = 1 << 20
)

// lookup is how many hashes of a key it takes to find its member.
func (r Ring) lookup() int {
	if routing.HashesEachServer(r.Client) {
		return int(r.Size)
	}
	return 1
}

// sampleOf is how many keys Share compares.
func sampleOf(from, to Ring) int { return min(maxSample, maxHashes/(from.lookup()+to.lookup())) }

func computeShare(from, to Ring) float64 {
	was, err := from.owner()
	if err != nil {
		return 1
	}
	is, err := to.owner()
	if err != nil {
		return 1
	}
	sample, moved := sampleOf(from, to), 0
	before, after := from.Members(), to.Members()
	// Keys with either prefix: a prefix that the client doesn't know is part of the key.
	prefixes := [2]string{from.KeyPrefix + "user:", to.KeyPrefix + "user:"}
	var key []byte
	for i := range sample {
		key = strconv.AppendInt(append(key[:0], prefixes[i%2]...), int64(i)*7919, 10)
		if member := before[was.Owner(key)]; to.Has(member) && after[is.Owner(key)] != member {
			moved++
		}
	}
	if moved == 0 && sample < maxSample && !to.onlyLeaves(from) {
		// Such a small sample may miss the keys that move. Only a client that hashes each key for
		// each server is known to move none, if members leave and nothing else changes.
		moved = 1
	}
	return float64(moved) / float64(sample)
}

// onlyLeaves tells whether the ring is the one before without some of its members.
func (r Ring) onlyLeaves(before Ring) bool {
	fewer := before
	fewer.Size, fewer.Out = r.Size, r.Out
	return r == fewer && r.Size <= before.Size && (before.Out == 0 || before.Out == r.Out || before.Out > r.Size)
}

// owner looks keys up among members of a cluster of any name. The real names change a
// share by less than the sample's error.
func (r Ring) owner() (routing.Owner, error) {
	members := r.Members()
	servers := make([]routing.Server, len(members))
	for at, i := range members {
		servers[at] = routing.Server{Host: fmt.Sprintf("cache-%d.cache.default.svc", i), Port: uint16(r.Port)}
		if r.ServerName != "" {
			servers[at].Name = strings.Replace(r.ServerName, "{ordinal}", strconv.Itoa(int(i)), 1)
		}
		if r.Stable { // an address is hashed like a name
			servers[at].Name = "stable-" + servers[at].Name
		}
	}
	owner, err := routing.New(r.Client, servers)
	if err != nil {
		return nil, err
	}
	return routing.WithoutPrefix(r.Client, owner, r.KeyPrefix)
}
