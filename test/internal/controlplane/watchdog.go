package controlplane

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// watchdog ends processes when this one has ended in any way: by Go's own time-out, by
// SIGKILL, by a panic. It is a shell that reads from a pipe which nobody ever writes to:
// the pipe's end is this process's.
type watchdog struct {
	cmd   *exec.Cmd
	leash io.Closer
}

// watchChildren watches the children that this process has by now.
func watchChildren() (*watchdog, error) {
	pids, err := children()
	if err != nil {
		return nil, err
	}
	w := &watchdog{cmd: exec.Command("sh", append([]string{"-c", `read -r _; kill -KILL "$@" 2>/dev/null`, "sh"}, pids...)...)}
	// Whoever ends this process by its group must not end the watchdog first.
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if w.leash, err = w.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := w.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the watchdog: %w", err)
	}
	return w, nil
}

// stop calls the watchdog off: its processes have ended.
func (w *watchdog) stop() {
	if w == nil {
		return
	}
	_ = w.cmd.Process.Kill()
	_ = w.leash.Close()
	_ = w.cmd.Wait()
}

// children are the process IDs of this process's children.
func children() ([]string, error) {
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", os.Getpid()))
	if err != nil {
		return nil, err
	}
	var pids []string
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			continue // that thread has ended
		}
		pids = append(pids, strings.Fields(string(text))...)
	}
	return pids, nil
}
