package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"

	"example.com/memcached-operator/drainer/args"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/member"
	"example.com/memcached-operator/drainer/start"
)

// runInstall copies this program to DIR/drainer, completely or not at all, and predicts how the member that
// will use it starts.
func runInstall(ctx context.Context, line []string, std args.IO) error {
	fs := args.NewFlags("install")
	var m start.Member
	fs.StringVar(&m.Volume, contract.FlagDir, "", "the volume of the member, whose command line follows DIR")
	fs.StringVar(&m.Memory, contract.FlagMemoryDir, "", "the directory in memory of the member, if it has one")
	log := fs.String(contract.FlagTerminationLog, "", "write here whether that member will start cold")
	if err := args.Parse(fs, line, std); err != nil {
		return err
	}
	if fs.NArg() == 0 || (fs.NArg() > 1) != (m.Volume != "") {
		return args.Usagef("drainer install needs a directory, and after it memcached's command line if --%s is set", contract.FlagDir)
	}
	if err := args.Directory("install", fs.Arg(0)); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if m.Volume != "" {
		m.Command = fs.Args()[1:]
		member.WarnOfNextStart(ctx, m, *log, std)
	}
	return installTo(self, fs.Arg(0))
}

// installTo copies the program at self to dir/drainer, executable by all users. An earlier copy stays usable
// until the new one replaces it atomically.
func installTo(self, dir string) (err error) {
	in, err := os.Open(self)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.CreateTemp(dir, ".drainer-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(out.Name()))
		}
	}()
	_, err = io.Copy(out, in)
	if err == nil {
		err = out.Chmod(0o755)
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return err
	}
	return os.Rename(out.Name(), filepath.Join(dir, "drainer"))
}
