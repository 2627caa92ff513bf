package cli

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"example.com/memcached-operator/drainer/commandline"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/move"
	"example.com/memcached-operator/drainer/pace"
	"example.com/memcached-operator/drainer/routing"
)

// defaultUnreachable is the default of --unreachable-timeout.
const defaultUnreachable = 5 * time.Minute

// transferFlags are common to the commands that move items.
type transferFlags struct{ routing routingFlags }

func (f *transferFlags) add(fs *flag.FlagSet, m *contract.Transfer) {
	fs.StringVar(&m.SourceID, contract.FlagSourceID, "", "goes into the receipt: of a drain the claim's UID, of a move its claim and its ring")
	fs.DurationVar(&m.UnreachableTimeout, contract.FlagUnreachableTimeout, defaultUnreachable, "how long a server may not answer")
	fs.DurationVar(&m.Deadline, contract.FlagDeadline, 0, "how long all of it may take, 0 as long as it takes")
	fs.StringVar(&m.Receipt, contract.FlagReceipt, contract.TerminationLog, "the file that the receipt is written to")
	fs.Int64Var(&m.RateLimitItems, contract.FlagRateLimitItems, 0, "items that are added per second, 0 no limit")
	fs.Int64Var(&m.RateLimitBytes, contract.FlagRateLimitBytes, 0, "bytes of keys and values that are added per second, 0 no limit")
	fs.DurationVar(&m.SkipExpiringWithin, contract.FlagSkipExpiringWithin, 0, "leave out items that expire so soon")
	addConnection(fs, &m.Connection)
	f.routing.add(fs)
}

// addConnection adds the flags for TLS and logins.
func addConnection(fs *flag.FlagSet, c *contract.Connection) {
	fs.StringVar(&c.TLSDir, contract.FlagTLSDir, "", "speak TLS: a directory with "+contract.CAFile+", and "+contract.CertFile+" and "+contract.KeyFile+" for servers that ask for a certificate")
	fs.StringVar(&c.AuthFile, contract.FlagAuthFile, "", "log in as the first line, user:password, of this file says")
}

// check resolves the servers' names and returns the owner function.
func (f *transferFlags) check(ctx context.Context, m *contract.Transfer) (routing.Owner, error) {
	switch {
	case m.UnreachableTimeout < time.Second:
		return nil, commandline.Usagef("--%s: at least 1s is needed", contract.FlagUnreachableTimeout)
	case m.Deadline < 0 || m.RateLimitItems < 0 || m.RateLimitBytes < 0 || m.SkipExpiringWithin < 0:
		return nil, commandline.Usagef("a limit must not be negative")
	}
	if err := (memcache.Dialer{Connection: m.Connection}).CheckFiles(); err != nil {
		return nil, err
	}
	if err := f.routing.resolve(ctx, m.UnreachableTimeout); err != nil {
		return nil, err
	}
	return f.routing.owner()
}

// engine returns a move engine without its source.
func (f *transferFlags) engine(m *contract.Transfer, owner routing.Owner, progress func(contract.Progress), std commandline.IO) *move.Engine {
	return &move.Engine{SourceID: m.SourceID, Owner: owner, Servers: f.routing.servers, Dialer: memcache.Dialer{Connection: m.Connection, Settled: true},
		UnreachableTimeout: m.UnreachableTimeout, Limit: pace.Limit{Items: m.RateLimitItems, Bytes: m.RateLimitBytes},
		SkipExpiringWithin: m.SkipExpiringWithin, Progress: progress, Log: std.Err}
}

// runTransfer runs a command that moves items. If the flags were parsed, it writes a receipt, whatever
// happens.
func runTransfer(ctx context.Context, m *contract.Transfer, std commandline.IO, run func(context.Context, func(contract.Progress)) contract.Receipt) (int, error) {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	progress := progressLines{w: std.Out}
	r := withinDeadline(ctx, m, func(ctx context.Context) contract.Receipt { return run(ctx, progress.write) })
	if err := writeReceipt(m.Receipt, r); err != nil {
		return contract.ExitFailed, fmt.Errorf("write the receipt: %w", err)
	}
	done := r.Added + r.AlreadyPresent + r.Expired + r.Invalidated + r.NoTextForm + r.Rejected
	progress.write(contract.Progress{Phase: contract.PhaseDone, ItemsDone: done, ItemsTotal: r.Found,
		BytesDone: progress.last.BytesDone, BytesTotal: progress.last.BytesTotal, Message: r.Message})
	if r.Reason != "" {
		return r.ExitCode, errors.New(r.Message)
	}
	fmt.Fprintln(std.Err, r.Summary())
	return r.ExitCode, nil
}

// progressLines writes JSON lines and remembers the last one.
type progressLines struct {
	w    io.Writer
	mu   sync.Mutex
	last contract.Progress
}

func (l *progressLines) write(p contract.Progress) {
	b, err := json.Marshal(p)
	if err != nil {
		return // no value of this type causes an error
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = p
	// The process that reads the lines may have ended; only the receipt matters.
	_, _ = l.w.Write(append(b, '\n'))
}

// writeReceipt overwrites path in place, because the kubelet has created that file and keeps it open.
func writeReceipt(path string, r contract.Receipt) error {
	b, err := r.Marshal()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Close())
}
