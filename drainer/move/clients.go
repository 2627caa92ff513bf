package move

import (
	"fmt"
	"math"
	"slices"
	"time"
)

const (
	// lookEvery is how often a mover looks at the requests of the member's clients.
	lookEvery = 50 * time.Millisecond
	// mostSeen bounds the time that one look counts for, if it isn't taken together with others. In a longer time the mover
	// or the member may have been stopped, and no request shows that no client calls.
	mostSeen = 2 * lookEvery
	// mostLooks bounds the looks that are remembered.
	mostLooks = 600
	// measureFor is how long requests are counted before clients are told of a new list.
	measureFor = time.Second
	// fewest is the number of requests a second below which no client is waited for.
	fewest = 20
	// enough is how many requests a judgement expects in the time that it looks at, if as many are late as when the last pass
	// began, and enoughForNone one that none is. As many others are needed. With fewer, clients that make requests at random
	// soon seem to have halved these, though all are late: within a minute, 40 in 100 with 50 requests, and one in 100 with
	// 150. shortestWindow and longestWindow bound the time; a smaller share is looked at for up to longestOfShare.
	enough         = 150
	enoughForNone  = 50
	shortestWindow = 250 * time.Millisecond
	longestWindow  = 5 * time.Second
	longestOfShare = 4 * longestWindow
	// mostPerOther is the largest number of requests to one other request that these can tell of.
	mostPerOther = 20
	// The late share falls if fewer requests were late in the second half of fallsWithin than in the first, by more than
	// chance standard deviations; or in twice that time, in which few requests show it, too.
	fallsWithin = 10 * time.Second
	chance      = 4
	// mostOf is the part of others that clients still make if they have not stopped: more than half, by which they follow.
	mostOf = 0.75
	// leastShare is the smallest share that can halve.
	leastShare = 1.0 / 64
	// No client calls any more if there was no request in the time in which quietRequests were to be expected, and
	// enough others meanwhile: for shortestQuiet at least, and quietFor at most.
	quietRequests = 1000
	shortestQuiet = time.Second
	quietFor      = 5 * time.Second
)

// clients tells whether the clients of a member have followed a new list: by how often they asked for keys
// that are to move before they were told, and how often they do now. Requests that still come are late.
type clients struct {
	// rate is how many requests a second there were before, 0 if that is not known; gap is the longest time without
	// one.
	rate float64
	gap  time.Duration
	// perOther is how many of these requests there were to one other request, 0 if that is not known. A client that
	// is stopped for a moment makes neither.
	perOther float64
	// beside is how many others there were a second, if these are too few for perOther: only clients that still make most
	// of them tell by making fewer requests.
	beside float64
	// share is the share of the requests that was late when the last pass began, 1 before the first pass.
	// moved means that there was a pass.
	share float64
	moved bool
	// looks are the last looks, the newest last. before is how long no client had called before the first of
	// them.
	looks  []look
	before time.Duration
	// need is how many requests a judgement expects, if these are more than enough: on a busy machine, a test's client
	// makes few at a time.
	need float64
}

// look is the number of requests in a period, and of others that clients make whether or not they have followed.
type look struct {
	took             time.Duration
	requests, others float64
	// alone means that others were not counted.
	alone bool
	// seen is the time that it counts for, and without the longest part of that without a command.
	seen, without time.Duration
	// unseen means that this is a time in which clients may have called.
	unseen bool
}

// add remembers a look.
func (c *clients) add(l look) {
	if len(c.looks) == mostLooks {
		c.looks = slices.Delete(c.looks, 0, 1)
	}
	c.looks = append(c.looks, l)
}

// measured tells whether the looks are enough to measure by, after that time: clients have also paused several times.
func (c *clients) measured(after time.Duration) bool {
	sum, gap := c.sum()
	few := sum.requests < fewest*sum.took.Seconds()/2 && c.need == 0 // no more will follow by chance
	others := sum.others >= enough || sum.others < enough*sum.took.Seconds()/quietFor.Seconds()/2
	most := sum.requests >= max(enough, c.need) && others && sum.took >= 4*gap
	return sum.took >= measureFor && (most || few || after >= quietFor)
}

// measure takes the looks so far as those before clients are told.
func (c *clients) measure() {
	var sum look
	sum, c.gap = c.sum()
	if c.share = 1; sum.took > 0 {
		c.rate = sum.requests / sum.took.Seconds()
	}
	c.perOther, c.beside = 0, 0
	switch {
	case sum.alone || sum.took == 0:
	case sum.others >= max(enough, sum.requests/mostPerOther):
		c.perOther = sum.requests / sum.others
	default:
		c.beside = sum.others / sum.took.Seconds()
	}
}

// sum returns all looks as one, and the longest time without a request.
func (c *clients) sum() (sum look, gap time.Duration) {
	without := time.Duration(0)
	for i := range c.looks {
		l := &c.looks[i]
		sum.took, sum.requests, sum.others, sum.alone = sum.took+l.took, sum.requests+l.requests, sum.others+l.others, sum.alone || l.alone
		if without += l.seen; l.requests > 0 {
			without = 0
		}
		gap = max(gap, without, l.without)
	}
	return sum, gap
}

// unseen is called after a time in which clients may have called.
func (c *clients) unseen() {
	if n := len(c.looks); n == 0 || !c.looks[n-1].unseen {
		c.add(look{unseen: true})
	}
	c.before = 0
}

