package warmfile

import (
	"strconv"
	"strings"
	"time"
)

// flushRule decides whether clients could still get an item after a flush_all.
//
// Source: memcached's items.c, item_is_flushed. Up to 1.6.24 an immediate flush sets oldest_live to the second
// before it, and oldest_cas to the next number. Items that were stored in the flush's own second are flushed if
// their CAS is lower. From 1.6.25 on, the flush unlinks these items at once.
type flushRule struct {
	oldestLive uint32
	oldestCAS  uint64
	// pending means that the flush was ordered for a future time.
	pending bool
	// at is when a pending flush takes effect, in Unix seconds.
	at int64
}

// newFlushRule returns the rule of the image's flush at the Unix time now; times count from started. .meta
// has oldest_cas, but a running server doesn't report it. So after a crash of a version with oldest_cas, all
// items of the flush's own second count as flushed: a lost item is a miss, a flushed one that comes back is a
// wrong answer.
func newFlushRule(image *Image, clean bool, started, now int64) flushRule {
	rule := flushRule{oldestLive: image.OldestLive, oldestCAS: image.OldestCAS}
	if rule.oldestLive == 0 {
		return rule
	}
	rule.at = started + int64(rule.oldestLive)
	rule.pending = !image.flushed(started, now)
	if !clean && !rule.pending && image.UseCAS && flushesByCAS(image.Version) {
		rule.oldestLive++
	}
	return rule
}

// Flushed tells whether a flush_all has taken effect by now.
func (m *Image) Flushed(now time.Time) bool {
	return m.flushed(m.startedAt(now.Unix()), now.Unix())
}

// flushed is Flushed, with times that count from started. A flush has also taken effect if memcached's own clock
// had reached its time.
func (m *Image) flushed(started, now int64) bool {
	done := int64(m.OldestLive) <= m.Clock-m.ProcessStarted
	return m.OldestLive != 0 && (done || started+int64(m.OldestLive) <= now)
}

// PendingFlush returns when a flush_all that was ordered for a future time removes an item that was last
// accessed at the Unix time accessed; 0 if never.
func (m *Image) PendingFlush(accessed int64, now time.Time) int64 {
	at := m.ProcessStarted + int64(m.OldestLive)
	if m.OldestLive == 0 || m.Flushed(now) || accessed > at {
		return 0
	}
	return at
}

// applies tells whether the flush removes an item with this last access and CAS, either now or, if the flush
// is pending, when it takes effect.
func (r *flushRule) applies(time uint32, cas uint64) bool {
	if r.oldestLive == 0 {
		return false
	}
	if r.pending {
		return time <= r.oldestLive
	}
	return time <= r.oldestLive || (r.oldestCAS != 0 && cas != 0 && cas < r.oldestCAS)
}

// flushesByCAS tells whether the version is older than 1.6.25, or unknown.
func flushesByCAS(version string) bool {
	older, known := olderThan(version, 25)
	return older || !known
}

// SmallFlagsOnly tells whether a version is older than 1.6.22, the first that can be built with large client
// flags.
func SmallFlagsOnly(version string) bool {
	older, _ := olderThan(version, 22)
	return older
}

// olderThan tells whether a version is older than 1.6.patch, if it is known.
func olderThan(version string, patch int) (older, known bool) {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 3 {
		return false, false
	}
	var n [3]int
	for i, p := range parts {
		digits := strings.IndexFunc(p, func(c rune) bool { return c < '0' || c > '9' })
		if digits >= 0 {
			p = p[:digits]
		}
		v, err := strconv.Atoi(p)
		if err != nil {
			return false, false
		}
		n[i] = v
	}
	return n[0] < 1 || n[0] == 1 && (n[1] < 6 || n[1] == 6 && n[2] < patch), true
}
