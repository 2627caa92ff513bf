package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"example.com/memcached-operator/drainer/commandline"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/move"
	"example.com/memcached-operator/drainer/routing"
	"example.com/memcached-operator/drainer/volume"
)

// copyFlags are the arguments of "drainer copy".
type copyFlags struct {
	contract.Copy
	transferFlags
	exportPort   int
	untilStopped bool
}

func (f *copyFlags) parse(line []string, std commandline.IO) error {
	fs := commandline.NewFlags("copy")
	fs.Func(contract.FlagFrom, "what is copied: "+contract.FromMemcached+"HOST:PORT[,HOST:PORT…], "+contract.FromDiscovery+"HOST:PORT (an endpoint of ElastiCache or Memorystore) or "+contract.FromVolumes+"DIR[,DIR…]; once or more often", func(from string) error {
		f.From = append(f.From, from)
		return nil
	})
	fs.StringVar(&f.FromClient, contract.FlagFromClient, "", "the client library of the source's applications, if the sources are in its order: items where it doesn't look are left out")
	fs.StringVar(&f.FromKeyPrefix, contract.FlagFromKeyPrefix, "", "what that client writes before its keys and doesn't hash")
	fs.IntVar(&f.exportPort, contract.FlagFromExportPort, 0, "the port at which the sources' supervisors stream items, 0 none: then memcached is asked for all of them")
	fs.StringVar(&f.FromConnection.TLSDir, contract.FlagFromTLSDir, "", "as --"+contract.FlagTLSDir+", for the sources")
	fs.StringVar(&f.FromConnection.AuthFile, contract.FlagFromAuthFile, "", "as --"+contract.FlagAuthFile+", for the sources")
	fs.IntVar(&f.Passes, contract.FlagPasses, 0, "passes over the source at most, 0 until one brings less than a hundredth")
	fs.BoolVar(&f.AsMuchAsFits, contract.FlagAsMuchAsFits, false, "if the servers are too small, copy the most recently used items, until there is no room")
	fs.BoolVar(&f.Marks, contract.FlagMarks, false, "leave out what the servers' routers have marked as changed by a client: they run with --"+contract.FlagOnMiss)
	fs.BoolVar(&f.Count, contract.FlagCount, false, "of volumes: only say what each server would get, in MiB, and whether it has room")
	fs.Func(contract.FlagBesides, "of volumes: MiB that each server gets from others, N[,N…] in the servers' order", func(text string) (err error) {
		f.Besides, err = contract.ParseNumbers(text)
		return err
	})
	fs.StringVar(&f.Resume, contract.FlagResume, "", "of volumes: a name for this copy, by which the servers remember how far it is: an interrupted one goes on there")
	fs.BoolVar(&f.untilStopped, contract.FlagUntilStopped, false, "go on, pass after pass, until a signal")
	fs.StringVar(&f.Until.File, contract.FlagUntilFile, "", "go on, pass after pass, until this file says so; then make a last pass")
	fs.StringVar(&f.Until.When, contract.FlagUntilWhen, "", "the text of that file")
	fs.StringVar(&f.Scratch, contract.FlagScratch, os.TempDir(), "a directory for the lists of keys")
	fs.Var(&f.routing.servers, "to", "the same as --"+contract.FlagServer)
	f.add(fs, &f.Transfer)
	if err := commandline.ParseFlags(fs, line, std); err != nil {
		return err
	}
	receiptElsewhere(fs, &f.Transfer)
	return commandline.NoArguments(fs)
}

// receiptElsewhere lets a person leave out --receipt: outside of a container there is no file for it.
func receiptElsewhere(fs *flag.FlagSet, m *contract.Transfer) {
	given := false
	fs.Visit(func(f *flag.Flag) { given = given || f.Name == contract.FlagReceipt })
	if _, err := os.Stat(m.Receipt); !given && errors.Is(err, os.ErrNotExist) {
		m.Receipt = os.DevNull
	}
}

