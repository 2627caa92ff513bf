package router

import "example.com/memcached-operator/drainer/router/admit"

// login of a client.
type login struct {
	wanted bool
}

func (c *client) logIn(b []byte) int {
	r := &c.loop.request
	n := r.Parse(b)
	if n == 0 {
		return c.incomplete(b)
	}
	answer, block := admit.Answer(r, b[n:], c.loop.router.admits)
	if answer == "" {
		return 0
	}
	c.login.wanted = answer != admit.Admitted
	c.reply(answer)
	if len(b) < n+block {
		c.swallow = block
		return n
	}
	return n + block
}

func (r *Router) admits(user, password []byte) bool {
	logins, err := r.config.Logins()
	if err != nil {
		r.config.Logf("logins: %v", err)
		return false
	}
	return admit.Any(logins, user, password)
}
