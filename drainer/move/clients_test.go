package move

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// told returns clients that made that many requests a second before they were told.
func told(rate float64) *clients {
	c := &clients{}
	looks(c, measureFor, rate)
	c.measure()
	return c
}

// looks adds looks of a period in which clients made that many requests a second, evenly.
func looks(c *clients, period time.Duration, rate float64) {
	due := 0.0
	for range period / lookEvery {
		due += rate * lookEvery.Seconds()
		c.add(look{took: lookEvery, seen: lookEvery, requests: float64(int(due))})
		due -= float64(int(due))
	}
}

// Items move where half of the requests have gone, or none is late any more; they move at once where too few
// requests were made, or none could be counted.
func TestItemsMoveWhenHalfOfTheRequestsAreMadeElsewhere(t *testing.T) {
	for name, test := range map[string]struct {
		before float64
		then   []float64 // in the seconds since
		why    string
	}{
		"all are late":            {1000, []float64{1000, 990}, ""},
		"two thirds are late":     {1000, []float64{667}, ""},
		"half":                    {1000, []float64{1000, 500}, "50% of the requests are late"},
		"some come back":          {1000, []float64{400, 700}, ""},
		"none is late":            {1000, []float64{0}, "no request is late"},
		"few requests, all late":  {25, []float64{25, 25, 25, 25}, ""},
		"few requests, half late": {25, []float64{12, 12, 12, 12, 12}, "48% of the requests are late"},
		"too few":                 {19, []float64{19}, "fewer than 20 requests a second for its items are known of"},
		"not known":               {0, nil, "fewer than 20 requests a second for its items are known of"},
	} {
		t.Run(name, func(t *testing.T) {
			c := told(test.before)
			for _, rate := range test.then {
				looks(c, time.Second, rate)
			}
			why, followed := c.followed()
			if followed != (test.why != "") || followed && why != test.why {
				t.Errorf("followed is %t: %s", followed, why)
			}
		})
	}
}

// A client that makes its requests in bursts has not gone between two of them.
func TestAPauseThatClientsMakeIsNotTheirEnd(t *testing.T) {
	burst := func(c *clients, n int) {
		for range n {
			c.add(look{took: lookEvery, seen: lookEvery, requests: 100})
			looks(c, 450*time.Millisecond, 0)
		}
	}
	c := &clients{}
	burst(c, 2)
	c.measure()
	for range 20 {
		burst(c, 1)
		if why, followed := c.followed(); followed {
			t.Fatalf("between two bursts: %s", why)
		}
	}
	looks(c, time.Second, 0)
	if why, followed := c.followed(); !followed || !strings.Contains(why, "no request") {
		t.Errorf("when they have ended: %t, %s", followed, why)
	}
}

// If clients are stopped for a moment, they make no other requests either. That shows nothing.
func TestClientsThatAreStoppedHaveNotGone(t *testing.T) {
	c := &clients{}
	others := func(period time.Duration, requests, others float64) {
		for range period / lookEvery {
			c.add(look{took: lookEvery, seen: lookEvery, requests: requests, others: others})
		}
	}
	others(measureFor, 10, 20)
	c.measure()
	for range 10 {
		others(300*time.Millisecond, 0, 0)
		others(500*time.Millisecond, 10, 20)
		others(500*time.Millisecond, 3, 6)
	}
	if why, followed := c.followed(); followed {
		t.Errorf("all are late: %s", why)
	}
	others(600*time.Millisecond, 20, 80)
	if why, followed := c.followed(); !followed || why != "50% of the requests are late" {
		t.Errorf("half are late, and twice as many clients: %t, %s", followed, why)
	}
}

// The late share that is reported is the one that is decided by: with twice as many clients, half of which have followed,
// there are as many late requests as before.
func TestTheReportedLateShareIsOfWhatIsExpected(t *testing.T) {
	c := &clients{}
	add := func(requests, others float64) {
		for range time.Second / lookEvery {
			c.add(look{took: lookEvery, seen: lookEvery, requests: requests, others: others})
		}
	}
	add(10, 20)
	c.measure()
	add(10, 40)
	if rate, share := c.recent(); math.Abs(rate-200) > 1 || math.Abs(share-0.5) > 0.01 {
		t.Errorf("%.0f late requests a second, a share of %.2f", rate, share)
	}
}

// Where others were not counted, requests are compared with those before.
func TestOthersThatCanNotBeCountedAreNoMeasure(t *testing.T) {
	look := func(c *clients, requests, others float64, alone bool) {
		for range time.Second / lookEvery {
			c.add(look{took: lookEvery, seen: lookEvery, requests: requests, others: others, alone: alone})
		}
	}
	for what, counted := range map[string]bool{"before": false, "since": true} {
		c := &clients{}
		look(c, 10, 10, false)
		if !counted {
			look(c, 10, 0, true)
		}
		c.measure()
		look(c, 10, 0, true)
		if why, followed := c.followed(); followed || (c.perOther > 0) != counted {
			t.Errorf("%s: all are late, %s, %g requests to one other", what, why, c.perOther)
		}
		look(c, 3, 0, true)
		if why, followed := c.followed(); !followed {
			t.Errorf("%s: 60 of 200 requests a second are late, %s", what, why)
		}
	}
}

