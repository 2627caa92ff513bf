package member

import (
	"sync"
	"time"

	"example.com/memcached-operator/drainer/export"
	"example.com/memcached-operator/drainer/memcache"
)

// silence knows since when no client has called memcached. A mover waits until none has called for some seconds.
type silence struct {
	mu sync.Mutex
	// commands is how many commands there were at the last look, own how many the supervisor has made, or is about to
	// make, and calls how many were the clients'. since is when calls were last found to have grown; the zero time before
	// the first look.
	commands, own, calls int64
	since                time.Time
}

// asks is called before the supervisor makes a request that counts as a client's command.
func (s *silence) asks() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.own++
}

// look reads memcached's statistics.
func (s *silence) look(stats map[string]string) {
	commands, err := memcache.ClientCommands(stats)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.since = time.Time{}
		return
	}
	// There seem to be fewer calls while a request of the supervisor is on its way. There are fewer commands after a
	// client's stats reset.
	if calls := commands - s.own; s.since.IsZero() || calls > s.calls || commands < s.commands {
		s.since, s.calls = time.Now(), calls
	}
	s.commands = commands
}

// now returns the silence, nil if it is not known.
func (s *silence) now() *export.Silence {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since.IsZero() {
		return nil
	}
	return &export.Silence{Commands: s.commands, Seconds: time.Since(s.since).Seconds()}
}

// overheard is memcached's connection, whose answers to stats are also given to silence.
type overheard struct {
	*memcache.Conn
	silence *silence
}

func (o overheard) Stats(arg string) (map[string]string, error) {
	stats, err := o.Conn.Stats(arg)
	if err == nil && arg == "" {
		o.silence.look(stats)
	}
	return stats, err
}
