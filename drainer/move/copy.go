package move

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/pace"
	"example.com/memcached-operator/drainer/routing"
)

// A copy fills the servers from another cache, and changes nothing there. The copy reads the source pass
// after pass, until a pass adds less than a hundredth of the items. Each item is added at its owner, marked
// by its CAS (see markOf). Then the source is asked once more: if the item has changed or gone meanwhile, the
// copy is deleted again. So for a client that writes to the source first and then to its new cluster, a copy
// never brings back an old value. Later passes replace marked items that have changed at the source, and
// delete those that are gone there.

const (
	// mostPasses is how many passes a copy makes if each brings a hundredth or more: later passes would, too.
	mostPasses = 20
	// brings: a copy is warm when a pass adds less than one item in so many.
	brings = 100
	// copyRest is the least time between two passes, and copyShare is how many times a pass's duration the rest takes
	// when the copy is warm.
	copyRest  = time.Second
	copyShare = 4
)

// Copy says what is copied. Either Sources or Volumes are set.
type Copy struct {
	// Sources are running memcacheds, and Dialer connects to them.
	Sources []routing.Server
	Dialer  memcache.Dialer
	// Looks is where the source's clients look for a key, by the order of Sources; nil unknown.
	Looks routing.Owner
	// Client and KeyPrefix are the routing of Engine.Owner, for the stream of a source's supervisor at ExportPort; 0
	// none.
	Client, KeyPrefix string
	ExportPort        int
	// Volumes is a source on volumes.
	Volumes item.Layered
	// Scratch is the directory of the lists of keys.
	Scratch string
	// Passes, AsMuchAsFits, Marks, Until, Count, Besides and Resume are as in contract.Copy.
	Passes       int
	AsMuchAsFits bool
	Marks        bool
	Until        contract.Until
	Count        bool
	Besides      []int64
	Resume       string
	// UntilStopped means that the copy goes on until ctx ends.
	UntilStopped bool
}

// Copy copies to the Servers.
func (e *Engine) Copy(ctx context.Context, o Copy) contract.Receipt {
	c := &copying{Copy: o, e: e, Source: noItems{}}
	if o.Volumes != nil {
		c.Source = o.Volumes
	}
	for i, s := range o.Sources {
		c.sources = append(c.sources, newCopySource(c, i, s))
		e.waits.Sources = append(e.waits.Sources, s.String())
	}
	e.Source = c
	return e.Run(ctx)
}

// copying is a copy that runs. Its item.Source has the items of volumes; running memcacheds are read otherwise.
type copying struct {
	Copy
	item.Source
	e       *Engine
	sources []*copySource
	passes
	warm atomic.Bool
	// ctx is for the checks of what the servers have answered.
	ctx context.Context
	// targets are for deletes at the servers.
	targets []target

	mu sync.Mutex
	// seen has the items that are known to have been at the servers, by key and version. If the source still has that
	// version, and it is gone at its server, a client has deleted it there, or the server has evicted it.
	seen    once
	version []byte
	// had is how many seen has.
	had int64
	// withdrawn counts copies that were deleted at once, because the source had changed meanwhile; deleted counts
	// earlier copies that are gone or outdated.
	withdrawn, deleted int64
	cantTell           map[string]bool
	// failing means that a source has failed, and the others need not go on.
	failing atomic.Bool

	tooLarge, replaced atomic.Int64
	leftOut            atomic.Int64
	// noTextForm counts the items of a pass that can't be asked for.
	noTextForm atomic.Int64
	// demand is what each server would get from volumes, in bytes; nil if it was not counted. place is how far the copy
	// from them is; nil if nothing remembers that.
	demand []int64
	place  *copyPlace
	// samples tell how much the servers have of what they would get.
	samples samples
	// room is how many bytes each server still takes, if AsMuchAsFits.
	room                       []atomic.Int64
	made, lastFound, lastAdded int64
}

// target is a connection to a server, for one goroutine at a time.
type target struct {
	mu sync.Mutex
	link
}

// Layers are those of the volumes.
func (c *copying) Layers() []item.Source { return item.LayersOf(c.Source) }

// Expected is the expected number of items.
func (c *copying) Expected() int64 { return c.expected.Load() + c.Source.Expected() }

// Clean tells whether nothing can be missing.
func (c *copying) Clean() bool { return c.Volumes == nil || c.Source.Clean() }

// Version returns the version of the first source.
func (c *copying) Version() string {
	if len(c.sources) > 0 {
		return c.sources[0].version
	}
	return c.Source.Version()
}

// noItems is the item.Source of a copy from running memcacheds.
type noItems struct{ item.Source }

func (noItems) Expected() int64 { return 0 }
func (noItems) Size() int64     { return 0 }
func (noItems) Done() int64     { return 0 }
func (noItems) Used() int64     { return 0 }
func (noItems) Clean() bool     { return true }

