package memcache

import (
	"fmt"
	"strconv"
)

// clientCommands are the counters of commands with which clients use caches, without the commands of
// the supervisor and of monitoring: "me", "version", "mn" and "stats".
var clientCommands = []string{"cmd_get", "cmd_set", "cmd_touch", "cmd_flush", "delete_hits", "delete_misses", "incr_hits", "incr_misses", "decr_hits", "decr_misses"}

// ClientCommands returns the number of clients' commands by a server's statistics.
func ClientCommands(stats map[string]string) (sum int64, err error) {
	for _, name := range clientCommands {
		n, err := strconv.ParseInt(stats[name], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%w to stats: %s=%q", ErrProtocol, name, stats[name])
		}
		sum += n
	}
	return sum, nil
}

// Reads returns the number of keys that were asked for, by a server's statistics. A mover stores items, and
// reads only those that clients have stored anew after they were moved.
func Reads(stats map[string]string) (int64, error) {
	n, err := strconv.ParseInt(stats["cmd_get"], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w to stats: cmd_get=%q", ErrProtocol, stats["cmd_get"])
	}
	return n, nil
}
