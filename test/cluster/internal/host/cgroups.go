package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Cgroup is a control group at the top of every hierarchy of the machine,
// version 1 and 2 alike.
type Cgroup string

// directories returns the group's path in each hierarchy, even if the group doesn't exist.
func (c Cgroup) directories() ([]string, error) {
	all, err := mounts()
	if err != nil {
		return nil, err
	}
	var directories []string
	for _, mount := range all {
		if mount.kind == "cgroup" || mount.kind == "cgroup2" {
			directories = append(directories, filepath.Join(mount.point, string(c)))
		}
	}
	slices.Sort(directories)
	return slices.Compact(directories), nil
}

// Create makes the group, and the named groups inside it.
func (c Cgroup) Create(children ...string) error {
	directories, err := c.directories()
	if err != nil {
		return err
	}
	for _, directory := range directories {
		for _, path := range append([]string{directory}, join(directory, children)...) {
			delegate(filepath.Dir(path))
			if err := os.MkdirAll(path, 0o755); err != nil {
				return fmt.Errorf("control group: %w", err)
			}
			inheritCpuset(path)
		}
		prefer(directory)
	}
	return nil
}

// prefer gives the group as much CPU time as many processes outside it together. Otherwise, beside a test run
// that starts dozens of processes, its pods would miss the deadlines of their probes.
func prefer(directory string) {
	const processes = 64
	for file, ofOne := range map[string]int{"cpu.shares": 1024, "cpu.weight": 100} { // version 1, version 2
		path := filepath.Join(directory, file)
		if _, err := os.Stat(path); err == nil {
			_ = os.WriteFile(path, strconv.AppendInt(nil, int64(processes*ofOne), 10), 0o644)
		}
	}
}

func join(directory string, names []string) []string {
	var paths []string
	for _, name := range names {
		paths = append(paths, filepath.Join(directory, name))
	}
	return paths
}

// delegate hands a version 2 group's controllers to its children. delegate ignores those that can't be handed
// on: the kubelet reports them.
func delegate(parent string) {
	controllers, err := os.ReadFile(filepath.Join(parent, "cgroup.controllers"))
	if err != nil {
		return // version 1
	}
	for _, controller := range strings.Fields(string(controllers)) {
		_ = os.WriteFile(filepath.Join(parent, "cgroup.subtree_control"), []byte("+"+controller), 0o644)
	}
}

// inheritCpuset sets the values that a new group of the version 1 cpuset controller lacks. Before that, no
// process can enter the group.
func inheritCpuset(path string) {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		own, err := os.ReadFile(filepath.Join(path, file))
		if err != nil || strings.TrimSpace(string(own)) != "" {
			continue
		}
		if above, err := os.ReadFile(filepath.Join(filepath.Dir(path), file)); err == nil {
			_ = os.WriteFile(filepath.Join(path, file), above, 0o644)
		}
	}
}

// Processes returns the pids of all processes in the group and in the groups below it.
func (c Cgroup) Processes() []int {
	directories, _ := c.directories()
	found := map[int]bool{}
	for _, directory := range directories {
		_ = filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.Name() != "cgroup.procs" {
				return nil
			}
			text, _ := os.ReadFile(path)
			for _, field := range strings.Fields(string(text)) {
				if pid, err := strconv.Atoi(field); err == nil && pid > 1 {
					found[pid] = true
				}
			}
			return nil
		})
	}
	var pids []int
	for pid := range found {
		pids = append(pids, pid)
	}
	return pids
}

// Remove removes the group and the groups below it, which must have no process.
func (c Cgroup) Remove() error {
	directories, err := c.directories()
	if err != nil {
		return err
	}
	var failed []error
	for _, directory := range directories {
		var groups []string
		_ = filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				groups = append(groups, path)
			}
			return nil
		})
		slices.Reverse(groups) // children before parents
		for _, group := range groups {
			if err := os.Remove(group); err != nil && !errors.Is(err, fs.ErrNotExist) {
				failed = append(failed, err)
			}
		}
	}
	return errors.Join(failed...)
}

// unifiedRoot returns the path of the version 2 hierarchy; empty if there is none.
func unifiedRoot() string {
	all, err := mounts()
	if err != nil {
		return ""
	}
	for _, mount := range all {
		if mount.kind == "cgroup2" {
			return mount.point
		}
	}
	return ""
}

// Undelegated returns the controllers that Create would hand to the groups
// below the root of the version 2 hierarchy.
func (c Cgroup) Undelegated() []string {
	root := unifiedRoot()
	available, err := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
	if root == "" || err != nil {
		return nil
	}
	delegated, _ := os.ReadFile(filepath.Join(root, "cgroup.subtree_control"))
	var missing []string
	for _, controller := range strings.Fields(string(available)) {
		if !slices.Contains(strings.Fields(string(delegated)), controller) {
			missing = append(missing, controller)
		}
	}
	return missing
}

// Undelegate takes the controllers back, except those that another group uses now.
func (c Cgroup) Undelegate(controllers []string) error {
	root := unifiedRoot()
	for _, controller := range controllers {
		err := os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("-"+controller), 0o644)
		if err != nil && !errors.Is(err, syscall.EBUSY) {
			return err
		}
	}
	return nil
}
