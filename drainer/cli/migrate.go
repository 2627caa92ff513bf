package cli

import (
	"context"

	"example.com/memcached-operator/drainer/args"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/move"
	"example.com/memcached-operator/drainer/volume"
)

// migrateFlags are the arguments of "drainer migrate".
type migrateFlags struct {
	contract.Migrate
	moveFlags
}

func (f *migrateFlags) parse(line []string, std args.IO) error {
	fs := args.NewFlags("migrate")
	fs.StringVar(&f.Dir, contract.FlagDir, "", "the departed member's volume, only ever read")
	fs.BoolVar(&f.NeverStarted, contract.FlagNeverStarted, false, "no memcached ever started on the volume, unless its supervisor left a trace there")
	f.add(fs, &f.Move)
	if err := args.Parse(fs, line, std); err != nil {
		return err
	}
	return args.None(fs)
}

// runMigrate drains a departed member's volume.
func runMigrate(ctx context.Context, line []string, std args.IO) (int, error) {
	var f migrateFlags
	if err := f.parse(line, std); err != nil {
		return 0, err
	}
	return runMove(ctx, &f.Move, std, func(ctx context.Context, progress func(contract.Progress)) contract.Receipt {
		r, err := f.migrate(ctx, progress, std)
		if err != nil {
			r = move.Failed(f.SourceID, err)
		}
		r.Reader = contract.ReaderWarmFile
		return r
	})
}

// migrate returns an error if nothing was read.
func (f *migrateFlags) migrate(ctx context.Context, progress func(contract.Progress), std args.IO) (r contract.Receipt, err error) {
	if err := args.Directory(contract.FlagDir, f.Dir); err != nil {
		return r, err
	}
	owner, err := f.check(ctx, &f.Move)
	if err != nil {
		return r, err
	}
	lock, err := volume.LockToRead(ctx, f.Dir, std.Logf)
	if err != nil {
		return r, err
	}
	defer lock.Close() // of no file, too
	source, err := volume.OpenAll(f.Dir, f.NeverStarted)
	if err != nil {
		return r, err
	}
	defer source.Close()
	e := f.engine(&f.Move, owner, progress, std)
	e.Source = source
	return e.Run(ctx), nil
}
