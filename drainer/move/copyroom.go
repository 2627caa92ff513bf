package move

import (
	"bytes"
	"context"
	"fmt"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/memcache"
)

// countVolumes sums up what each server would get.
func (c *copying) countVolumes(ctx context.Context) error {
	c.demand = make([]int64, len(c.e.writers))
	for i, n := range c.Besides {
		c.demand[i] = n * mebi
	}
	samples, n, each := c.newSamples(), int64(0), 1+c.Expected()/askedFor
	for it, err := range c.Items(ctx) {
		if err != nil {
			return err
		}
		if it.State != item.Live {
			continue
		}
		owner, size := c.e.Owner.Owner(it.Key), int64(it.Size()+itemOverhead)
		c.demand[owner] += size
		if n++; n%each == 0 {
			samples.add(owner, it.Key, size)
		}
	}
	return c.ask(ctx, samples)
}

// samples are items of the sources, by their owner. The servers are asked for them, which tells about how much they have
// of what they would get: an earlier run has copied it, or a client has stored it. nil if they have nothing.
type samples []struct {
	keys [][]byte
	size []int64
	// all is the size of these, and had of those that the server has.
	all, had int64
}

// askedFor is for about how many items the servers are asked, and mostAskedFor bounds them: numbers of a source may be
// wrong.
const (
	askedFor     = 10_000
	mostAskedFor = 10 * askedFor
)

func (c *copying) newSamples() samples {
	if !c.resumes() {
		return nil
	}
	return make(samples, len(c.e.Servers))
}

func (s samples) add(owner int, key []byte, size int64) {
	if s == nil || len(s[owner].keys) >= mostAskedFor/len(s) || !memcache.HasTextForm(key) {
		return
	}
	s[owner].keys, s[owner].size = append(s[owner].keys, bytes.Clone(key)), append(s[owner].size, size)
	s[owner].all += size
}

// ask asks the servers for the samples.
func (c *copying) ask(ctx context.Context, all samples) error {
	c.samples = all
	return c.e.each(func(owner int, _ *memcache.Writer) error {
		if all == nil {
			return nil
		}
		s, t := &all[owner], &c.targets[owner]
		t.mu.Lock()
		defer t.mu.Unlock()
		for begin := 0; begin < len(s.keys); begin += copyItems {
			part := make([]int, min(copyItems, len(s.keys)-begin))
			for i := range part {
				part[i] = begin + i
			}
			had := int64(0)
			if err := t.ask(ctx, c.e.UnreachableTimeout, c.e.waits.Set, false, func(conn *memcache.Conn) error {
				had = 0
				return lookAll(conn, part, func(i int) []byte { return s.keys[i] }, c.e.UnreachableTimeout, false, func(i int, _ uint64, found bool) {
					if found {
						had += s.size[i]
					}
				})
			}); err != nil {
				return err
			}
			s.had += had
		}
		return nil
	})
}

// missing is how many of so many bytes the server doesn't have yet.
func (s samples) missing(owner int, size int64) int64 {
	if s == nil || s[owner].all == 0 {
		return size
	}
	return size - int64(float64(size)*float64(s[owner].had)/float64(s[owner].all))
}

// mebi is a MiB.
const mebi = 1 << 20

// mib are so many bytes in MiB, at least.
func mib(bytes int64) int64 { return (bytes + mebi - 1) / mebi }

// tooSmallError means that the servers have no room for what the source has.
type tooSmallError struct {
	server             string
	needs, has, all, n int64
}

func (e *tooSmallError) Error() string {
	return fmt.Sprintf("the servers are too small: %s would get %d MiB and has room for %d MiB (%d MiB for all %d servers): give them more memory, add servers, or copy as much as fits (--%s), most recently used items first",
		e.server, mib(e.needs), e.has/mebi, mib(e.all), e.n, contract.FlagAsMuchAsFits)
}

// Failure returns the reason and the exit code: no retry helps.
func (e *tooSmallError) Failure() (reason string, exitCode int) {
	return contract.ReasonTargetTooSmall, contract.ExitUsage
}

// fits returns an error if a server has no room for the bytes that it would get, less what it has of them.
func (c *copying) fits(demand []int64) error {
	all := int64(0)
	for _, size := range demand {
		all += size
	}
	for i, size := range demand {
		missing, room := c.samples.missing(i, size), c.e.writers[i].Limits().Room
		if needs := missing + missing/slack; needs > room {
			return &tooSmallError{c.e.Servers[i].String(), needs, room, all, int64(len(demand))}
		}
	}
	return nil
}