// copy makes the passes.
func (c *copying) copy(ctx context.Context) (complete bool, err error) {
	c.ctx, c.cantTell = ctx, map[string]bool{}
	c.targets, c.room = make([]target, len(c.e.Servers)), make([]atomic.Int64, len(c.e.Servers))
	for i, s := range c.e.Servers {
		c.targets[i].link = link{server: s, dialer: c.e.Dialer}
	}
	if c.Volumes != nil {
		return c.copyVolumes(ctx)
	}
	for i, w := range c.e.writers {
		if l := w.Limits(); !l.Marks() {
			c.cantTell[contract.CantTellCopies] = true
			fmt.Fprintf(c.e.Log, "%s can't mark copies (memcached %.40s, CAS %t, evictions %t): what is copied there, and changes at its source later, stays as it is\n",
				c.e.Servers[i], l.Version, l.CAS, l.EvictsToFree)
		}
	}
	if err := c.check(ctx); err != nil {
		return false, err
	}
	for last := false; ; {
		began := time.Now()
		if err := c.pass(ctx); err != nil {
			return c.stopped(ctx, err)
		}
		c.made++
		took := time.Since(began)
		// The first pass of a run that resumes another one finds everything present.
		if warm := c.lastAdded*brings < c.lastFound || c.lastAdded == 0; warm && c.made > 1 || c.made >= mostPasses {
			c.warm.Store(true)
		}
		switch goesOn := c.Until.File != "" || c.UntilStopped; {
		case last, c.Passes > 0 && c.made >= int64(c.Passes), !goesOn && c.warm.Load():
			return true, nil
		case goesOn && c.warm.Load():
			c.e.beginPhase(contract.PhaseSettling)
			if last, err = c.rest(ctx, max(copyRest, copyShare*took)); err != nil {
				return c.stopped(ctx, err)
			}
			c.e.beginPhase(contract.PhaseAdding)
		default:
			if last, err = c.rest(ctx, copyRest); err != nil {
				return c.stopped(ctx, err)
			}
		}
	}
}

// stopped is the end of a copy that goes on until a signal: if it was warm, it has done what it was told.
func (c *copying) stopped(ctx context.Context, err error) (complete bool, _ error) {
	if c.UntilStopped && c.warm.Load() && errors.Is(ctx.Err(), context.Canceled) && context.Cause(ctx) == context.Canceled { //nolint:errorlint // not a deadline's cause
		return true, nil
	}
	return false, err
}

// rest waits, for that long, and tells whether the next pass is the last one.
func (c *copying) rest(ctx context.Context, d time.Duration) (last bool, err error) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		if c.Until.File != "" && c.toldToEnd() {
			return true, nil
		}
		if err := pace.Sleep(ctx, 10*readEvery); err != nil {
			return false, err
		}
	}
	return false, nil
}

func (c *copying) toldToEnd() bool {
	f, err := os.Open(c.Until.File)
	if err != nil {
		return false
	}
	defer f.Close()
	text := make([]byte, len(c.Until.When)+2)
	n, err := io.ReadFull(f, text)
	return (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) && strings.TrimSuffix(string(text[:n]), "\n") == c.Until.When
}

// end is called when the writers have ended, which use the connections, too. It closes all of these, and the lists.
func (c *copying) end(ctx context.Context, complete bool) {
	if c.place != nil && !complete {
		c.place.interrupted(ctx)
	}
	for _, s := range c.sources {
		s.close()
	}
	for i := range c.targets {
		c.targets[i].close()
	}
}

// sumUp adds to the receipt what the writers don't know.
func (c *copying) sumUp(r *contract.Receipt) {
	r.Reader = contract.ReaderWarmFile
	if c.place != nil {
		r.Earlier = c.place.earlier.Load()
		r.Found += r.Earlier
		r.LeftOut = min(r.Earlier, c.place.leftOut())
		r.AlreadyPresent += r.Earlier
	}
	if c.Volumes == nil {
		r.Reader = contract.ReaderLive
	} else if r.Complete && !c.Count {
		c.made, c.lastFound, c.lastAdded = 1, r.Found, r.Added
	}
	if c.Count && r.Complete {
		for _, bytes := range c.demand {
			r.Demand = append(r.Demand, mib(bytes))
		}
	}
	if len(c.sources) > 0 && !slices.ContainsFunc(c.sources, func(s *copySource) bool { return !s.streamed }) {
		r.Reader = contract.ReaderStream
	}
	tooLarge := c.tooLarge.Load()
	r.Found += tooLarge
	r.Rejected += tooLarge
	r.TooLarge += tooLarge
	r.NoTextForm = c.noTextForm.Load()
	r.Found += r.NoTextForm
	if r.Message == "" && tooLarge > 0 {
		r.Message = fmt.Sprintf("%d items were not copied: they are larger than the servers' item size limit (-I)", r.Rejected)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	withdrawn := min(c.withdrawn, r.Added)
	r.Added -= withdrawn
	r.Invalidated += withdrawn
	r.Deleted = c.deleted
	r.Replaced = c.replaced.Load()
	r.LeftOut += c.leftOut.Load()
	r.Passes, r.LastFound, r.LastAdded = int(c.made), c.lastFound, c.lastAdded
	r.Settled = c.warm.Load()
	for what := range c.cantTell {
		r.CantTell = append(r.CantTell, what)
	}
	slices.Sort(r.CantTell)
}

// copyVolumes makes the only pass over volumes.
func (c *copying) copyVolumes(ctx context.Context) (complete bool, err error) {
	c.e.beginPhase(contract.PhaseAdding)
	if c.Resume != "" && !c.Count {
		if err := c.findPlace(ctx); err != nil {
			return false, err
		}
	}
	roomForAll := c.e.roomForAll(c.Used())
	if c.Count || !c.AsMuchAsFits && (c.Besides != nil || !roomForAll) {
		if err := c.countVolumes(ctx); err != nil {
			return false, err
		}
		if err := c.fits(c.demand); err != nil && !c.AsMuchAsFits {
			return false, err
		}
	}
	switch {
	case c.Count:
		return true, nil
	case c.AsMuchAsFits && !roomForAll && !c.place.begun(): // band by band, and so not in the order of places
		c.place = nil
		err = c.e.move(ctx, &complete)
	default:
		complete, err = c.copyInOrder(ctx)
	}
	return complete, err
}
