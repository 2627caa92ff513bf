package drainer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/restart"
	"example.com/memcached-operator/drainer/routing"
	"example.com/memcached-operator/drainer/warmfile"
)

// defaultUnreachable is how long a survivor may not answer.
const defaultUnreachable = 5 * time.Minute

// migrateFlags are the arguments of "drainer migrate".
type migrateFlags struct {
	contract.Migrate
	routing   routingFlags
	memcached string
}

func (f *migrateFlags) parse(args []string, std IO) error {
	fs := newFlags("migrate")
	fs.StringVar(&f.Dir, contract.FlagDir, "", "the released volume, only ever read")
	fs.StringVar(&f.SourceID, contract.FlagSourceID, "", "goes into the receipt: the claim's UID")
	fs.DurationVar(&f.UnreachableTimeout, contract.FlagUnreachableTimeout, defaultUnreachable, "how long a server may not answer")
	fs.StringVar(&f.Receipt, contract.FlagReceipt, contract.TerminationLog, "the file that the receipt is written to")
	fs.StringVar(&f.Reader, contract.FlagReader, contract.ReaderAuto, "how the volume is read: WarmFile, Restart (starts memcached on a copy), or Auto: Restart where WarmFile doesn't know the layout")
	fs.StringVar(&f.Scratch, contract.FlagScratch, "", "a directory for that copy")
	fs.StringVar(&f.memcached, "memcached", "memcached", "the program that Restart starts")
	fs.Int64Var(&f.RateLimitItems, contract.FlagRateLimitItems, 0, "items that are added per second, 0 no limit")
	fs.Int64Var(&f.RateLimitBytes, contract.FlagRateLimitBytes, 0, "bytes of keys and values that are added per second, 0 no limit")
	fs.DurationVar(&f.SkipExpiringWithin, contract.FlagSkipExpiringWithin, 0, "leave out items that expire so soon")
	f.routing.add(fs)
	if err := parse(fs, args, std); err != nil {
		return err
	}
	return noArguments(fs)
}

// runMigrate drains a released volume. Once the flags are parsed there is a
// receipt, whatever happens.
func runMigrate(ctx context.Context, args []string, std IO) (int, error) {
	var f migrateFlags
	if err := f.parse(args, std); err != nil {
		return 0, err
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	progress := progressLines{w: std.Out}
	r := f.migrate(ctx, progress.write, std)
	if err := writeReceipt(f.Receipt, r); err != nil {
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

func (f *migrateFlags) migrate(ctx context.Context, progress func(contract.Progress), std IO) contract.Receipt {
	owner, err := f.check(ctx)
	if err != nil {
		failed := newReceipt(f.SourceID)
		failReceipt(&failed, err)
		return failed
	}
	lock, err := lockToRead(ctx, f.Dir, func(format string, args ...any) { fmt.Fprintf(std.Err, "drainer: "+format+"\n", args...) })
	if err != nil {
		failed := newReceipt(f.SourceID)
		failReceipt(&failed, err)
		return failed
	}
	defer lock.Close() // of no file, too
	with := func(name string, open opener) contract.Receipt {
		r := f.read(ctx, open, &Migration{SourceID: f.SourceID, Owner: owner, Servers: f.routing.servers,
			UnreachableTimeout: f.UnreachableTimeout, Limit: Limit{Items: f.RateLimitItems, Bytes: f.RateLimitBytes},
			SkipExpiringWithin: f.SkipExpiringWithin, Progress: progress, Log: std.Err})
		r.Reader = name
		return r
	}
	restarted := func(dir string) (reader, error) {
		return restart.Open(dir, restart.Options{Scratch: f.Scratch, Memcached: f.memcached, Log: std.Err})
	}
	if f.Reader == contract.ReaderRestart {
		return with(contract.ReaderRestart, restarted)
	}
	direct := with(contract.ReaderWarmFile, openWarmFile)
	if f.Reader != contract.ReaderAuto || f.Scratch == "" || direct.Reason != string(warmfile.ReasonUnknownLayout) {
		return direct
	}
	// What the direct reader moved had passed its checks; it is found present.
	fmt.Fprintf(std.Err, "memcached itself is asked for the items: %s\n", direct.Message)
	asked := with(contract.ReaderRestart, restarted)
	if asked.ExitCode == contract.ExitUnrecoverable {
		direct.Message += "; nor by a restart: " + asked.Message
		return direct
	}
	return asked
}

// read migrates what open finds on the volume.
func (f *migrateFlags) read(ctx context.Context, open opener, m *Migration) contract.Receipt {
	source, err := openVolume(f.Dir, open)
	if err != nil {
		failed := newReceipt(f.SourceID)
		failReceipt(&failed, err)
		return failed
	}
	defer source.Close()
	m.Source = source
	return m.Run(ctx)
}

func (f *migrateFlags) check(ctx context.Context) (routing.Owner, error) {
	switch err := directory(contract.FlagDir, f.Dir); {
	case err != nil:
		return nil, err
	case f.UnreachableTimeout < time.Second:
		return nil, usagef("--%s: at least 1s is needed", contract.FlagUnreachableTimeout)
	case !slices.Contains([]string{contract.ReaderAuto, contract.ReaderWarmFile, contract.ReaderRestart}, f.Reader):
		return nil, usagef("--%s: %q is not Auto, WarmFile or Restart", contract.FlagReader, f.Reader)
	case f.RateLimitItems < 0 || f.RateLimitBytes < 0 || f.SkipExpiringWithin < 0:
		return nil, usagef("a limit must not be negative")
	}
	if f.Reader == contract.ReaderRestart || f.Scratch != "" {
		if err := directory(contract.FlagScratch, f.Scratch); err != nil {
			return nil, err
		}
	}
	if err := f.routing.resolve(ctx, f.UnreachableTimeout); err != nil {
		return nil, err
	}
	return f.routing.owner()
}

// summary is the receipt for people, in one line.
func summary(r *contract.Receipt) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d items found: %d added, %d already present, %d expired, %d invalidated",
		r.Found, r.Added, r.AlreadyPresent, r.Expired, r.Invalidated)
	fmt.Fprintf(&b, "; %d bytes in %.1f s", r.Bytes, r.Seconds[contract.PhaseMoving])
	return b.String()
}

// runInstall copies this program to DIR/drainer, complete or not at all.
func runInstall(args []string, std IO) error {
	fs := newFlags("install")
	if err := parse(fs, args, std); err != nil {
		return err
	}
	if fs.NArg() != 1 {
		return usagef("drainer install needs one argument, the directory")
	}
	if err := directory("install", fs.Arg(0)); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return installTo(self, fs.Arg(0))
}
