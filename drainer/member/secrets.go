package member

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	"example.com/memcached-operator/drainer/contract"
)

// checkSecrets refuses a start that memcached would refuse, or after which memcached would accept no client.
// memcached reads the volume's .meta only once, so a failing start would use it up. The termination message
// says why.
func (s *supervisor) checkSecrets() error {
	err := s.Dialer.CheckFiles(s.usages()...)
	if err == nil {
		return nil
	}
	message, jsonErr := json.Marshal(contract.Refusal{Reason: contract.ReasonSecretInvalid, Message: err.Error()})
	return errors.Join(err, jsonErr, s.termination.write(string(message)))
}

// usages returns the required usages of the member's certificate. The supervisor uses it as a client's
// certificate, too, if memcached asks its clients for one.
func (s *supervisor) usages() []x509.ExtKeyUsage {
	usages := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	if s.verifiesClients() {
		usages = append(usages, x509.ExtKeyUsageClientAuth)
	}
	return usages
}

// verifiesClients tells whether memcached asks its clients for a certificate.
func (s *supervisor) verifiesClients() bool {
	return slices.ContainsFunc(s.Command, func(a string) bool { return strings.Contains(a, contract.VerifyClients) })
}

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