// Clients that make few others are compared with what they did before, but only while they make requests at all.
func TestClientsWithFewOthersThatAreStoppedHaveNotGone(t *testing.T) {
	c := &clients{}
	others := func(period time.Duration, requests, others float64) {
		for range period / lookEvery {
			c.add(look{took: lookEvery, seen: lookEvery, requests: requests, others: others})
		}
	}
	others(5*time.Second, 10, 1)
	c.measure()
	others(3*time.Second, 10, 1)
	for range 2 * time.Second / lookEvery {
		if others(lookEvery, 0, 0); followed(c) {
			t.Fatal("they are stopped")
		}
	}
	others(3*time.Second, 10, 1)
	others(3*time.Second, 4, 1)
	if why, followed := c.followed(); !followed || why != "40% of the requests are late" {
		t.Errorf("%t, %s", followed, why)
	}
}

// Clients that make requests at random, and are all late for a minute, rarely seem to have followed by chance, however few
// others their requests are compared with.
func TestChanceIsNoFollowing(t *testing.T) {
	const each = 50
	random := rand.New(rand.NewPCG(1, 2))
	for _, rate := range []float64{25, 50, 100, 200, 1000} {
		for _, others := range []float64{2, 1.0 / 3, 1.0 / 9, 1.0 / 15} {
			seemed := 0
			for range each {
				c := atRandom(random, rate, others*rate)
				if others*rate > 60 && c.perOther == 0 { // enough of them come in less than the longest time
					t.Errorf("%g requests a second, %g others: they are compared with none", rate, others*rate)
				}
				for range time.Minute / lookEvery {
					if lookAtRandom(random, c, rate, others*rate); followed(c) {
						seemed++
						break
					}
				}
			}
			if t.Logf("%g requests a second, %g others: %d of %d", rate, others*rate, seemed, each); seemed > each/20 {
				t.Errorf("%g requests a second, %g others: %d of %d seem to have followed", rate, others*rate, seemed, each)
			}
		}
	}
}

// After the first pass, chance seldom begins further ones while as many clients as then are late.
func TestChanceIsNoFurtherPass(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for _, rate := range []float64{100, 200, 1000, 2000} {
		for _, others := range []float64{2, 1.0 / 3, 1.0 / 9} {
			for _, late := range []float64{0.5, 0.1, 0.05} {
				c := atRandom(random, rate, others*rate)
				for range 20 * time.Second / lookEvery {
					lookAtRandom(random, c, late*rate, others*rate)
				}
				c.passes()
				c.share = late
				passes := 0
				for range 4 * time.Minute / lookEvery {
					if lookAtRandom(random, c, late*rate, others*rate); followed(c) {
						passes++
						c.passes()
					}
				}
				if t.Logf("%g requests a second, %g others, a share of %g late: %d passes", rate, others*rate, late, passes); passes > 2 {
					t.Errorf("%g requests a second, %g others, a share of %g late: %d passes", rate, others*rate, late, passes)
				}
			}
		}
	}
}

// atRandom returns clients that made that many requests and others a second, at random, before they were told.
func atRandom(random *rand.Rand, rate, others float64) *clients {
	c := &clients{}
	for after := time.Duration(0); !c.measured(after); after += lookEvery {
		lookAtRandom(random, c, rate, others)
	}
	c.measure()
	return c
}

func lookAtRandom(random *rand.Rand, c *clients, rate, others float64) {
	c.add(look{took: lookEvery, seen: lookEvery, requests: poisson(random, rate*lookEvery.Seconds()), others: poisson(random, others*lookEvery.Seconds())})
}

// Requests without others, as those of clients that only write, are not counted for longer than others would be enough.
func TestOthersThatDoNotComeAreNotWaitedFor(t *testing.T) {
	for others, want := range map[float64]time.Duration{0: measureFor, 0.5: measureFor, 2: 3750 * time.Millisecond, 8: measureFor} {
		c := &clients{}
		after := time.Duration(0)
		for ; !c.measured(after); after += lookEvery {
			c.add(look{took: lookEvery, seen: lookEvery, requests: 10, others: others})
		}
		if after != want {
			t.Errorf("%g others in each look: counted for %s, want %s", others, after, want)
		}
	}
}

