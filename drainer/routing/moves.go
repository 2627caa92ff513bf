package routing

import "strconv"

// Shares are parts of all keys, from 0 to 1.
type Shares struct {
	// Leaving keys were on a server that is no longer in the list.
	Leaving float64
	// Arriving keys were on a server that stays, and belong to a new one.
	Arriving float64
	// Others change between servers that are in both lists: with a consistent
	// distribution there are none.
	Others float64
}

// Comparison counts the keys that get another owner when a list of servers
// changes.
type Comparison struct {
	before, after List
	inBefore      map[Server]bool
	inAfter       map[Server]bool

	// Keys is the number of keys that were counted; the others count the keys that Shares has.
	Keys, Leaving, Arriving, Others int
}

// List is a list of servers with its owner function.
type List struct {
	Servers []Server
	Owner   Owner
}

// Compare begins a comparison of two lists of one client. A server is in both if its
// name, host and port are the same.
func Compare(before, after List) *Comparison {
	return &Comparison{before: before, after: after, inBefore: setOf(before.Servers), inAfter: setOf(after.Servers)}
}

func setOf(servers []Server) map[Server]bool {
	set := make(map[Server]bool, len(servers))
	for _, s := range servers {
		set[s] = true
	}
	return set
}

// Count counts a key.
func (c *Comparison) Count(key []byte) {
	c.Keys++
	was, is := c.before.Servers[c.before.Owner.Owner(key)], c.after.Servers[c.after.Owner.Owner(key)]
	switch {
	case was == is:
	case !c.inAfter[was]:
		c.Leaving++
	case !c.inBefore[is]:
		c.Arriving++
	default:
		c.Others++
	}
}

// Shares returns the shares of the keys that were counted; 0 if there were none.
func (c *Comparison) Shares() Shares {
	keys := float64(max(c.Keys, 1))
	return Shares{
		Leaving:  float64(c.Leaving) / keys,
		Arriving: float64(c.Arriving) / keys,
		Others:   float64(c.Others) / keys,
	}
}

// Moves computes, from a fixed sample of 100,000 keys, which share of the keys gets another owner when the
// client's list of servers changes from before to after.
func Moves(client string, before, after []Server) (Shares, error) {
	const sample = 100_000
	old, err := New(client, before)
	if err != nil {
		return Shares{}, err
	}
	now, err := New(client, after)
	if err != nil {
		return Shares{}, err
	}
	c := Compare(List{before, old}, List{after, now})
	var key []byte
	for i := range int64(sample) {
		key = strconv.AppendInt(append(key[:0], "user:"...), i*7919, 10)
		c.Count(key)
	}
	return c.Shares(), nil
}
