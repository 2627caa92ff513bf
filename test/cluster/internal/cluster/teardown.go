package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"example.com/memcached-operator/test/cluster/internal/host"
	"example.com/memcached-operator/test/cluster/internal/process"
)

// Down removes the cluster, in any state.
func Down(ctx context.Context, report *Report) error {
	ctx, cancel := context.WithTimeout(ctx, lockDeadline)
	defer cancel()
	found := leftovers()
	release, err := lock(ctx, report)
	if err != nil {
		return err
	}
	defer release()
	if err := teardown(ctx, report); err != nil {
		return fmt.Errorf("%w\nsomething is left; `make cluster-down` can be run again", err)
	}
	// The directory with the lock is removed last, and only after success: another try needs its files.
	if err := os.RemoveAll(stateDir); err != nil {
		return err
	}
	if !found {
		report.say("no cluster was up on this machine")
		return nil
	}
	report.say("the cluster is gone")
	return nil
}

// leftovers tells whether there is something of a cluster to remove.
func leftovers() bool {
	entries, _ := os.ReadDir(stateDir)
	_, run := os.Stat(runDir)
	return len(entries) > 0 || run == nil || len(ours()) > 0
}

// teardown removes everything but the state directory itself. Each step finds the cluster's things by the
// cluster's name, so that it works without the state directory, too. If a step fails, the others are tried all
// the same.
func teardown(ctx context.Context, report *Report) error {
	before := readJournal()
	var failed []error
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"ending processes", func() error { return endProcesses(ctx) }},
		{"unmounting", func() error { return host.UnmountUnder(stateDir, runDir) }},
		{"removing network devices", func() error { return host.RemoveLinks(ctx, bridge.Alias) }},
		{"removing iptables rules", func() error { return firewall.Remove(ctx, before.UnusedTables) }},
		{"restoring kernel settings", func() error { return restoreSettings(ctx, before.Settings) }},
		{"removing control groups", func() error { return removeCgroups(ctx, before.Controllers) }},
		{"removing directories", func() error { return removeDirectories(before.Directories) }},
	} {
		report.say("%s", step.what)
		if err := step.do(); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", step.what, err))
		}
	}
	return errors.Join(failed...)
}

// endProcesses kills the cluster's processes, because nothing in the cluster is to be kept. endProcesses
// repeats this, because processes may have started others meanwhile.
func endProcesses(ctx context.Context) error {
	var ended []process.ID
	for range 20 {
		found := ours()
		if len(found) == 0 {
			process.AwaitReaped(ctx, 5*time.Second, ended)
			return nil
		}
		ended = append(ended, found...)
		if err := process.End(ctx, 0, found...); err != nil {
			return err
		}
	}
	return errors.New("new processes keep appearing")
}

// ours returns the cluster's processes: those of the pid files, and others that a crash may have left.
func ours() []process.ID {
	var found []process.ID
	add := func(pid int) {
		if id, err := process.Identify(pid); err == nil && pid != os.Getpid() && !slices.Contains(found, id) {
			found = append(found, id)
		}
	}
	for _, id := range programs.Recorded() {
		if id.Alive() {
			add(id.PID)
		}
	}
	for _, pid := range process.All() {
		exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if isOurs(strings.TrimSuffix(exe, " (deleted)"), strings.Split(string(cmdline), "\x00")) {
			add(pid)
		}
	}
	for _, pid := range cgroup.Processes() {
		add(pid)
	}
	return found
}

// isOurs tells by program and arguments whether a process is the cluster's: the cluster's copy of a program, or
// a program of the machine that was started for the cluster. Other processes that only name a path of the
// cluster, such as an editor or a tail of a log, are not.
func isOurs(exe string, args []string) bool {
	if strings.HasPrefix(exe, binDir+"/") {
		return true
	}
	if !slices.Contains([]string{"containerd", "containerd-shim-runc-v2", "containerd-shim", "nsenter", "runc"}, filepath.Base(exe)) {
		return false
	}
	for _, arg := range args {
		_, value, _ := strings.Cut(arg, "=")
		for _, text := range []string{arg, value} {
			if strings.HasPrefix(text, stateDir+"/") || strings.HasPrefix(text, runDir+"/") {
				return true
			}
		}
	}
	return false
}

// restoreSettings leaves forwarding on if another program relies on it now, such as a Docker that was started
// meanwhile.
func restoreSettings(ctx context.Context, settings []host.Setting) error {
	if host.ForwardsForOthers(ctx) {
		settings = slices.DeleteFunc(settings, func(s host.Setting) bool { return s.Name == forwarding })
	}
	return host.Restore(settings)
}

// removeCgroups waits a moment: the kernel releases a killed process's group a little after the process has
// ended.
func removeCgroups(ctx context.Context, controllers []string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := until(ctx, "the control groups' end", nil, func(context.Context) error { return cgroup.Remove() }); err != nil {
		return err
	}
	return cgroup.Undelegate(controllers)
}

func removeDirectories(made []string) error {
	failed := []error{os.RemoveAll(runDir)}
	entries, err := os.ReadDir(stateDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, entry := range entries {
		// The journal is needed again if a step has failed.
		if path := filepath.Join(stateDir, entry.Name()); path != journalFile {
			failed = append(failed, os.RemoveAll(path))
		}
	}
	// Other programs may use them now: then they are not empty.
	for _, path := range made {
		_ = os.Remove(path)
	}
	return errors.Join(failed...)
}
