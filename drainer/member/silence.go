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
	// commands is how many commands there were at the last look, own how many of them are the supervisor's.
	// since is when the number was last found to have grown; the zero time before the first look.
	commands, own int64
	since         time.Time
	// counted is own at the last look.
	counted int64
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
	if s.since.IsZero() || commands-s.own != s.commands-s.counted {
		s.since = time.Now()
	}
	s.commands, s.counted = commands, s.own
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
