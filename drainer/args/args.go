// Package args is what the commands and the engine share of a command line: flags,
// errors about them, the streams, and one-line messages.
package args

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"example.com/memcached-operator/drainer/contract"
)

// IO is what a command talks to.
type IO struct {
	In       io.Reader
	Out, Err io.Writer
}

// Logf writes a line for people.
func (std IO) Logf(format string, args ...any) {
	fmt.Fprintf(std.Err, "drainer: "+format+"\n", args...)
}

const reasonUsage = "BadArguments"

// UsageError is about the arguments: trying again can't help.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }
func (e *UsageError) Unwrap() error { return e.Err }

// Failure is what a receipt says of it.
func (e *UsageError) Failure() (reason string, exitCode int) {
	return reasonUsage, contract.ExitUsage
}

// Usagef returns a UsageError.
func Usagef(format string, args ...any) error {
	return &UsageError{fmt.Errorf(format, args...)}
}

// ErrHelp says that help was asked for, and printed.
var ErrHelp = errors.New("help")

// NewFlags returns an empty set whose errors come back in one line.
func NewFlags(command string) *flag.FlagSet {
	fs := flag.NewFlagSet("drainer "+command, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	return fs
}

// Parse turns the flag package's errors into usage errors, and prints help.
func Parse(fs *flag.FlagSet, args []string, std IO) error {
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

// None refuses arguments that aren't flags.
func None(fs *flag.FlagSet) error {
	if fs.NArg() > 0 {
		return Usagef("%s: unexpected argument %q", fs.Name(), fs.Arg(0))
	}
	return nil
}

// Directory refuses a path that isn't one.
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

// OneLine is an error for people, without the volume's mount point.
func OneLine(err error) string {
	var p *os.PathError
	if errors.As(err, &p) {
		return filepath.Base(p.Path) + ": " + p.Err.Error()
	}
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}
