package cli

import (
	"cmp"
	"context"
	"net"
	"os"
	"slices"
	"strconv"
	"time"

	"example.com/memcached-operator/drainer/commandline"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/move"
	"example.com/memcached-operator/drainer/routing"
)

// moveFlags are the arguments of "drainer move".
type moveFlags struct {
	contract.Move
	transferFlags
	discard    serverList
	exportPort int
}

func (f *moveFlags) parse(line []string, std commandline.IO) error {
	fs := commandline.NewFlags("move")
	fs.StringVar(&f.Source, contract.FlagSource, "", "the running server whose items are moved, as in --server; all of its items if it is no --server")
	fs.DurationVar(&f.Patience, contract.FlagPatience, 0, "how long, from when they are told, clients may still use an earlier list: a source that is no --server waits for the last of them, another for the items that they store there")
	fs.StringVar(&f.Scratch, contract.FlagScratch, os.TempDir(), "a directory for the list of its keys")
	fs.IntVar(&f.exportPort, contract.FlagExportPort, 0, "the port at which the source's supervisor streams items, 0 none: then memcached is asked for all of them")
	fs.StringVar(&f.Begin.File, contract.FlagBeginFile, "", "connect to all servers, and begin when this file says so")
	fs.StringVar(&f.Begin.When, contract.FlagBeginWhen, "", "the text of that file")
	fs.DurationVar(&f.Begin.Within, contract.FlagBeginWithin, time.Minute, "how long to wait for it")
	fs.BoolVar(&f.Begin.Follow, contract.FlagFollow, false, "then wait, for as long as --patience at most, until half of the clients' requests for the items go elsewhere")
	fs.BoolVar(&f.Leases, contract.FlagLeases, false, "move each key under its lease: only routers use the members, and all are in state move")
	fs.Var(&f.discard, contract.FlagDiscard, "a server, as in --server, that is lost: the source deletes the items that it owns")
	f.add(fs, &f.Transfer)
	if err := commandline.ParseFlags(fs, line, std); err != nil {
		return err
	}
	return commandline.NoArguments(fs)
}

// runMove moves the items of a running member that others own.
func runMove(ctx context.Context, line []string, std commandline.IO) (int, error) {
	var f moveFlags
	if err := f.parse(line, std); err != nil {
		return 0, err
	}
	return runTransfer(ctx, &f.Transfer, std, func(ctx context.Context, progress func(contract.Progress)) contract.Receipt {
		r := f.move(ctx, progress, std)
		r.Reader = cmp.Or(r.Reader, contract.ReaderLive)
		return r
	})
}

func (f *moveFlags) move(ctx context.Context, progress func(contract.Progress), std commandline.IO) contract.Receipt {
	owner, err := f.check(ctx, &f.Transfer)
	if err == nil {
		err = commandline.Directory(contract.FlagScratch, f.Scratch)
	}
	var source routing.Server
	var self int
	var lost []bool
	if err == nil {
		source, self, err = f.source()
	}
	if err == nil {
		lost, err = f.lost(self)
	}
	if err == nil {
		err = f.checkBounds()
	}
	if err != nil {
		return move.Failed(f.SourceID, err)
	}
	e := f.engine(&f.Transfer, owner, progress, std)
	e.Lost, e.Leases = lost, f.Leases
	if f.Begin.File != "" {
		e.Begin = &f.Begin
	}
	if f.exportPort != 0 {
		e.Export = &move.Export{Client: f.routing.client, KeyPrefix: f.routing.keyPrefix,
			Address: net.JoinHostPort(source.Host, strconv.Itoa(f.exportPort))}
	}
	if self == leaving {
		return e.MoveFromLeaving(ctx, source, f.Scratch, f.Patience)
	}
	return e.MoveFrom(ctx, self, f.Scratch, f.Patience)
}

func (f *moveFlags) checkBounds() error {
	switch {
	case f.exportPort < 0 || f.exportPort > 65535:
		return commandline.Usagef("--%s: %d is not a port", contract.FlagExportPort, f.exportPort)
	case f.Patience < 0 || f.Begin.Within < 0:
		return commandline.Usagef("a limit must not be negative")
	case f.Begin.Follow && f.Begin.File == "":
		return commandline.Usagef("--%s needs --%s", contract.FlagFollow, contract.FlagBeginFile)
	case (f.Begin.File == "") != (f.Begin.When == ""):
		return commandline.Usagef("--%s and --%s go together", contract.FlagBeginFile, contract.FlagBeginWhen)
	}
	waits := f.Patience
	if f.Begin.File != "" {
		waits += f.Begin.Within
	}
	if f.Deadline > 0 && waits >= f.Deadline {
		return commandline.Usagef("--%s and --%s must be shorter than --%s", contract.FlagPatience, contract.FlagBeginWithin, contract.FlagDeadline)
	}
	return nil
}

// lost tells for each server whether it is lost.
func (f *moveFlags) lost(self int) ([]bool, error) {
	lost := make([]bool, len(f.routing.servers))
	for _, d := range f.discard {
		i := slices.IndexFunc(f.routing.servers, func(s routing.Server) bool { return s.Address() == d.Address() })
		if i < 0 || i == self {
			return nil, commandline.Usagef("--%s: %s is none of the other servers", contract.FlagDiscard, d.Address())
		}
		lost[i] = true
	}
	return lost, nil
}

// leaving is the index of a source that is none of the servers.
const leaving = -1

// source returns the server that items are moved from, and its index among the servers. A source with the
// name of a server but another address is refused, because it may be that server.
func (f *moveFlags) source() (source routing.Server, self int, err error) {
	if source, err = routing.ParseServer(f.Source); err != nil {
		return source, 0, commandline.Usagef("--%s: %v", contract.FlagSource, err)
	}
	for i, s := range f.routing.servers {
		switch {
		case s.Address() == source.Address():
			return s, i, nil
		case source.Name != "" && s.Name == source.Name:
			return source, 0, commandline.Usagef("--%s: %s has the name of the server at %s", contract.FlagSource, source.Address(), s.Address())
		}
	}
	return source, leaving, nil
}
