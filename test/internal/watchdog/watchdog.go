// Package watchdog ends what a process has started, and removes its temporary files, when that
// process has ended in any way: by Go's own time-out, by SIGKILL, by a panic.
package watchdog

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
)

const variable = "TMPDIR"

// Watchdog is a shell that reads from a pipe which nobody ever writes to: the pipe's end is this
// process's. Processes are known by the directory in their environment, so that none is missed that
// starts later, or is started by another one.
type Watchdog struct {
	// Dir has the temporary files of this process and those that it starts.
	Dir string

	before string
	was    bool
	cmd    *exec.Cmd
	leash  io.Closer
}

// script kills each process that has the directory in its environment, until there is none.
// A killed process that nobody has waited for has an empty environment.
const script = `read -r _
while found=$(grep -lsF "` + variable + `=$WATCHED" /proc/[0-9]*/environ); [ -n "$found" ]; do
  for f in $found; do p=${f#/proc/}; kill -KILL "${p%/environ}" 2>/dev/null; done
done
rm -rf "$WATCHED"`

// Start makes a directory, whose name begins with this, for temporary files of this process from
// now on. What this process has started before is not watched.
func Start(name string) (*Watchdog, error) {
	dir, err := os.MkdirTemp("", name+"-*.watched") // the end: no other one's name begins with all of it
	if err != nil {
		return nil, err
	}
	w := &Watchdog{Dir: dir, cmd: exec.Command("sh", "-c", script)}
	w.before, w.was = os.LookupEnv(variable)
	w.cmd.Env = append(os.Environ(), "WATCHED="+dir)
	// Whoever ends this process by its group must not end the watchdog first.
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if w.leash, err = w.cmd.StdinPipe(); err == nil {
		err = w.cmd.Start()
	}
	if err == nil {
		err = os.Setenv(variable, dir)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the watchdog: %w", err), os.Remove(dir))
	}
	return w, nil
}

// Stop lets the watchdog do its work now: nothing is left of what has been started since.
func (w *Watchdog) Stop() error {
	if w == nil {
		return nil
	}
	restore := os.Unsetenv(variable)
	if w.was {
		restore = os.Setenv(variable, w.before)
	}
	return errors.Join(restore, w.leash.Close(), w.cmd.Wait())
}
