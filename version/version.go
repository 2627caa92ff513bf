// Package version says which build a program is of.
package version

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
)

// Set by the build: -ldflags "-X …/version.Version=v1.2.3". If they are empty, String
// uses what Go has recorded.
var (
	// Version of the build, such as v1.2.3.
	Version string
	// Commit that was built.
	Commit string
)

// String is the version, the commit, and the Go release that built it, in one line.
func String() string {
	info, _ := debug.ReadBuildInfo()
	return describe(info, Version, Commit)
}

func describe(info *debug.BuildInfo, version, commit string) string {
	modified := ""
	if info != nil {
		version = cmp.Or(version, info.Main.Version)
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision" && commit == "":
				commit = s.Value
			case s.Key == "vcs.modified" && s.Value == "true":
				modified = ", modified"
			}
		}
	}
	return fmt.Sprintf("%s (commit %s%s, %s)", cmp.Or(version, "(devel)"), cmp.Or(commit, "unknown"), modified, runtime.Version())
}
