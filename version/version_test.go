package version

import (
	"runtime"
	"runtime/debug"
	"testing"
)

func TestTheVersionSaysWhatIsKnown(t *testing.T) {
	recorded := &debug.BuildInfo{
		Main:     debug.Module{Version: "v1.0.0"},
		Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "true"}},
	}
	for name, test := range map[string]struct {
		info            *debug.BuildInfo
		version, commit string
		want            string
	}{
		"nothing is known":     {nil, "", "", "(devel) (commit unknown, "},
		"Go's record":          {recorded, "", "", "v1.0.0 (commit abc, modified, "},
		"the build's own word": {&debug.BuildInfo{}, "v2.0.0", "def", "v2.0.0 (commit def, "},
		"both":                 {&debug.BuildInfo{Main: debug.Module{Version: "v1.0.0"}}, "v2.0.0", "", "v2.0.0 (commit unknown, "},
	} {
		t.Run(name, func(t *testing.T) {
			if got, want := describe(test.info, test.version, test.commit), test.want+runtime.Version()+")"; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}
