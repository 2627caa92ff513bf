package tied

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
)

const variable = "TMPDIR"

// Watchdog ends the processes that a process has started, and removes its temporary files, when the process
// has ended in any way: by Go's own time-out, by SIGKILL, or by a panic. The watchdog is a shell that reads
// from a pipe without a writer: the pipe ends with this process. The shell knows processes by the directory
// in their environment. So it also finds processes that start later, or are started by another one.
type Watchdog struct {
	// Dir has the temporary files of this process and those that it starts.
	Dir string

	before string
	was    bool
	cmd    *exec.Cmd
	leash  io.Closer
}

// script kills each process that has the directory in its environment, until there is none. A zombie has an
// empty environment.
const script = `read -r _
while found=$(grep -lsF "` + variable + `=$WATCHED" /proc/[0-9]*/environ); [ -n "$found" ]; do
  for f in $found; do p=${f#/proc/}; kill -KILL "${p%/environ}" 2>/dev/null; done
done
rm -rf "$WATCHED"`

// Watch makes a directory for temporary files of this process from now on. The directory's name begins with
// name. Processes that were started before are not watched.
func Watch(name string) (*Watchdog, error) {
	dir, err := os.MkdirTemp("", name+"-*.watched") // the end of the name: no other directory's name begins with all of it
	if err != nil {
		return nil, err
	}
	w := &Watchdog{Dir: dir, cmd: exec.Command("sh", "-c", script)}
	w.before, w.was = os.LookupEnv(variable)
	w.cmd.Env = append(os.Environ(), "WATCHED="+dir)
	// A signal to this process's group must not end the watchdog.
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

// Stop lets the watchdog end all processes that were started since Start, and waits for that.
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
