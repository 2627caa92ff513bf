package volume

import (
	"fmt"
	"path/filepath"
	"regexp"

	"example.com/memcached-operator/drainer/contract"
)

// Redate lets memcached resume from the save in dir at the Unix time now; see warmfile.Image.Redated. The
// items keep their remaining time.
func Redate(dir string, now int64) error {
	meta, err := ReadMeta(dir)
	if err != nil {
		return err
	}
	redated := meta.Redated(now)
	data, err := RawMeta(dir)
	if err != nil {
		return err
	}
	for key, value := range map[string]int64{"stop_time": redated.StopTime, "process_started": redated.ProcessStarted} {
		line := regexp.MustCompile(`(?m)^K` + key + ` .*$`)
		data = line.ReplaceAll(data, fmt.Appendf(nil, "K%s %d", key, value))
	}
	// The manifest identifies the save by these times, so the manifest is changed, too, and its knowledge of
	// the save is kept.
	if m, err := ReadManifest(dir); err == nil {
		if known := m.Latest(); known != nil && known.StopTime == meta.StopTime && known.ProcessStarted == meta.ProcessStarted {
			known.StopTime, known.ProcessStarted = redated.StopTime, redated.ProcessStarted
			known.Clock, known.NodeClock = redated.Clock, redated.NodeClock
			if err := WriteManifest(dir, m); err != nil {
				return err
			}
		}
	}
	return writeDurably(filepath.Join(dir, contract.MetaFile), data)
}
