package drainer

import (
	"context"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/routing"
)

// defaultUnreachable is how long a survivor may not answer.
const defaultUnreachable = 5 * time.Minute

// moveFlags are common to the commands that move items.
type moveFlags struct{ routing routingFlags }

func (f *moveFlags) add(fs *flag.FlagSet, m *contract.Move) {
	fs.StringVar(&m.SourceID, contract.FlagSourceID, "", "goes into the receipt: the claim's UID")
	fs.DurationVar(&m.UnreachableTimeout, contract.FlagUnreachableTimeout, defaultUnreachable, "how long a server may not answer")
	fs.StringVar(&m.Receipt, contract.FlagReceipt, contract.TerminationLog, "the file that the receipt is written to")
	fs.Int64Var(&m.RateLimitItems, contract.FlagRateLimitItems, 0, "items that are added per second, 0 no limit")
	fs.Int64Var(&m.RateLimitBytes, contract.FlagRateLimitBytes, 0, "bytes of keys and values that are added per second, 0 no limit")
	fs.DurationVar(&m.SkipExpiringWithin, contract.FlagSkipExpiringWithin, 0, "leave out items that expire so soon")
	addConnection(fs, &m.Connection)
	f.routing.add(fs)
}

// addConnection adds the flags that say how memcached is spoken to.
func addConnection(fs *flag.FlagSet, c *contract.Connection) {
	fs.StringVar(&c.TLSDir, contract.FlagTLSDir, "", "speak TLS: a directory with "+contract.CAFile+", and "+contract.CertFile+" and "+contract.KeyFile+" for servers that ask for a certificate")
	fs.StringVar(&c.AuthFile, contract.FlagAuthFile, "", "log in as the first line, user:password, of this file says")
}

// secretError is about the files of a Secret: other files can mend it.
type secretError struct{ err error }

func (e *secretError) Error() string { return reason(e.err) }
func (e *secretError) Unwrap() error { return e.err }

func checkFiles(d memcache.Dialer, usages ...x509.ExtKeyUsage) error {
	if err := d.Check(usages...); err != nil {
		return &secretError{err}
	}
	return nil
}

// check returns the owner function, once the servers' names are known.
func (f *moveFlags) check(ctx context.Context, m *contract.Move) (routing.Owner, error) {
	switch {
	case m.UnreachableTimeout < time.Second:
		return nil, usagef("--%s: at least 1s is needed", contract.FlagUnreachableTimeout)
	case m.RateLimitItems < 0 || m.RateLimitBytes < 0 || m.SkipExpiringWithin < 0:
		return nil, usagef("a limit must not be negative")
	}
	if err := checkFiles(memcache.Dialer{Connection: m.Connection}); err != nil {
		return nil, err
	}
	if err := f.routing.resolve(ctx, m.UnreachableTimeout); err != nil {
		return nil, err
	}
	return f.routing.owner()
}

// migration is one without its source.
func (f *moveFlags) migration(m *contract.Move, owner routing.Owner, progress func(contract.Progress), std IO) *Migration {
	return &Migration{SourceID: m.SourceID, Owner: owner, Servers: f.routing.servers, Dialer: memcache.Dialer{Connection: m.Connection, Settled: true},
		UnreachableTimeout: m.UnreachableTimeout, Limit: Limit{Items: m.RateLimitItems, Bytes: m.RateLimitBytes},
		SkipExpiringWithin: m.SkipExpiringWithin, Progress: progress, Log: std.Err}
}

// runMove runs a command that moves items. Once its flags are parsed there is a
// receipt, whatever happens.
func runMove(ctx context.Context, m *contract.Move, std IO, move func(context.Context, func(contract.Progress)) contract.Receipt) (int, error) {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	progress := progressLines{w: std.Out}
	r := move(ctx, progress.write)
	if err := writeReceipt(m.Receipt, r); err != nil {
		return contract.ExitFailed, fmt.Errorf("write the receipt: %w", err)
	}
	done := r.Added + r.AlreadyPresent + r.Expired + r.Invalidated + r.Rejected
	progress.write(contract.Progress{Phase: contract.PhaseDone, ItemsDone: done, ItemsTotal: r.Found,
		BytesDone: progress.last.BytesDone, BytesTotal: progress.last.BytesTotal, Message: r.Message})
	if r.Reason != "" {
		return r.ExitCode, errors.New(r.Message)
	}
	fmt.Fprintln(std.Err, summary(&r))
	return r.ExitCode, nil
}

// summary is the receipt for people, in one line.
func summary(r *contract.Receipt) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d items found: %d added, %d already present, %d expired, %d invalidated",
		r.Found, r.Added, r.AlreadyPresent, r.Expired, r.Invalidated)
	fmt.Fprintf(&b, "; %d bytes in %.1f s", r.Bytes, r.Seconds[contract.PhaseMoving])
	return b.String()
}
