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

// Down removes the cluster, whatever state it is in.
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
	// The directory that the lock is on goes last, and only when all is well:
	// it holds what another try needs to know.
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

// leftovers tells whether there is anything of a cluster to remove.
func leftovers() bool {
	entries, _ := os.ReadDir(stateDir)
	_, run := os.Stat(runDir)
	return len(entries) > 0 || run == nil || len(ours()) > 0
}

// teardown removes everything but the state directory itself. Each step finds
// what is the cluster's by the cluster's name, so that it works without the
// state directory, too; a step that fails doesn't keep the others from trying.
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

// endProcesses kills: nothing in the cluster is to be kept, and what has been
// killed starts nothing new. It repeats, because what is found first may have
// started more in the meantime.
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

// ours returns the cluster's processes: those of the pid files, and whatever
// else a crash may have left.
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

// isOurs tells by its program and arguments whether a process is the
// cluster's: our copy of a program, or one of the machine's that was started
// for the cluster. Anything else that merely names a path of the cluster,
// such as an editor or a tail of a log, is not.
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

// restoreSettings leaves forwarding on when somebody else has come to rely on
// it, such as a Docker that was started in the meantime.
func restoreSettings(ctx context.Context, settings []host.Setting) error {
	if host.ForwardsForOthers(ctx) {
		settings = slices.DeleteFunc(settings, func(s host.Setting) bool { return s.Name == forwarding })
	}
	return host.Restore(settings)
}

// removeCgroups waits a moment: the kernel lets go of a killed process'
// group a little after the process is gone.
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
		// The journal is needed again when a step has failed.
		if path := filepath.Join(stateDir, entry.Name()); path != journalFile {
			failed = append(failed, os.RemoveAll(path))
		}
	}
	// Somebody else may use them by now: then they are not empty.
	for _, path := range made {
		_ = os.Remove(path)
	}
	return errors.Join(failed...)
}
