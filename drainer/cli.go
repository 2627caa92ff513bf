package drainer

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"example.com/memcached-operator/drainer/contract"
)

const usageText = `drainer moves the items of a memcached to the servers where clients look for them.

  drainer migrate --dir=DIR --client=CLIENT --server=[NAME=]HOST:PORT…
          read the warm file in DIR, add each item to its owner, write a receipt
  drainer rebalance --source=[NAME=]HOST:PORT --client=CLIENT --server=[NAME=]HOST:PORT…
          look through a running server, and move what others own to them
  drainer serve --dir=DIR [--memory-dir=DIR] --port=PORT -- memcached ARGS…
          run memcached with its warm file in DIR, or in memory; save it on
          SIGTERM; let it take up certificates and logins that change
  drainer ready --port=PORT
          succeed when memcached, run by drainer serve, answers with all its items
  drainer owner --client=CLIENT --server=[NAME=]HOST:PORT…
          read keys from standard input, print each with its owner; with
          --moved --after=[NAME=]HOST:PORT… how many get another one
  drainer install [--dir=DIR --termination-log=FILE] TO [memcached ARGS…]
          copy this program to TO/drainer; say in FILE if memcached will start cold
  drainer help | --version

Each command's flags: drainer COMMAND --help. Exit codes: 0 done, 1 failed (try
again), 2 wrong arguments, 3 the source can't be read, 4 a server does not
answer, 5 a server refused items.
`

// IO is what a command talks to.
type IO struct {
	In       io.Reader
	Out, Err io.Writer
}

// usageError is about the arguments: trying again can't help.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error {
	return &usageError{fmt.Errorf(format, args...)}
}

// errHelp: help was asked for and printed.
var errHelp = errors.New("help")

// Main runs the command line args, without the program's name, and returns the
// exit code. What fails is told in one line on standard error.
func Main(ctx context.Context, args []string, std IO) int {
	code, err := dispatch(ctx, args, std)
	switch {
	case err == nil || errors.Is(err, errHelp):
		return code
	case code == contract.ExitOK:
		code = exitCode(err)
	}
	fmt.Fprintf(std.Err, "drainer: %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
	return code
}

// exitCode is that of a receipt which failed with err.
func exitCode(err error) int {
	return failedReceipt("", err).ExitCode
}

func dispatch(ctx context.Context, args []string, std IO) (int, error) {
	if len(args) == 0 {
		return 0, usagef("no command; see drainer help")
	}
	switch command, rest := args[0], args[1:]; command {
	case "migrate":
		return runMigrate(ctx, rest, std)
	case "rebalance":
		return runRebalance(ctx, rest, std)
	case "serve":
		return runServe(ctx, rest, std)
	case "ready":
		return 0, runReady(ctx, rest, std)
	case "owner":
		return 0, runOwner(ctx, rest, std)
	case "install":
		return 0, runInstall(ctx, rest, std)
	case "help", "--help", "-h", "-help":
		fmt.Fprint(std.Out, usageText)
		return 0, nil
	case "version", "--version", "-version":
		fmt.Fprintln(std.Out, "drainer", version())
		return 0, nil
	default:
		return 0, usagef("unknown command %q; see drainer help", command)
	}
}

// Version is set by the build with -ldflags -X; else the module's is told.
var Version string

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && Version == "" {
		return info.Main.Version
	}
	return Version
}

// newFlags returns an empty set whose errors come back in one line.
func newFlags(command string) *flag.FlagSet {
	fs := flag.NewFlagSet("drainer "+command, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	return fs
}

// parse turns the flag package's errors into usage errors, and prints help.
func parse(fs *flag.FlagSet, args []string, std IO) error {
	err := fs.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(std.Out, "%s:\n", fs.Name())
		fs.SetOutput(std.Out)
		fs.PrintDefaults()
		return errHelp
	}
	if err != nil {
		return usagef("%s: %v", fs.Name(), err)
	}
	return nil
}

// noArguments refuses what isn't a flag.
func noArguments(fs *flag.FlagSet) error {
	if fs.NArg() > 0 {
		return usagef("%s: unexpected argument %q", fs.Name(), fs.Arg(0))
	}
	return nil
}

// directory refuses what isn't one.
func directory(name, path string) error {
	info, err := os.Stat(path)
	switch {
	case path == "":
		return usagef("--%s is needed", name)
	case err != nil:
		return usagef("--%s: %v", name, err)
	case !info.IsDir():
		return usagef("--%s: %s is not a directory", name, path)
	}
	return nil
}