// A client that calls in bursts is counted for several of them.
func TestRequestsAreCountedForSeveralPauses(t *testing.T) {
	c := &clients{}
	after := time.Duration(0)
	for ; !c.measured(after); after += lookEvery {
		l := look{took: lookEvery, seen: lookEvery, others: 50}
		if after%(900*time.Millisecond) == 0 {
			l.requests = 400
		}
		c.add(l)
	}
	if after < 3*time.Second {
		t.Errorf("counted for %s, with a pause of 0.85 s after each 400 requests", after)
	}
}

func followed(c *clients) bool {
	_, is := c.followed()
	return is
}

// poisson returns how many events happen in a time in which so many are expected: Knuth's algorithm.
func poisson(random *rand.Rand, expected float64) (n float64) {
	for p := random.Float64(); p > math.Exp(-expected); p *= random.Float64() {
		n++
	}
	return n
}

// Looks that are taken together count for the time of each, and don't hide the pauses that clients make.
func TestLooksThatAreTakenTogether(t *testing.T) {
	const n = 20
	c := &clients{}
	c.add(look{took: n * mostSeen, requests: 1000, seen: n * mostSeen, without: 5 * mostSeen})
	c.measure()
	c.add(look{took: n * mostSeen, requests: 500, seen: n * mostSeen})
	if why, followed := c.followed(); !followed || why != "50% of the requests are late" {
		t.Errorf("half are late: %t, %s", followed, why)
	}
	c.add(look{took: 9 * mostSeen, seen: 9 * mostSeen})
	if share, ok := c.late(1, enoughForNone); ok && share == 0 {
		t.Errorf("a pause of %s is their end: %+v", 9*mostSeen, c)
	}
	c.add(look{took: mostSeen, seen: mostSeen})
	if share, ok := c.late(1, enoughForNone); !ok || share != 0 {
		t.Errorf("a pause of %s isn't: %g, %t", 10*mostSeen, share, ok)
	}
}

// A mover or a member that was stopped for a while has heard of no request in that time. That shows nothing.
func TestAProcessThatWasStoppedSeesNoClientGo(t *testing.T) {
	c := told(100)
	c.add(look{took: time.Minute, seen: mostSeen})
	if why, followed := c.followed(); followed || c.silent() {
		t.Errorf("followed is %t: %s; silent is %t", followed, why, c.silent())
	}
}

// Each further pass waits until the share of the requests that is late has halved again, if few clients follow in
// between.
func TestPassesFollowWhenTheLateShareHalves(t *testing.T) {
	c := told(1000)
	passes := []float64{}
	for rate := 1000.0; rate >= 0; rate -= 10 {
		looks(c, fallsWithin, rate)
		if _, followed := c.followed(); followed && c.share > leastShare {
			c.passes()
			passes = append(passes, rate)
		}
	}
	if len(passes) < 6 || len(passes) > 7 || passes[0] > 500 || passes[1] > 250 || passes[2] > 125 {
		t.Errorf("passes at %v requests a second of 1,000", passes)
	}
	if _, followed := c.followed(); !followed {
		t.Error("none is late, and no pass follows")
	}
}

// A pass that begins because none is late waits for no half of those that had been late before.
func TestAPassWithNoneLateRemembersNone(t *testing.T) {
	c := told(100)
	looks(c, time.Second, 100)
	looks(c, 600*time.Millisecond, 0)
	if why, followed := c.followed(); !followed || why != "no request is late" {
		t.Fatalf("%t, %s", followed, why)
	}
	if c.passes(); c.share != leastShare {
		t.Errorf("a share of %g was late", c.share)
	}
}

// While clients follow one after another, passes do, too, from the first one on.
func TestPassesFollowOneAnotherWhileClientsFollow(t *testing.T) {
	c := told(1000)
	looks(c, fallsWithin, 1000)
	for rate := 1000.0; rate > 500; rate -= 20 {
		if _, followed := c.followed(); followed {
			t.Fatalf("%.0f of 1,000 requests a second are late, and the first pass begins", rate)
		}
		looks(c, time.Second, rate)
	}
	looks(c, time.Second, 480)
	for rate := 480.0; rate > 200; rate -= 20 {
		if why, followed := c.followed(); !followed {
			t.Fatalf("%.0f of 1,000 requests a second are late, 20 fewer each second: %s", rate, why)
		}
		c.passes()
		looks(c, time.Second, rate)
	}
	looks(c, 2*fallsWithin, 200)
	if why, followed := c.followed(); followed {
		t.Errorf("no more clients follow: %s", why)
	}
}

