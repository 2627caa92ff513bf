package warmfile

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"example.com/memcached-operator/drainer/commandline"
	"example.com/memcached-operator/drainer/item"
)

// Image has the settings and variables of a memcached that a reader of its warm file has to know. .meta has
// them after a save, the manifest always.
type Image struct {
	// SlabConfig is -f as it was written, or the list of "-o slab_sizes".
	SlabConfig string `json:"slabConfig"`
	// MaxBytes is -m in bytes, and the size of the file.
	MaxBytes     int64 `json:"maxBytes"`
	ChunkSize    int   `json:"chunkSize"`
	ItemSizeMax  int   `json:"itemSizeMax"`
	SlabChunkMax int   `json:"slabChunkMax"`
	SlabPageSize int   `json:"slabPageSize"`
	UseCAS       bool  `json:"useCAS"`
	// FlagsBytes is how many bytes an item's client flags take: item.SmallFlags or item.LargeFlags, 0
	// unknown. .meta doesn't have it.
	FlagsBytes   int  `json:"clientFlagsBytes,omitempty"`
	SlabReassign bool `json:"slabReassign"`
	// Classes are the sizes of the slab classes from 1 on, as the running server reported them. If empty,
	// they follow from the settings.
	Classes []int `json:"classes,omitempty"`

	// ProcessStarted is the Unix time that the items' times count from.
	ProcessStarted int64 `json:"processStarted"`
	// OldestLive: items last accessed at or before this time are flushed, in seconds after ProcessStarted; 0 means
	// never flushed. See flush.go for OldestCAS.
	OldestLive uint32 `json:"oldestLive"`
	OldestCAS  uint64 `json:"oldestCAS,omitempty"`
	// Base is the address at which the file was mapped; 0 unknown.
	Base uint64 `json:"base"`
	// StopTime is the Unix time of the save, 0 unknown.
	StopTime int64 `json:"stopTime,omitempty"`
	// Clock and NodeClock are the times of memcached's own clock and of its node's clock at the same moment:
	// that of the save, or of the latest answer. Both are Unix seconds; 0 unknown.
	Clock     int64 `json:"clock,omitempty"`
	NodeClock int64 `json:"nodeClock,omitempty"`

	// Version is memcached's, such as "1.6.18"; .meta doesn't have it.
	Version string `json:"version,omitempty"`
	// Items is the number of linked items: counted in the file after the save (ItemsExact), or the server's
	// latest curr_items.
	Items      int64 `json:"items"`
	ItemsExact bool  `json:"itemsExact,omitempty"`

	// External means that the running memcached keeps values in other files (extstore).
	External bool `json:"-"`
}

// MaxPageSize bounds the size of a slab page, in bytes.
const MaxPageSize = 64 << 20

// Complete adds the values of another image of the same memcached that .meta doesn't have: how many bytes
// client flags take, and the slab classes, which slab_config doesn't always show.
func (m *Image) Complete(known *Image) {
	if known != nil && known.ProcessStarted == m.ProcessStarted {
		m.FlagsBytes, m.Classes = known.FlagsBytes, known.Classes
	}
}

// Limits of memcached's slab allocator.
const (
	maxClass     = 63
	itemHeader   = 48
	chunkAlign   = 8
	smallestSlab = itemHeader
)

// Check refuses settings that no memcached can have run with. Check does not check whether the settings show the
// slab classes: only a reader needs these, and the server may have told them.
func (m *Image) Check() error {
	switch {
	case m.SlabPageSize < 1<<10 || m.SlabPageSize > MaxPageSize:
		return fmt.Errorf("slab_page_size %d is out of range", m.SlabPageSize)
	case m.SlabChunkMax < smallestSlab || m.SlabChunkMax > m.SlabPageSize:
		return fmt.Errorf("slab_chunk_size_max %d is out of range", m.SlabChunkMax)
	case m.MaxBytes < int64(m.SlabPageSize) || m.MaxBytes%int64(m.SlabPageSize) != 0:
		return fmt.Errorf("maxbytes %d is not a whole number of pages", m.MaxBytes)
	case m.ChunkSize < 0 || m.ChunkSize > math.MaxInt32: // if it is more than the largest slot, there is one class
		return fmt.Errorf("chunk_size %d is out of range", m.ChunkSize)
	case m.ItemSizeMax < itemHeader || int64(m.ItemSizeMax) > m.MaxBytes:
		return fmt.Errorf("item_size_max %d is out of range", m.ItemSizeMax)
	case m.FlagsBytes != 0 && m.FlagsBytes != item.SmallFlags && m.FlagsBytes != item.LargeFlags:
		return fmt.Errorf("client flags of %d bytes", m.FlagsBytes)
	case m.ProcessStarted <= 0 || m.ProcessStarted > math.MaxUint32:
		return fmt.Errorf("process_started %d is out of range", m.ProcessStarted)
	}
	for name, clock := range map[string]int64{"clock": m.Clock, "node_clock": m.NodeClock} {
		if clock < 0 || clock > math.MaxUint32 {
			return fmt.Errorf("%s %d is out of range", name, clock)
		}
	}
	return nil
}

