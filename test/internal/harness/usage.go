package harness

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Meter measures the CPU time that processes use from its start on.
type Meter struct {
	pids   []int
	before time.Duration
	err    error
}

// StartMeter measures these processes together.
func StartMeter(pids ...int) *Meter {
	m := &Meter{pids: pids}
	m.before, m.err = cpu(pids)
	return m
}

// Used is the CPU time since the start.
func (m *Meter) Used() (time.Duration, error) {
	if m.err != nil {
		return 0, m.err
	}
	now, err := cpu(m.pids)
	return now - m.before, err
}

func cpu(pids []int) (sum time.Duration, err error) {
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return 0, err
		}
		one, err := cpuOf(string(stat))
		if err != nil {
			return 0, fmt.Errorf("process %d: %w", pid, err)
		}
		sum += one
	}
	return sum, nil
}

// cpuOf is the CPU time in user and system mode.
//
// Source: proc(5), /proc/pid/stat, utime and stime. A tick is 10 ms on every platform of Linux.
func cpuOf(stat string) (time.Duration, error) {
	const user, system, tick = 11, 12, 10 * time.Millisecond // counted from the field after the name
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) <= system {
		return 0, fmt.Errorf("its stat is %q", stat)
	}
	u, err := strconv.Atoi(fields[user])
	if err != nil {
		return 0, err
	}
	s, err := strconv.Atoi(fields[system])
	return time.Duration(u+s) * tick, err
}

// Memory has the sizes of a process's memory, in bytes.
type Memory struct {
	// Anonymous is resident and not a file's.
	Anonymous int64
	// Resident is all that is resident, and Peak the most of it so far.
	Resident, Peak int64
}

// MemoryOf returns the memory of a process.
func MemoryOf(pid int) (Memory, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return memoryOf(string(status)), err
}

// Source: proc(5), /proc/pid/status.
func memoryOf(status string) (m Memory) {
	for line := range strings.Lines(status) {
		name, rest, _ := strings.Cut(line, ":")
		kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		switch name {
		case "RssAnon":
			m.Anonymous = kib << 10
		case "VmRSS":
			m.Resident = kib << 10
		case "VmHWM":
			m.Peak = kib << 10
		}
	}
	return m
}

// LoadAverage is the machine's, over one, five and fifteen minutes: beside other work, figures mean little.
func LoadAverage() string {
	text, _ := os.ReadFile("/proc/loadavg")
	return strings.Join(strings.Fields(string(text) + " ? ? ?")[:3], " ")
}
