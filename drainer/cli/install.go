package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"example.com/memcached-operator/drainer/commandline"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/member"
	"example.com/memcached-operator/drainer/start"
)

// runInstall copies this program to DIR/drainer, completely or not at all, and predicts how the member that
// will use it starts.
func runInstall(ctx context.Context, line []string, std commandline.IO) error {
	fs := commandline.NewFlags("install")
	var m start.Member
	fs.StringVar(&m.Volume, contract.FlagDir, "", "the volume of the member, whose command line follows DIR")
	fs.StringVar(&m.Memory, contract.FlagMemoryDir, "", "the directory in memory of the member, if it has one")
	log := fs.String(contract.FlagTerminationLog, "", "write here whether that member will start cold")
	if err := commandline.ParseFlags(fs, line, std); err != nil {
		return err
	}
	if fs.NArg() == 0 || (fs.NArg() > 1) != (m.Volume != "") {
		return commandline.Usagef("drainer install needs a directory, and after it memcached's command line if --%s is set", contract.FlagDir)
	}
	if err := commandline.Directory("install", fs.Arg(0)); err != nil {
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

// installTo copies the program at self to dir/drainer, executable by all. An earlier
// copy stays usable until the new one replaces it as a whole. Files of an install that was killed are removed.
func installTo(self, dir string) (err error) {
	in, err := os.Open(self)
	if err != nil {
		return err
	}
	defer in.Close()
	const unfinished = ".drainer-"
	left, err := os.ReadDir(dir)
	for _, e := range left { // an init container that was killed is started again, in the same directory
		if e.Type().IsRegular() && strings.HasPrefix(e.Name(), unfinished) {
			err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	if err != nil {
		return err
	}
	out, err := os.CreateTemp(dir, unfinished+"*")
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
