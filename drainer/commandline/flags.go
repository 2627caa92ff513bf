package commandline

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"example.com/memcached-operator/drainer/contract"
)

// IO has the standard streams of a command of the drainer.
type IO struct {
	In       io.Reader
	Out, Err io.Writer
}

// Logf writes one line to standard error.
func (std IO) Logf(format string, args ...any) {
	fmt.Fprintf(std.Err, "drainer: "+format+"\n", args...)
}

const reasonUsage = "BadArguments"

// UsageError means that the arguments are wrong, so a retry can't help.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }
func (e *UsageError) Unwrap() error { return e.Err }

// Failure returns the receipt's reason and the exit code.
func (e *UsageError) Failure() (reason string, exitCode int) {
	return reasonUsage, contract.ExitUsage
}

// Usagef returns a UsageError.
func Usagef(format string, args ...any) error {
	return &UsageError{fmt.Errorf(format, args...)}
}

// ErrHelp means that the user asked for help, and Parse has printed it.
var ErrHelp = errors.New("help")

// NewFlags returns an empty set whose errors are returned, and not printed.
func NewFlags(command string) *flag.FlagSet {
	fs := flag.NewFlagSet("drainer "+command, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	return fs
}

// ParseFlags returns usage errors for the flag package's errors, and prints help.
func ParseFlags(fs *flag.FlagSet, args []string, std IO) error {
	err := fs.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(std.Out, "%s:\n", fs.Name())
		fs.SetOutput(std.Out)
		fs.PrintDefaults()
		return ErrHelp
	}
	if err != nil {
		return Usagef("%s: %v", fs.Name(), err)
	}
	return nil
}

// NoArguments returns an error if there are arguments that aren't flags.
func NoArguments(fs *flag.FlagSet) error {
	if fs.NArg() > 0 {
		return Usagef("%s: unexpected argument %q", fs.Name(), fs.Arg(0))
	}
	return nil
}

// Directory returns an error if the path is not a directory.
func Directory(name, path string) error {
	info, err := os.Stat(path)
	switch {
	case path == "":
		return Usagef("--%s is needed", name)
	case err != nil:
		return Usagef("--%s: %v", name, err)
	case !info.IsDir():
		return Usagef("--%s: %s is not a directory", name, path)
	}
	return nil
}
