package warmfile

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"example.com/memcached-operator/drainer/commandline"
	"example.com/memcached-operator/drainer/item"
)

// Asker is a connection to a running memcached.
type Asker interface {
	// Stats returns the answer to "stats ARG".
	Stats(arg string) (map[string]string, error)
	Version() (string, error)
}

// SlabPageSize is in bytes, and fixed in every memcached that maps a file. "stats settings" doesn't have it.
const SlabPageSize = 1 << 20

// Ask fills the image with the values that .meta would have if the running memcached saved now. The memcached
// is process pid, was started with command, and maps the file at path. If the image was filled before, Ask
// only updates it.
func (m *Image) Ask(server Asker, pid int, path string, command []string) error {
	if m.MaxBytes == 0 {
		if err := m.askSettings(server, command); err != nil {
			return err
		}
		base, err := mappingBase(pid, path)
		if err != nil {
			return err
		}
		m.Base = base
	}
	if err := m.askVariables(server, pid); err != nil {
		return err
	}
	return m.Check()
}

// askSettings asks for values that never change while memcached runs.
func (m *Image) askSettings(server Asker, command []string) error {
	settings, err := server.Stats("settings")
	if err != nil {
		return err
	}
	slabs, err := server.Stats("slabs")
	if err != nil {
		return err
	}
	if m.Version, err = server.Version(); err != nil {
		return err
	}
	n := numbers{from: settings}
	m.SlabConfig = SlabConfig(command)
	m.ChunkSize = int(n.get("chunk_size"))
	m.ItemSizeMax = int(n.get("item_size_max"))
	m.SlabChunkMax = int(n.get("slab_chunk_max"))
	m.SlabPageSize = SlabPageSize
	m.FlagsBytes = item.FlagsBytes(settings)
	m.UseCAS = settings["cas_enabled"] == "yes"
	m.SlabReassign = settings["slab_reassign"] == "yes"
	m.Classes = m.slabClasses(slabs)
	m.MaxBytes = n.get("maxbytes")
	return n.err
}

// askVariables asks for values that change while memcached runs.
//
// Source: memcached's memcached.c, server_stats: time is process_started plus
// its clock, uptime that clock minus ITEM_UPDATE_INTERVAL, 60 seconds.
func (m *Image) askVariables(server Asker, pid int) error {
	stats, err := server.Stats("")
	if err != nil {
		return err
	}
	settings, err := server.Stats("settings")
	if err != nil {
		return err
	}
	if stats["pid"] != strconv.Itoa(pid) {
		return fmt.Errorf("process %q answers, memcached is process %d: is the port right?", stats["pid"], pid)
	}
	n := numbers{from: stats}
	m.Clock, m.NodeClock = n.get("time"), time.Now().Unix()
	uptime, err := item.Uptime(stats)
	if err != nil {
		return fmt.Errorf("memcached says uptime=%q", stats["uptime"])
	}
	m.ProcessStarted = m.Clock - uptime - 60
	m.Items = n.get("curr_items")
	_, m.External = stats["extstore_pages_used"]
	n.from = settings
	m.OldestLive = uint32(n.get("oldest"))
	return n.err
}

// numbers remembers the first value that is missing or isn't a number.
type numbers struct {
	from map[string]string
	err  error
}

func (n *numbers) get(name string) int64 {
	v, err := strconv.ParseInt(n.from[name], 10, 64)
	if err != nil && n.err == nil {
		n.err = fmt.Errorf("memcached says %s=%q", name, n.from[name])
	}
	return v
}

// slabClasses returns the sizes of all classes in "stats slabs". A memcached with a warm file has a page in
// each class; if one is missing, slabClasses returns none. The last class but one can be as large as the
// last. Then only the settings show whether it is missing.
func (m *Image) slabClasses(slabs map[string]string) (sizes []int) {
	for len(sizes) < maxClass {
		size, err := strconv.Atoi(slabs[strconv.Itoa(len(sizes)+1)+":chunk_size"])
		if err != nil {
			break
		}
		sizes = append(sizes, size)
	}
	computed, err := m.classes()
	switch n := len(sizes); {
	case n == 0, sizes[n-1] != m.SlabChunkMax, slabs["active_slabs"] != strconv.Itoa(n):
		return nil
	case err == nil && slices.Equal(sizes, computed[1:len(computed)-1]):
		return nil
	}
	return sizes
}

// SlabConfig returns what .meta calls slab_config, for a memcached's command line: -f as it was written, or
// the list of "-o slab_sizes".
func SlabConfig(command []string) string {
	options := commandline.Parse(command[min(1, len(command)):])
	config := "1.25"
	if factor, ok := options.Last(commandline.Growth); ok {
		config = factor
	}
	for _, s := range options.Suboptions() {
		if s.Name == "slab_sizes" {
			config = s.Value
		}
	}
	return config
}

// mappingBase returns the lowest address at which the process maps the file.
func mappingBase(pid int, path string) (uint64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, errors.New("no inode number for " + path)
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		// The columns are: address perms offset device inode path.
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 || fields[4] != strconv.FormatUint(stat.Ino, 10) || strings.Trim(fields[2], "0") != "" {
			continue
		}
		start, _, _ := strings.Cut(fields[0], "-")
		return strconv.ParseUint(start, 16, 64)
	}
	return 0, errors.Join(fmt.Errorf("process %d does not map %s", pid, path), lines.Err())
}
