// Package process starts programs that outlive this one, each with its own pid file and log, and ends exactly
// these.
package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ID identifies one process for ever: by its pid, its start in clock ticks after the boot, and the boot's id.
// The kernel uses a pid again.
type ID struct {
	PID   int
	Start uint64
	Boot  string
}

// Spec is a program to start.
type Spec struct {
	Name string
	Args []string
	Env  []string
	// Cloneflags asks for namespaces of its own (syscall.CLONE_NEW...).
	Cloneflags uintptr
}

// Process is a program that this program has started.
type Process struct {
	ID
	Name, Log string
	done      chan struct{}
	err       error
}

// Dir has the directories of pid files and logs.
type Dir struct {
	Pids, Logs string
}

// Log is the path of a program's log.
func (d Dir) Log(name string) string { return filepath.Join(d.Logs, name+".log") }

// PidFile is the path of a program's pid file.
func (d Dir) PidFile(name string) string { return filepath.Join(d.Pids, name+".pid") }

// Start runs the program in a session of its own, so that it survives the
// terminal, and records it in its pid file.
func (d Dir) Start(spec Spec) (*Process, error) {
	log, err := os.OpenFile(d.Log(spec.Name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	keepInherited()
	cmd := exec.Command(spec.Args[0], spec.Args[1:]...)
	cmd.Env = spec.Env
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: spec.Cloneflags}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", spec.Name, err)
	}
	id, err := Identify(cmd.Process.Pid)
	if err == nil {
		err = os.WriteFile(d.PidFile(spec.Name), []byte(id.String()+"\n"), 0o644)
	}
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, fmt.Errorf("record %s: %w", spec.Name, err)
	}
	process := &Process{ID: id, Name: spec.Name, Log: d.Log(spec.Name), done: make(chan struct{})}
	go func() {
		process.err = cmd.Wait()
		close(process.done)
	}()
	return process, nil
}

// keepInherited keeps the files that this program's caller has left open, such as a lock, from the programs
// that outlive this one.
func keepInherited() {
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, entry := range entries {
		if fd, err := strconv.Atoi(entry.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
}

// Ended returns an error if the process has ended, and nil while it runs.
func (p *Process) Ended() error {
	select {
	case <-p.done:
		if p.err == nil {
			return fmt.Errorf("%s ended; its log is %s", p.Name, p.Log)
		}
		return fmt.Errorf("%s ended (%w); its log is %s", p.Name, p.err, p.Log)
	default:
		return nil
	}
}

// Recorded returns the processes of the pid files, by name.
func (d Dir) Recorded() map[string]ID {
	recorded := map[string]ID{}
	files, _ := filepath.Glob(filepath.Join(d.Pids, "*.pid"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if id, err := ParseID(string(text)); err == nil {
			recorded[strings.TrimSuffix(filepath.Base(file), ".pid")] = id
		}
	}
	return recorded
}

func (id ID) String() string { return fmt.Sprintf("%d %d %s", id.PID, id.Start, id.Boot) }

// ParseID is the inverse of String.
func ParseID(text string) (ID, error) {
	fields := strings.Fields(text)
	if len(fields) != 3 {
		return ID{}, fmt.Errorf("not a pid file: %q", text)
	}
	pid, err := strconv.Atoi(fields[0])
	if err != nil || pid <= 1 {
		return ID{}, fmt.Errorf("not a pid: %q", fields[0])
	}
	start, err := strconv.ParseUint(fields[1], 10, 64)
	if err != nil {
		return ID{}, fmt.Errorf("not a start time: %q", fields[1])
	}
	return ID{PID: pid, Start: start, Boot: fields[2]}, nil
}

// Identify returns the ID of the process that has this pid now.
func Identify(pid int) (ID, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ID{}, err
	}
	state, start, err := parseStat(string(stat))
	if err != nil {
		return ID{}, err
	}
	if state == "Z" || state == "X" {
		return ID{}, fmt.Errorf("process %d has ended", pid)
	}
	return ID{PID: pid, Start: start, Boot: BootID()}, nil
}

// BootID is the id of the machine's boot.
func BootID() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// parseStat reads the state and the start time from /proc/PID/stat. The program's name, in parentheses, may
// have spaces and parentheses itself.
func parseStat(stat string) (state string, start uint64, err error) {
	_, rest, _ := cutLast(stat, ")")
	fields := strings.Fields(rest)
	const stateField, startField = 0, 19 // fields 3 and 22 of proc(5)
	if len(fields) <= startField {
		return "", 0, fmt.Errorf("unexpected /proc/PID/stat: %q", stat)
	}
	start, err = strconv.ParseUint(fields[startField], 10, 64)
	return fields[stateField], start, err
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// Alive tells whether exactly this process still runs.
func (id ID) Alive() bool {
	now, err := Identify(id.PID)
	return err == nil && now == id
}

// signal sends a signal to exactly this process, or to none: it takes a handle of the process first, so it
// can't hit a process that has the same pid later.
func (id ID) signal(sig os.Signal) {
	handle, err := os.FindProcess(id.PID)
	if err != nil {
		return
	}
	defer handle.Release()
	if id.Alive() {
		_ = handle.Signal(sig)
	}
}

// End asks the processes to end, and kills those that are left after the grace. Zero grace kills at once.
func End(ctx context.Context, grace time.Duration, ids ...ID) error {
	if grace > 0 {
		for _, id := range ids {
			id.signal(syscall.SIGTERM)
		}
		if waitGone(ctx, grace, ids) {
			return nil
		}
	}
	for _, id := range ids {
		id.signal(syscall.SIGKILL)
	}
	if waitGone(ctx, 10*time.Second, ids) {
		return nil
	}
	var left []string
	for _, id := range ids {
		if id.Alive() {
			left = append(left, strconv.Itoa(id.PID))
		}
	}
	return errors.Join(ctx.Err(), fmt.Errorf("processes don't end after SIGKILL: %s", strings.Join(left, " ")))
}

func waitGone(ctx context.Context, limit time.Duration, ids []ID) bool {
	deadline := time.Now().Add(limit)
	for {
		alive := false
		for _, id := range ids {
			alive = alive || id.Alive()
		}
		if !alive {
			return true
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return false
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// AwaitReaped waits until the ended processes are gone from the process table. The wait is bounded, because it
// depends on their parents.
func AwaitReaped(ctx context.Context, limit time.Duration, ids []ID) {
	deadline := time.Now().Add(limit)
	for _, id := range ids {
		for ctx.Err() == nil && time.Now().Before(deadline) && id.inTable() {
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// inTable tells whether the process has an entry in the process table: it runs, or is a zombie.
func (id ID) inTable() bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", id.PID))
	if err != nil {
		return false
	}
	_, start, err := parseStat(string(stat))
	return err == nil && start == id.Start
}

// All returns the pids of all processes.
func All() []int {
	entries, _ := os.ReadDir("/proc")
	var pids []int
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// LastLines returns the end of a log, for a message.
func LastLines(path string, n int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
