package member

import (
	"context"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"

	"example.com/memcached-operator/drainer/commandline"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/pace"
	"example.com/memcached-operator/drainer/warmfile"
)

// How often the supervisor looks at the running memcached: at first, and after its first answer. Until then the pauses
// grow with the time that it takes to start, because a large warm file takes many seconds.
const (
	firstLook  = 20 * time.Millisecond
	nextLook   = time.Second
	lookPeriod = 2 * time.Second // for one answer
)

// watch follows a running memcached and keeps the manifest current.
type watch struct {
	s       *supervisor
	address string
	conn    *memcache.Conn
	last    *warmfile.Image
	// unwritten means that the manifest of last could not be written.
	unwritten bool
	// complained means that the latest failure has been logged.
	complained bool
}

func newWatch(s *supervisor) *watch { return &watch{s: s, address: s.address()} }

// address is where memcached can be reached.
func (s *supervisor) address() string {
	return net.JoinHostPort(listenHost(s.Command, "127.0.0.1"), strconv.Itoa(s.Port))
}

// listenHost returns where a memcached with these arguments can be reached; it returns host if memcached
// listens on all addresses.
func listenHost(command []string, host string) string {
	for _, o := range commandline.Parse(command[min(1, len(command)):]) {
		if o.Letter != commandline.Listen || o.Value == "" {
			continue
		}
		first, _, _ := strings.Cut(o.Value, ",")
		if h, _, err := net.SplitHostPort(first); err == nil {
			first = h
		}
		switch ip := net.ParseIP(first); {
		case ip == nil || !ip.IsUnspecified():
			host = first
		case ip.To4() == nil && host != "":
			host = "::1" // it accepts no IPv4 on that address
		}
	}
	return host
}

// run looks until ctx ends.
func (w *watch) run(ctx context.Context) {
	defer w.disconnect()
	for began := time.Now(); ; {
		w.complain(ctx, w.look(ctx))
		w.s.warn()
		pause := nextLook
		if w.last == nil {
			pause = min(max(firstLook, time.Since(began)/10), nextLook)
		}
		if pace.Sleep(ctx, pause) != nil {
			return
		}
	}
}

// complain logs that the manifest is out of date, once until a look succeeds again. While memcached starts or
// ends, that is normal and not logged.
func (w *watch) complain(ctx context.Context, err error) {
	if err == nil || w.last == nil || w.complained || w.s.saving.Load() || ctx.Err() != nil {
		return
	}
	w.complained = true
	w.s.std.Logf("the manifest can't be kept up to date: %v", err)
}

func (w *watch) disconnect() {
	if w.conn != nil {
		w.conn.Close()
		w.conn = nil
	}
}

// look asks memcached, and writes the manifest if the answer matters.
func (w *watch) look(ctx context.Context) (err error) {
	if err := w.s.manifest.hold(); err != nil {
		return err
	}
	if w.conn == nil {
		dialCtx, cancel := context.WithTimeout(ctx, lookPeriod)
		defer cancel()
		if w.conn, err = w.s.Dialer.Dial(dialCtx, w.address); err != nil {
			return err
		}
	}
	defer func() {
		if err != nil {
			w.disconnect()
		}
	}()
	if err := w.conn.SetDeadline(time.Now().Add(lookPeriod)); err != nil {
		return err
	}
	image := &warmfile.Image{}
	if w.last != nil {
		*image = *w.last
	}
	if err := image.Ask(overheard{w.conn, &w.s.silence}, w.s.child.pid, w.s.path(contract.WarmFile), w.s.Command); err != nil {
		return err
	}
	w.complained = false
	if err := unfit(image.ShortPages(), image.External); err != nil {
		if w.s.unfit.Swap(&err) == nil {
			w.s.std.Logf("memcached is killed: %v", err)
			w.s.child.signal(syscall.SIGKILL)
		}
		return err
	}
	if w.last != nil && !w.unwritten && !differs(w.last, image) {
		return nil
	}
	first := w.last == nil
	w.last = image
	before := w.s.manifest.notes()
	err = w.s.manifest.running(w.s.child.pid, image)
	w.unwritten = err != nil
	if note := w.s.manifest.notes(); first && note != before {
		w.s.std.Logf("%s", note)
	}
	return err
}

// differs tells whether the old image would be misread after a crash right now: another flush, a change of
// the node's clock, or a number of items that is off by more than a tenth.
func differs(a, b *warmfile.Image) bool {
	const exact = 2 // in seconds: the two clocks are read one after the other
	set := (a.Clock - a.NodeClock) - (b.Clock - b.NodeClock)
	if a.OldestLive != b.OldestLive || a.ProcessStarted != b.ProcessStarted || max(set, -set) > exact {
		return true
	}
	change := max(a.Items-b.Items, b.Items-a.Items)
	return change*10 > a.Items
}
