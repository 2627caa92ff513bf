package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// sysctlRoot is where the kernel's settings are.
const sysctlRoot = "/proc/sys"

// Setting is a kernel setting that the cluster changes.
type Setting struct {
	// Name is its path under /proc/sys.
	Name string
	// Wanted is the cluster's value.
	Wanted string
	// Before is the former value, to be restored.
	Before string
}

// Record reads the present settings. Record leaves out those that the kernel doesn't have, or that have the
// wanted value.
func Record(wanted map[string]string) []Setting {
	var settings []Setting
	for name, value := range wanted {
		before, err := os.ReadFile(filepath.Join(sysctlRoot, name))
		if err != nil || strings.TrimSpace(string(before)) == value {
			continue
		}
		settings = append(settings, Setting{Name: name, Wanted: value, Before: strings.TrimSpace(string(before))})
	}
	return settings
}

// SetSysctl changes a setting.
func SetSysctl(name, value string) error {
	if err := os.WriteFile(filepath.Join(sysctlRoot, name), []byte(value), 0o644); err != nil {
		return fmt.Errorf("set %s to %s: %w", name, value, err)
	}
	return nil
}

// Restore restores the settings, except those that were changed since.
func Restore(settings []Setting) error {
	var failed []error
	for _, setting := range settings {
		now, err := os.ReadFile(filepath.Join(sysctlRoot, setting.Name))
		if err != nil || strings.TrimSpace(string(now)) != setting.Wanted {
			continue
		}
		failed = append(failed, SetSysctl(setting.Name, setting.Before))
	}
	return errors.Join(failed...)
}