// ShortPages tells whether slab pages have individual lengths. memcached loops forever when it restarts from
// such a file, and the pages can't be found in it.
//
// Source: memcached's slabs.c, do_slabs_newslab; restart.c, restart_fixup.
func (m *Image) ShortPages() bool { return !m.SlabReassign && m.SlabChunkMax == m.SlabPageSize }

// classes returns the slot size of each slab class; index 0 is unused.
//
// Source: memcached's slabs.c, slabs_init: starting at header plus -n, each
// size rounded up to 8, then multiplied by the factor and truncated, until the
// largest class, which is slab_chunk_size_max.
func (m *Image) classes() ([]int, error) {
	if len(m.Classes) > 0 {
		return m.toldClasses()
	}
	if strings.Contains(m.SlabConfig, "-") {
		return m.listedClasses()
	}
	factor, err := strconv.ParseFloat(m.SlabConfig, 64)
	if err != nil || !(factor > 1) || math.IsInf(factor, 1) {
		return nil, fmt.Errorf("slab_config %q is not a growth factor", m.SlabConfig)
	}
	sizes := []int{0}
	size := uint32(itemHeader + m.ChunkSize)
	for len(sizes) < maxClass && float64(size) < float64(m.SlabChunkMax)/factor {
		size = (size + chunkAlign - 1) / chunkAlign * chunkAlign
		sizes = append(sizes, int(size))
		size = uint32(float64(size) * factor)
	}
	return append(sizes, m.SlabChunkMax), nil
}

// listedClasses reads "-o slab_sizes=100-200-…".
func (m *Image) listedClasses() ([]int, error) {
	sizes := []int{0}
	for _, s := range strings.FieldsFunc(m.SlabConfig, func(r rune) bool { return r == '-' }) {
		n, err := strconv.Atoi(s)
		if err != nil || n < smallestSlab || n > m.SlabChunkMax || len(sizes) == maxClass {
			return nil, fmt.Errorf("slab_config %q is not a list of slab sizes", m.SlabConfig)
		}
		sizes = append(sizes, (n+chunkAlign-1)/chunkAlign*chunkAlign)
	}
	return append(sizes, m.SlabChunkMax), nil
}

// Listed adds the slab classes that a command line lists, if the server has told none. slab_config of one size reads as
// a growth factor.
func (m *Image) Listed(command []string) {
	if len(m.Classes) > 0 {
		return
	}
	list := ""
	for _, s := range commandline.Parse(command[min(1, len(command)):]).Suboptions() {
		if s.Name == "slab_sizes" {
			list = s.Value
		}
	}
	listed := Image{SlabConfig: list, SlabChunkMax: m.SlabChunkMax}
	if sizes, err := listed.listedClasses(); list != "" && err == nil {
		m.Classes = sizes[1:]
	}
}

// toldClasses returns the sizes that the server reported.
func (m *Image) toldClasses() ([]int, error) {
	if len(m.Classes) > maxClass || m.Classes[len(m.Classes)-1] != m.SlabChunkMax {
		return nil, fmt.Errorf("%d slab classes ending in %d do not fit the settings",
			len(m.Classes), m.Classes[len(m.Classes)-1])
	}
	for _, n := range m.Classes {
		if n < smallestSlab || n > m.SlabPageSize {
			return nil, fmt.Errorf("a slab class of %d bytes", n)
		}
	}
	return append([]int{0}, m.Classes...), nil
}

// SameSettings returns an error that names the first setting in which two images differ. The settings are those
// that memcached compares before it resumes.
func (m *Image) SameSettings(other *Image) error {
	for _, s := range []struct {
		name      string
		ours, its any
	}{
		{"maxbytes", m.MaxBytes, other.MaxBytes},
		{"chunk_size", m.ChunkSize, other.ChunkSize},
		{"item_size_max", m.ItemSizeMax, other.ItemSizeMax},
		{"slab_chunk_size_max", m.SlabChunkMax, other.SlabChunkMax},
		{"slab_page_size", m.SlabPageSize, other.SlabPageSize},
		{"use_cas", m.UseCAS, other.UseCAS},
		{"slab_reassign", m.SlabReassign, other.SlabReassign},
		{"slab_config", m.SlabConfig, other.SlabConfig},
	} {
		if s.ours != s.its {
			return fmt.Errorf("%s is %v there and %v here", s.name, s.ours, s.its)
		}
	}
	return nil
}
