package drainer

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/restart"
	"example.com/memcached-operator/drainer/routing"
	"example.com/memcached-operator/drainer/warmfile"
)

// migrateFlags are the arguments of "drainer migrate".
type migrateFlags struct {
	contract.Migrate
	moveFlags
	memcached string
}

func (f *migrateFlags) parse(args []string, std IO) error {
	fs := newFlags("migrate")
	fs.StringVar(&f.Dir, contract.FlagDir, "", "the released volume, only ever read")
	fs.StringVar(&f.Reader, contract.FlagReader, contract.ReaderAuto, "how the volume is read: WarmFile, Restart (starts memcached on a copy), or Auto: Restart where WarmFile doesn't know the layout")
	fs.StringVar(&f.Scratch, contract.FlagScratch, "", "a directory for that copy")
	fs.BoolVar(&f.NeverStarted, contract.FlagNeverStarted, false, "no memcached ever started on the volume, unless its supervisor left a trace there")
	fs.StringVar(&f.memcached, "memcached", "memcached", "the program that Restart starts")
	f.add(fs, &f.Move)
	if err := parse(fs, args, std); err != nil {
		return err
	}
	return noArguments(fs)
}

// runMigrate drains a released volume.
func runMigrate(ctx context.Context, args []string, std IO) (int, error) {
	var f migrateFlags
	if err := f.parse(args, std); err != nil {
		return 0, err
	}
	return runMove(ctx, &f.Move, std, func(ctx context.Context, progress func(contract.Progress)) contract.Receipt {
		return f.migrate(ctx, progress, std)
	})
}

func (f *migrateFlags) migrate(ctx context.Context, progress func(contract.Progress), std IO) contract.Receipt {
	owner, err := f.check(ctx)
	if err != nil {
		return failedReceipt(f.SourceID, err)
	}
	lock, err := lockToRead(ctx, f.Dir, func(format string, args ...any) { fmt.Fprintf(std.Err, "drainer: "+format+"\n", args...) })
	if err != nil {
		return failedReceipt(f.SourceID, err)
	}
	defer lock.Close() // of no file, too
	with := func(name string, open opener) contract.Receipt {
		r := f.read(ctx, open, f.migration(&f.Move, owner, progress, std))
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
	source, err := f.open(open)
	if err != nil {
		return failedReceipt(f.SourceID, err)
	}
	defer source.Close()
	m.Source = source
	return m.Run(ctx)
}

// open the volume, of which nothing has to be left where no memcached ever started.
func (f *migrateFlags) open(open opener) (*volume, error) {
	if f.NeverStarted {
		if untouched, err := warmfile.Untouched(f.Dir); err != nil || untouched {
			return emptyVolume(), err
		}
	}
	return openVolume(f.Dir, open)
}

func (f *migrateFlags) check(ctx context.Context) (routing.Owner, error) {
	switch err := directory(contract.FlagDir, f.Dir); {
	case err != nil:
		return nil, err
	case !slices.Contains([]string{contract.ReaderAuto, contract.ReaderWarmFile, contract.ReaderRestart}, f.Reader):
		return nil, usagef("--%s: %q is not Auto, WarmFile or Restart", contract.FlagReader, f.Reader)
	}
	if f.Reader == contract.ReaderRestart || f.Scratch != "" {
		if err := directory(contract.FlagScratch, f.Scratch); err != nil {
			return nil, err
		}
	}
	return f.moveFlags.check(ctx, &f.Move)
}

// runInstall copies this program to DIR/drainer, complete or not at all, and
// foretells how the member that it is meant for will start.
func runInstall(ctx context.Context, args []string, std IO) error {
	fs := newFlags("install")
	member := supervisor{std: std}
	fs.StringVar(&member.volume, contract.FlagDir, "", "the volume of the member, whose command line follows DIR")
	fs.StringVar(&member.dir, contract.FlagMemoryDir, "", "the directory in memory of the member, if it has one")
	fs.StringVar(&member.terminationLog, contract.FlagTerminationLog, "", "write here whether that member will start cold")
	if err := parse(fs, args, std); err != nil {
		return err
	}
	if fs.NArg() == 0 || (fs.NArg() > 1) != (member.volume != "") {
		return usagef("drainer install needs a directory, and behind it memcached's command line where --%s is set", contract.FlagDir)
	}
	if err := directory("install", fs.Arg(0)); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if member.volume != "" {
		member.command, member.dir = fs.Args()[1:], cmp.Or(member.dir, member.volume)
		member.foretellStart(ctx)
	}
	return installTo(self, fs.Arg(0))
}