// runCopy fills servers from another cache.
func runCopy(ctx context.Context, line []string, std commandline.IO) (int, error) {
	var f copyFlags
	if err := f.parse(line, std); err != nil {
		return 0, err
	}
	return runTransfer(ctx, &f.Transfer, std, func(ctx context.Context, progress func(contract.Progress)) contract.Receipt {
		r, err := f.copy(ctx, progress, std)
		if err != nil {
			return move.Failed(f.SourceID, err)
		}
		return r
	})
}

// copy returns an error if it has read nothing.
func (f *copyFlags) copy(ctx context.Context, progress func(contract.Progress), std commandline.IO) (r contract.Receipt, err error) {
	if err := f.checkBounds(); err != nil {
		return r, err
	}
	owner, err := f.check(ctx, &f.Transfer)
	if err == nil {
		err = commandline.Directory(contract.FlagScratch, f.Scratch)
	}
	if err == nil {
		err = (memcache.Dialer{Connection: f.FromConnection}).CheckFiles()
	}
	if err != nil {
		return r, err
	}
	c := move.Copy{Dialer: memcache.Dialer{Connection: f.FromConnection, AnyServer: true}, Client: f.routing.client, KeyPrefix: f.routing.keyPrefix,
		ExportPort: f.exportPort, Scratch: f.Scratch, Passes: f.Passes, AsMuchAsFits: f.AsMuchAsFits, Marks: f.Marks, Until: f.Until, UntilStopped: f.untilStopped,
		Count: f.Count, Besides: f.Besides, Resume: f.Resume}
	var dirs []string
	if c.Sources, dirs, err = sources(ctx, f.From, c.Dialer, f.UnreachableTimeout); err != nil {
		return r, err
	}
	if f.FromClient != "" && len(dirs) == 0 {
		from := routingFlags{client: f.FromClient, keyPrefix: f.FromKeyPrefix, servers: c.Sources}
		if err := from.resolve(ctx, f.UnreachableTimeout); err != nil {
			return r, err
		}
		if c.Looks, err = from.owner(); err != nil {
			return r, err
		}
	}
	volumes, closeVolumes, err := openVolumes(ctx, dirs, std)
	defer closeVolumes()
	if err != nil {
		return r, err
	}
	if volumes != nil {
		c.Volumes = volumes
	} else if f.Count || f.Besides != nil || f.Resume != "" {
		return r, commandline.Usagef("--%s, --%s and --%s are for %s", contract.FlagCount, contract.FlagBesides, contract.FlagResume, contract.FromVolumes)
	}
	return f.engine(&f.Transfer, owner, progress, std).Copy(ctx, c), nil
}

func (f *copyFlags) checkBounds() error {
	goesOn := f.Until.File != "" || f.untilStopped
	switch {
	case len(f.From) == 0:
		return commandline.Usagef("--%s is needed", contract.FlagFrom)
	case f.exportPort < 0 || f.exportPort > 65535:
		return commandline.Usagef("--%s: %d is not a port", contract.FlagFromExportPort, f.exportPort)
	case f.Passes < 0:
		return commandline.Usagef("a limit must not be negative")
	case (f.Until.File == "") != (f.Until.When == ""):
		return commandline.Usagef("--%s and --%s go together", contract.FlagUntilFile, contract.FlagUntilWhen)
	case goesOn && f.Passes > 0:
		return commandline.Usagef("--%s ends a copy that was told to go on", contract.FlagPasses)
	case f.Besides != nil && len(f.Besides) != len(f.routing.servers):
		return commandline.Usagef("--%s: %d numbers for %d servers", contract.FlagBesides, len(f.Besides), len(f.routing.servers))
	case f.FromClient == "" && f.FromKeyPrefix != "":
		return commandline.Usagef("--%s needs --%s", contract.FlagFromKeyPrefix, contract.FlagFromClient)
	}
	return nil
}

// noSourceError is about an endpoint for discovery.
type noSourceError struct{ err error }

func (e *noSourceError) Error() string { return e.err.Error() }
func (e *noSourceError) Unwrap() error { return e.err }