// forget is called when requests can't be counted any more.
func (c *clients) forget() { *c = clients{need: c.need} }

// judged tells whether passes wait for clients.
func (c *clients) judged() bool { return c.rate >= fewest }

// expected is how many requests there would have been in a look if all were late.
func (c *clients) expected(l *look) float64 {
	if c.perOther > 0 && !l.alone {
		return l.others * c.perOther
	}
	return c.rate * l.seen.Seconds()
}

// late returns the share of the requests that was late lately, for so long that so many requests are to be expected if a
// share of the given size is late; ok is false if it has not been looked at for so long.
func (c *clients) late(size, requests float64) (share float64, ok bool) {
	need := max(requests, c.need)
	longest := time.Duration(max(1, c.need/enough) * min(float64(longestWindow)/size, float64(longestOfShare)))
	seen, late, expected, others, alone := time.Duration(0), 0.0, 0.0, 0.0, false
	for i := range slices.Backward(c.looks) {
		l := &c.looks[i]
		seen, late, expected, others, alone = seen+l.seen, late+l.requests, expected+c.expected(l), others+l.others, alone || l.alone
		least := mostOf * c.beside * seen.Seconds()
		if c.perOther > 0 {
			least = requests
		}
		tells := expected*size >= need && (alone || others >= least)
		if seen >= max(2*c.gap, shortestWindow) && (tells || seen >= longest) {
			return min(1, late/max(1, expected)), true
		}
	}
	return 1, false
}

// followed tells whether items may be moved now, and why: half of the requests that were late when the last pass
// began go elsewhere, or none is late; or, after the first pass, clients follow one after another. A key that some of
// these delete would otherwise come back with a later pass.
func (c *clients) followed() (why string, is bool) {
	if !c.judged() {
		return fmt.Sprintf("fewer than %d requests a second for its items are known of", fewest), true
	}
	if c.none() || c.silent() {
		return "no request is late", true
	}
	share, ok := c.late(c.share, enough)
	if c.moved && c.falls() {
		return fmt.Sprintf("%.0f%% of the requests are late, and fewer from second to second", 100*share), true
	}
	return fmt.Sprintf("%.0f%% of the requests are late", 100*share), ok && c.share > leastShare && share <= c.share/2
}

// none tells whether no request is late.
func (c *clients) none() bool {
	share, ok := c.late(c.share, enoughForNone)
	return ok && share == 0
}

// falls tells whether the share of the requests that is late has fallen lately, by more than chance.
func (c *clients) falls() bool { return c.fall(fallsWithin) || c.fall(2*fallsWithin) }

func (c *clients) fall(within time.Duration) bool {
	seen := time.Duration(0)
	var requests, expected, others [2]float64 // in the second half, and in the first
	for i := range slices.Backward(c.looks) {
		half := int(2 * seen / within)
		if half >= len(requests) {
			break
		}
		l := &c.looks[i]
		seen, requests[half], expected[half], others[half] = seen+l.seen, requests[half]+l.requests, expected[half]+c.expected(l), others[half]+l.others
	}
	if seen < within || expected[1] == 0 || expected[1] < c.need {
		return false
	}
	grown := expected[0] / expected[1]
	before := requests[1] * grown
	variance := before*grown + requests[0] // of numbers of events at random, and of what they are compared with
	if c.perOther > 0 && others[0] > 0 && others[1] > 0 {
		variance += before * before * (1/others[0] + 1/others[1])
	}
	return before-requests[0] > chance*math.Sqrt(variance)
}

// passes is called when a pass begins. The next one waits for fewer late requests, not for more.
func (c *clients) passes() {
	c.moved = true
	if c.judged() {
		share := 0.0
		if !c.none() && !c.silent() {
			share, _ = c.late(c.share, enough)
		}
		c.share = min(c.share, max(leastShare, share))
	}
}

// recent returns how many requests there were in the last second, and the share that this is.
func (c *clients) recent() (rate, share float64) {
	seen, expected := time.Duration(0), 0.0
	for i := range slices.Backward(c.looks) {
		if seen >= time.Second {
			break
		}
		l := &c.looks[i]
		seen, rate, expected = seen+l.took, rate+l.requests, expected+c.expected(l)
	}
	if c.judged() {
		share = min(1, rate/max(1, expected))
	}
	return rate / max(time.Second, seen).Seconds(), share
}

// silent tells whether no client calls any more. The time that shows it is short if clients called often before
// it, and make their requests elsewhere. If they make none at all, they may only be stopped for a moment.
func (c *clients) silent() bool {
	silence, others, i := time.Duration(0), 0.0, len(c.looks)-1
	for ; i >= 0 && c.looks[i].requests == 0 && !c.looks[i].unseen; i-- {
		silence, others = silence+c.looks[i].seen, others+c.looks[i].others
	}
	if i < 0 {
		silence += c.before
	}
	before, requests := time.Duration(0), 0.0
	for ; i >= 0 && before < quietFor; i-- {
		before, requests = before+c.looks[i].took, requests+c.looks[i].requests
	}
	quiet := quietFor
	if requests > 0 && others >= enoughForNone {
		quiet = time.Duration(quietRequests / requests * float64(before))
	}
	return silence >= min(max(quiet, shortestQuiet), quietFor)
}
