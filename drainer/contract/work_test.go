package contract

import (
	"fmt"
	"testing"
)

func TestWhatASupervisorLogsIsParsed(t *testing.T) {
	for kind, want := range map[WorkKind]string{
		WorkSaving: "saving: 3 of 8 MiB, at ", WorkLoading: "loading: 3 of 8 MiB, at ", WorkReplaying: "replaying: 3145728 of 8388000 items, at ",
	} {
		line := ""
		LogWork(kind, func(format string, args ...any) { line = "drainer: " + fmt.Sprintf(format, args...) })(3<<20, 8_388_000)
		w := ParseWork(line)
		if w == nil || w.Kind != kind || w.Rate <= 0 || line[len("drainer: "):len("drainer: ")+len(want)] != want {
			t.Errorf("%q is %+v", line, w)
		}
	}
	logged := 0
	report := LogWork(WorkSaving, func(string, ...any) { logged++ })
	for range 1000 {
		report(1, 2)
	}
	if logged >= 1000 {
		t.Errorf("%d lines", logged)
	}
	for _, other := range []string{
		"", "saving: ", "saving: 9 of 8 MiB, at 1 MiB/s", "saving: -1 of 8 MiB, at 1 MiB/s", "saving: 1 of 0 MiB, at 1 MiB/s",
		"replaying generation-1: about 5 items", "saving: 1 of 99999999999999999999 MiB, at 1 MiB/s", "saving: 1 of 8 MiB, at 1 MiB/s and more",
	} {
		if w := ParseWork(other); w != nil {
			t.Errorf("%q is %+v", other, w)
		}
	}
}