// Of clients that make few requests, it shows in a longer time.
func TestPassesFollowOneAnotherWhileClientsOfFewRequestsFollow(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	const runs, processes, rate, others = 10, 20, 333, 600
	sum := time.Duration(0)
	for range runs {
		c := atRandom(random, rate, others)
		without, longest := time.Duration(0), time.Duration(0)
		for late := float64(processes); late > 2; late-- {
			for range 3 * time.Second / lookEvery {
				lookAtRandom(random, c, late/processes*rate, others)
				if longest, without = max(longest, without), without+lookEvery; late > processes/2 {
					without = 0
				} else if followed(c) {
					without = 0
					c.passes()
				}
			}
		}
		sum += longest
	}
	if t.Logf("%s without a pass", sum/runs); sum/runs > 3*time.Second {
		t.Errorf("%s without a pass, while one of %d processes follows every three seconds", sum/runs, processes)
	}
}

// However often passes begin for another reason, none waits for more late requests than the last one.
func TestTheShareThatWasLateDoesNotRise(t *testing.T) {
	c := told(1000)
	looks(c, 5*time.Second, 100)
	c.passes()
	share := c.share
	looks(c, 5*time.Second, 900)
	if c.passes(); c.share != share || share > 0.11 {
		t.Errorf("a share of %g, then %g", share, c.share)
	}
	looks(c, 6*time.Second, 0)
	if c.passes(); c.share != leastShare {
		t.Errorf("none is late, a share of %g", c.share)
	}
	looks(c, 30*time.Second, 5)
	if why, followed := c.followed(); followed {
		t.Errorf("a few are late, always: %s", why)
	}
}

// The silence that counts is as short as the rate of the last requests allows.
func TestSilenceIsAsShortAsTheRateAllows(t *testing.T) {
	for name, test := range map[string]struct {
		rates []float64 // of five seconds each
		quiet time.Duration
	}{
		"often":                           {[]float64{1000}, time.Second},
		"very often":                      {[]float64{100_000}, time.Second},
		"less often":                      {[]float64{400}, 2500 * time.Millisecond},
		"seldom":                          {[]float64{20}, quietFor},
		"often, and then the last seldom": {[]float64{1000, 1}, quietFor},
		"never":                           {nil, quietFor},
	} {
		t.Run(name, func(t *testing.T) {
			c := &clients{}
			for _, rate := range test.rates {
				looks(c, 5*time.Second, rate)
			}
			if n := len(c.looks); n > 0 && c.looks[n-1].requests == 0 {
				t.Fatal("the last look has no request")
			}
			looks(c, test.quiet-lookEvery, 0)
			stopped := &clients{looks: slices.Clone(c.looks)}
			for i := range c.looks {
				c.looks[i].others = 100
			}
			if c.silent() {
				t.Error("silent too early")
			}
			looks(c, lookEvery, 0)
			if !c.silent() {
				t.Errorf("not silent after %s", test.quiet)
			}
			looks(stopped, quietFor-test.quiet, 0)
			if stopped.silent() {
				t.Error("clients that make no other requests are silent too early")
			}
			looks(stopped, lookEvery, 0)
			if !stopped.silent() {
				t.Errorf("clients that make no other requests are not silent after %s", quietFor)
			}
		})
	}
}

// The silence that counts may have begun before the first look. The silence ends with a time in which clients may have called.
func TestSilenceEndsWhereClientsAreNotSeen(t *testing.T) {
	c := &clients{before: quietFor}
	if !c.silent() {
		t.Error("not silent, although no client has called for so long")
	}
	c.unseen()
	if c.silent() {
		t.Error("silent, although clients may have called since")
	}
	looks(c, quietFor-lookEvery, 0)
	if c.silent() {
		t.Error("silent too early")
	}
	looks(c, lookEvery, 0)
	if !c.silent() {
		t.Error("not silent, although no client has called since")
	}
}

// However long it takes, the memory for looks has a bound.
func TestLooksAreBounded(t *testing.T) {
	c := told(1000)
	looks(c, time.Hour, 1000)
	if len(c.looks) > mostLooks {
		t.Errorf("%d looks", len(c.looks))
	}
}

// At a member that stays, keys of its own are read as often while clients follow, and while movers store, however much
// clients write.
func TestReadsOfItsOwnKeysAreThoseBefore(t *testing.T) {
	for _, writes := range []float64{0, 0.3, 0.6} {
		l := &runningMember{}
		d := &l.demand
		d.l = l
		const moving, staying = 500, 1000
		look := func(late, stored float64) float64 {
			commands := moving*late + staying
			d.pending, d.reads = commands+stored, (1-writes)*commands
			return d.readsOfItsOwn(moving * late)
		}
		want := (1 - writes) * staying
		for range 10 {
			if got := look(1, 0); math.Abs(got-want) > 1 {
				t.Errorf("writes %.1f, before: %.0f reads, want %.0f", writes, got, want)
			}
		}
		l.clients.rate = moving
		for _, late := range []float64{1, 0.5, 0} {
			if got := look(late, 100_000); math.Abs(got-want) > 1 {
				t.Errorf("writes %.1f, %.1f late: %.0f reads, want %.0f", writes, late, got, want)
			}
		}
	}
}
