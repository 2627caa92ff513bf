// Package cli has the drainer's commands, one file each: flags in, exit code out.
package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"example.com/memcached-operator/drainer/commandline"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/move"
	"example.com/memcached-operator/version"
)

const usageText = `drainer supervises a memcached, and moves items to the servers where clients look for them.

  drainer drain --dir=DIR --client=CLIENT --server=[NAME=]HOST:PORT…
          read the warm file in DIR, add each item to its owner, write a receipt
  drainer move --source=[NAME=]HOST:PORT --client=CLIENT --server=[NAME=]HOST:PORT…
          look through a running server, and move what others own to them
  drainer copy --from=memcached:HOST:PORT…|discovery:HOST:PORT|volumes:DIR… --client=CLIENT --to=[NAME=]HOST:PORT…
          fill servers from another cache, which is only read
  drainer supervise --dir=DIR [--memory-dir=DIR] --port=PORT -- memcached ARGS…
          run memcached with its warm file in DIR, or in memory; save it on
          SIGTERM; reload certificates and logins that change
  drainer ready --port=PORT
          succeed when memcached, run by drainer supervise, answers with all its items
  drainer owner --client=CLIENT --server=[NAME=]HOST:PORT…
          read keys from standard input, print each with its owner; with
          --moved --after=[NAME=]HOST:PORT… how many get another one
  drainer route --client=CLIENT --server=[NAME=]HOST:PORT… | --ring-file=FILE
          be one address for all members: ask each key's owner, for any application
  drainer install [--dir=DIR --termination-log=FILE] TO [memcached ARGS…]
          copy this program to TO/drainer; say in FILE if memcached will start cold
  drainer help
          print this
  drainer --version
          print the version, the commit, and the Go release that built it

Each command's flags: drainer COMMAND --help. Exit codes: 0 done, 1 failed (try
again), 2 wrong arguments, 3 the source can't be read, 4 a server does not
answer, 5 a server refused items.
`

// Main runs the command line, given without the program's name, and returns the exit code. Main writes an
// error to standard error, in one line.
func Main(ctx context.Context, line []string, std commandline.IO) int {
	code, err := dispatch(ctx, line, std)
	switch {
	case err == nil || errors.Is(err, commandline.ErrHelp):
		return code
	case code == contract.ExitOK:
		code = exitCode(err)
	}
	fmt.Fprintf(std.Err, "drainer: %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
	return code
}

// exitCode returns the exit code for err.
func exitCode(err error) int {
	return move.Failed("", err).ExitCode
}

func dispatch(ctx context.Context, line []string, std commandline.IO) (int, error) {
	if len(line) == 0 {
		return 0, commandline.Usagef("no command; see drainer help")
	}
	switch command, rest := line[0], line[1:]; command {
	case "drain":
		return runDrain(ctx, rest, std)
	case "move":
		return runMove(ctx, rest, std)
	case "copy":
		return runCopy(ctx, rest, std)
	case "supervise":
		return runServe(ctx, rest, std)
	case "ready":
		return 0, runReady(ctx, rest, std)
	case "owner":
		return 0, runOwner(ctx, rest, std)
	case "route":
		return 0, runRoute(ctx, rest, std)
	case "install":
		return 0, runInstall(ctx, rest, std)
	case "help", "--help", "-h", "-help":
		fmt.Fprint(std.Out, usageText)
		return 0, nil
	case "version", "--version", "-version":
		fmt.Fprintln(std.Out, "drainer", version.String())
		return 0, nil
	default:
		return 0, commandline.Usagef("unknown command %q; see drainer help", command)
	}
}
