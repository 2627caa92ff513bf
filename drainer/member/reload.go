package member

import (
	"context"
	"net"
	"syscall"
	"time"
)

// reloadPeriod is how often the files of a Secret are looked at. The kubelet needs about a minute to update
// them.
const reloadPeriod = 2 * time.Second

// reload makes a running memcached use certificates and logins that have changed. memcached's connections
// stay open.
type reload struct {
	s       *supervisor
	address string
	// tls and auth are checksums of the files that memcached has loaded.
	tls, auth string
	failure   lastFailure
}

// newReload records the files that memcached is started with.
func newReload(s *supervisor, address string) *reload {
	r := &reload{s: s, address: address}
	r.tls, r.auth = s.Dialer.Sums()
	return r
}

// run looks at the files until ctx ends.
func (r *reload) run(ctx context.Context) {
	if r.tls == "" && r.auth == "" {
		return
	}
	ticks := time.NewTicker(reloadPeriod)
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
			r.complain(ctx, r.look(ctx))
		case <-ctx.Done():
			return
		}
	}
}

// complain logs a failure once.
func (r *reload) complain(ctx context.Context, err error) {
	if r.failure.isNew(err) && ctx.Err() == nil {
		r.s.std.Logf("memcached keeps its present certificates and logins, because the Secret's files can't be used: %s", r.failure)
	}
}

// look makes memcached load files that have changed and are complete. The logins are loaded first, because
// the supervisor itself logs in with the new ones.
func (r *reload) look(ctx context.Context) error {
	tls, auth := r.s.Dialer.Sums()
	if tls == r.tls && auth == r.auth {
		return nil
	}
	if err := r.s.Dialer.Check(r.s.usages()...); err != nil {
		return err
	}
	// Before memcached listens, the signal would end it.
	conn, err := net.DialTimeout("tcp", r.address, lookPeriod)
	if err != nil {
		return err
	}
	conn.Close()
	if auth != r.auth {
		r.s.child.signal(syscall.SIGHUP)
		r.auth = auth
		r.s.std.Logf("memcached is asked to use the new logins")
	}
	if tls == r.tls {
		return nil
	}
	if err := r.refreshCertificates(ctx); err != nil {
		return err
	}
	r.tls = tls
	return nil
}

func (r *reload) refreshCertificates(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookPeriod)
	defer cancel()
	conn, err := r.s.Dialer.Dial(ctx, r.address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.RefreshCertificates(ctx); err != nil {
		return err
	}
	served, err := r.s.Dialer.Served(ctx, r.address)
	if err != nil {
		return err
	}
	r.s.std.Logf("memcached serves the new certificate, valid until %s", served.NotAfter.UTC().Format(time.RFC3339))
	return nil
}