// Failure returns the reason and the exit code: no retry helps.
func (e *noSourceError) Failure() (reason string, exitCode int) {
	return contract.ReasonNoSource, contract.ExitUsage
}

// mostSources bounds the sources of a copy.
const mostSources = 512

// sources returns the servers, or the directories, that the values of a flag name.
func sources(ctx context.Context, from []string, d memcache.Dialer, patience time.Duration) (servers []routing.Server, dirs []string, err error) {
	for _, text := range from {
		if list, is := strings.CutPrefix(text, contract.FromMemcached); is {
			named, err := move.Named(list)
			if err != nil {
				return nil, nil, &commandline.UsageError{Err: err}
			}
			servers = append(servers, named...)
		} else if endpoint, is := strings.CutPrefix(text, contract.FromDiscovery); is {
			found, err := discovered(ctx, endpoint, d, patience)
			if err != nil {
				return nil, nil, err
			}
			servers = append(servers, found...)
		} else if list, is := strings.CutPrefix(text, contract.FromVolumes); is {
			dirs = append(dirs, strings.Split(list, ",")...)
		} else {
			return nil, nil, commandline.Usagef("%q begins with none of %s, %s and %s", text, contract.FromMemcached, contract.FromDiscovery, contract.FromVolumes)
		}
	}
	switch {
	case len(servers) > 0 && len(dirs) > 0:
		return nil, nil, commandline.Usagef("memcacheds and volumes can't be copied together")
	case len(servers)+len(dirs) > mostSources:
		return nil, nil, &noSourceError{fmt.Errorf("%d sources, where %d are the most", len(servers)+len(dirs), mostSources)}
	}
	seen := map[string]bool{}
	for _, s := range servers {
		if seen[s.Address()] {
			return nil, nil, commandline.Usagef("the source %s is named twice", s.Address())
		}
		seen[s.Address()] = true
	}
	return servers, dirs, nil
}

// discovered asks an endpoint for discovery.
func discovered(ctx context.Context, endpoint string, d memcache.Dialer, patience time.Duration) (servers []routing.Server, err error) {
	if _, err := routing.ParseServer(endpoint); err != nil {
		return nil, &commandline.UsageError{Err: err}
	}
	var addresses []string
	err = memcache.Insist(ctx, patience, func(string) {}, func(timeout time.Duration) error {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		conn, err := d.Dial(ctx, endpoint)
		if err != nil {
			return err
		}
		defer conn.Close()
		defer context.AfterFunc(ctx, func() { conn.Close() })()
		addresses, err = conn.Cluster()
		if errors.Is(err, memcache.ErrNoCluster) {
			err = fmt.Errorf("%w: %w", memcache.ErrProtocol, err)
		}
		return err
	})
	if err != nil {
		err = fmt.Errorf("the endpoint %s: %w", endpoint, err)
		if errors.Is(err, memcache.ErrNoCluster) {
			return nil, &noSourceError{err}
		}
		return nil, err
	}
	for _, a := range addresses {
		s, err := routing.ParseServer(a)
		if err != nil {
			return nil, &noSourceError{err}
		}
		servers = append(servers, s)
	}
	return servers, nil
}

// openVolumes opens volumes read-only; nil if there are none.
func openVolumes(ctx context.Context, dirs []string, std commandline.IO) (all item.Layered, closeAll func(), err error) {
	var closes []func() error
	closeAll = func() {
		for _, do := range closes {
			_ = do()
		}
	}
	var several volume.Several
	for _, dir := range dirs {
		if err := commandline.Directory(contract.FlagFrom, dir); err != nil {
			return nil, closeAll, err
		}
		lock, err := volume.LockToRead(ctx, dir, std.Logf)
		if err != nil {
			return nil, closeAll, err
		}
		closes = append(closes, lock.Close)
		source, err := volume.OpenAll(dir, false)
		if err != nil {
			return nil, closeAll, err
		}
		closes = append(closes, source.Close)
		several = append(several, source)
	}
	if len(several) == 0 {
		return nil, closeAll, nil
	}
	return several, closeAll, nil
}
