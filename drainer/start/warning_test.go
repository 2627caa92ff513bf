package start

import (
	"testing"

	"example.com/memcached-operator/drainer/volume"
)

// A start after a crash needs room for the new file and for the marks of replayed items.
func TestACrashIsForetoldToBeColdWhereTheStartWouldBe(t *testing.T) {
	room := volume.FreeBytes
	defer func() { volume.FreeBytes = room }()
	m := Member{Volume: t.TempDir(), Command: []string{"memcached", "-m", "64"}}
	need := keptBeside(m.Command)
	for free, cold := range map[int64]bool{need: false, need - 1: true, 64 << 20: true} {
		volume.FreeBytes = func(string) (int64, error) { return free, nil }
		if c, err := AfterCrash(m); err != nil || (c != nil) != cold {
			t.Errorf("with %d bytes of %d: %+v, %v", free, need, c, err)
		}
	}
}
