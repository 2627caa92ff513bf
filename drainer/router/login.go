package router

import (
	"context"
	"sync/atomic"
	"time"

	"example.com/memcached-operator/drainer/contract"
)

// login is a client's login.
type login struct {
	wanted bool
}

func (c *client) logIn(b []byte) int {
	r := &c.loop.request
	n := r.Parse(b)
	if n == 0 {
		return c.incomplete(b)
	}
	answer, block := answerLogin(r, b[n:], c.loop.router.logins.admit)
	if answer == "" {
		return 0
	}
	c.login.wanted = answer != admitted
	c.reply(answer)
	if len(b) < n+block {
		c.swallow = block
		return n
	}
	return n + block
}

// loginPeriod is how often the file with the logins is looked at, and read if it has changed. A login reads
// no file, because an event loop does not wait for files.
const loginPeriod = time.Second

// logins are the accepted logins.
type logins struct {
	config *Config
	known  atomic.Pointer[[]contract.Login]
	said   string
}

// read reads the logins. If that fails, no client is accepted.
func (l *logins) read() {
	if l.config.Logins == nil {
		return
	}
	all, err := l.config.Logins()
	why := ""
	if err != nil {
		all, why = nil, err.Error()
	}
	if why != l.said && why != "" {
		l.config.Logf("the logins can't be read, and no client can log in: %s", why)
	}
	l.said = why
	l.known.Store(&all)
}

// keep reads the logins periodically until ctx ends.
func (l *logins) keep(ctx context.Context) {
	if l.config.Logins == nil {
		return
	}
	ticks := time.NewTicker(loginPeriod)
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
			l.read()
		case <-ctx.Done():
			return
		}
	}
}

func (l *logins) admit(user, password []byte) bool {
	return contract.Admits(*l.known.Load(), string(user)+" "+string(password))
}
