package drainer

import (
	"context"
	"hash/maphash"
	"os"
	"slices"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/routing"
)

// rebalanceFlags are the arguments of "drainer rebalance".
type rebalanceFlags struct {
	contract.Rebalance
	moveFlags
}

func (f *rebalanceFlags) parse(args []string, std IO) error {
	fs := newFlags("rebalance")
	fs.StringVar(&f.Source, contract.FlagSource, "", "the running server that is looked through, as in --server")
	fs.StringVar(&f.Scratch, contract.FlagScratch, os.TempDir(), "a directory for the list of its keys")
	f.add(fs, &f.Move)
	if err := parse(fs, args, std); err != nil {
		return err
	}
	return noArguments(fs)
}

// runRebalance moves what a running member holds and others own.
func runRebalance(ctx context.Context, args []string, std IO) (int, error) {
	var f rebalanceFlags
	if err := f.parse(args, std); err != nil {
		return 0, err
	}
	return runMove(ctx, &f.Move, std, func(ctx context.Context, progress func(contract.Progress)) contract.Receipt {
		r := f.rebalance(ctx, progress, std)
		r.Reader = contract.ReaderLive
		return r
	})
}

func (f *rebalanceFlags) rebalance(ctx context.Context, progress func(contract.Progress), std IO) contract.Receipt {
	owner, err := f.check(ctx, &f.Move)
	if err == nil {
		err = directory(contract.FlagScratch, f.Scratch)
	}
	var self int
	if err == nil {
		self, err = f.self()
	}
	if err != nil {
		return failedReceipt(f.SourceID, err)
	}
	m := f.migration(&f.Move, owner, progress, std)
	m.Source = &live{
		member: m.Servers[self], self: self, servers: m.Servers, owner: owner,
		dialer: m.Dialer, scratch: f.Scratch, timeout: m.UnreachableTimeout, limit: m.Limit, rest: firstRest,
		waiting: func(name, why string) { m.silent.set(name, why, m.Log) },
		settle:  m.settle, seed: maphash.MakeSeed(),
	}
	return m.Run(ctx)
}

// self is the source's place among the servers.
func (f *rebalanceFlags) self() (int, error) {
	source, err := routing.ParseServer(f.Source)
	if err != nil {
		return 0, usagef("--%s: %v", contract.FlagSource, err)
	}
	self := slices.IndexFunc(f.routing.servers, func(s routing.Server) bool { return s.Address() == source.Address() })
	if self < 0 {
		return 0, usagef("--%s: %s is none of the servers", contract.FlagSource, source.Address())
	}
	return self, nil
}
