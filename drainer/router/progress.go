package router

import (
	"time"

	"example.com/memcached-operator/drainer/linux"
)

// slowest is the least rate, in bytes per second, at which a client must send a large request, or a member read one.
const slowest = 32 << 10

// progress keeps a member from being given up while it reads a large request fast enough.
func (m *member) progress() {
	end := m.passed + uint64(m.unsent())
	if q := &m.unanswered; q.n > 1 {
		end = q.ring[(q.first+1)&(len(q.ring)-1)].at
	}
	queued, err := linux.Unsent(m.fd)
	if err != nil || uint64(queued) > m.passed {
		return
	}
	if taken := m.passed - uint64(queued); taken < end && taken >= m.taken+slowest*uint64(m.loop.router.config.MemberTimeout)/uint64(time.Second) {
		m.taken, m.heard = taken, m.loop.now
	}
}
