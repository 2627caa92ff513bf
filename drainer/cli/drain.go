package cli

import (
	"context"

	"example.com/memcached-operator/drainer/commandline"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/move"
	"example.com/memcached-operator/drainer/volume"
)

// drainFlags are the arguments of "drainer drain".
type drainFlags struct {
	contract.Drain
	transferFlags
}

func (f *drainFlags) parse(line []string, std commandline.IO) error {
	fs := commandline.NewFlags("drain")
	fs.StringVar(&f.Dir, contract.FlagDir, "", "the departed member's volume, only ever read")
	fs.BoolVar(&f.NeverStarted, contract.FlagNeverStarted, false, "no memcached ever started on the volume, unless its supervisor left a trace there")
	f.add(fs, &f.Transfer)
	if err := commandline.ParseFlags(fs, line, std); err != nil {
		return err
	}
	return commandline.NoArguments(fs)
}

// runDrain drains a departed member's volume.
func runDrain(ctx context.Context, line []string, std commandline.IO) (int, error) {
	var f drainFlags
	if err := f.parse(line, std); err != nil {
		return 0, err
	}
	return runTransfer(ctx, &f.Transfer, std, func(ctx context.Context, progress func(contract.Progress)) contract.Receipt {
		r, err := f.drain(ctx, progress, std)
		if err != nil {
			r = move.Failed(f.SourceID, err)
		}
		r.Reader = contract.ReaderWarmFile
		return r
	})
}

// drain returns an error if it has read nothing.
func (f *drainFlags) drain(ctx context.Context, progress func(contract.Progress), std commandline.IO) (r contract.Receipt, err error) {
	if err := commandline.Directory(contract.FlagDir, f.Dir); err != nil {
		return r, err
	}
	owner, err := f.check(ctx, &f.Transfer)
	if err != nil {
		return r, err
	}
	lock, err := volume.LockToRead(ctx, f.Dir, std.Logf)
	if err != nil {
		return r, err
	}
	defer lock.Close() // also if there is no lock file
	source, err := volume.OpenAll(f.Dir, f.NeverStarted)
	if err != nil {
		return r, err
	}
	defer source.Close()
	e := f.engine(&f.Transfer, owner, progress, std)
	e.Source = source
	return e.Run(ctx), nil
}
