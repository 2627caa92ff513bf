package drainer

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

// installTo copies the program at self to dir/drainer, executable by all. A
// copy that is there already stays usable until the new one replaces it whole.
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
