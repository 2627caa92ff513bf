package memcache

import (
	"fmt"
	"strconv"
)

// Usage has the resources that a server's process has used, and its counts, since it started.
type Usage struct {
	pid      string
	counters [len(usage)]float64
}

// The values of usage only grow, except the last four after "stats reset".
var usage = [...]string{"uptime", "rusage_user", "rusage_system", "total_items", "total_connections", "bytes_read", "bytes_written"}

// Usage asks for the server's usage.
func (c *Conn) Usage() (u Usage, err error) {
	stats, err := c.Stats("")
	if err != nil {
		return u, err
	}
	u.pid = stats["pid"]
	for i, name := range usage {
		if u.counters[i], err = strconv.ParseFloat(stats[name], 64); err != nil {
			return u, fmt.Errorf("%w to stats: %s=%q", ErrProtocol, name, stats[name])
		}
	}
	return u, nil
}

// After tells whether u may be of the same process as before, at a later time.
func (u Usage) After(before Usage) bool {
	for i, n := range u.counters {
		if n < before.counters[i] {
			return false
		}
	}
	return u.pid == before.pid
}
