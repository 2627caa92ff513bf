package warmfile

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// metaKeys are the lines that every version of memcached writes; each must occur once. oldest_cas was written
// up to 1.6.24.
var metaKeys = []string{
	"slab_config", "maxbytes", "chunk_size", "item_size_max", "slab_chunk_size_max",
	"slab_page_size", "use_cas", "slab_reassign", "current_time", "process_started",
	"stop_time", "current_cas", "logger_gid", "hashpower", "oldest_live", "mmap_oldbase",
}

// maxHashPower is the largest hash table that memcached makes. If .meta has a larger one, memcached ends at
// its start.
const maxHashPower = 32

// ParseMeta reads the file that memcached writes beside its warm file when it saves: a line "Tmain", then
// lines "K<key> <value>". Unknown keys are skipped, as memcached skips them. Everything that memcached would
// reject or crash on is an error.
func ParseMeta(data []byte) (*Image, error) {
	body, ok := bytes.CutPrefix(data, []byte("Tmain\n"))
	if !ok || len(body) == 0 || body[len(body)-1] != '\n' {
		return nil, errors.New(".meta does not begin with Tmain or does not end in a whole line")
	}
	values := map[string]string{}
	for line := range strings.SplitSeq(string(body[:len(body)-1]), "\n") {
		key, value, ok := strings.Cut(strings.TrimPrefix(line, "K"), " ")
		if !ok || line[0] != 'K' {
			return nil, fmt.Errorf(".meta has a line %.40q that is not K<key> <value>", line)
		}
		if _, twice := values[key]; twice {
			return nil, fmt.Errorf(".meta has %s twice", key)
		}
		values[key] = value
	}
	for _, key := range metaKeys {
		if _, ok := values[key]; !ok {
			return nil, fmt.Errorf(".meta has no %s", key)
		}
	}
	return imageFromMeta(values)
}

func imageFromMeta(values map[string]string) (*Image, error) {
	f := fields{values: values}
	m := &Image{
		SlabConfig:     values["slab_config"],
		MaxBytes:       int64(f.uint("maxbytes", 62)),
		ChunkSize:      int(f.uint("chunk_size", 31)),
		ItemSizeMax:    int(f.uint("item_size_max", 31)),
		SlabChunkMax:   int(f.uint("slab_chunk_size_max", 31)),
		SlabPageSize:   int(f.uint("slab_page_size", 31)),
		UseCAS:         f.bool("use_cas"),
		SlabReassign:   f.bool("slab_reassign"),
		ProcessStarted: int64(f.uint("process_started", 62)),
		OldestLive:     uint32(f.uint("oldest_live", 32)),
		Base:           f.hex("mmap_oldbase"),
		StopTime:       int64(f.uint("stop_time", 62)),
	}
	m.Clock, m.NodeClock = m.ProcessStarted+int64(f.uint("current_time", 32)), m.StopTime
	if _, ok := values["oldest_cas"]; ok {
		m.OldestCAS = f.uint("oldest_cas", 64)
	}
	if f.uint("hashpower", 32) > maxHashPower {
		f.fail("hashpower")
	}
	f.uint("current_cas", 64)
	f.uint("logger_gid", 64)
	if f.err != nil {
		return nil, f.err
	}
	if m.Base == 0 {
		return nil, errors.New(".meta has an mmap_oldbase of 0")
	}
	return m, m.Check()
}

// fields remembers the first value that doesn't parse.
type fields struct {
	values map[string]string
	err    error
}

func (f *fields) fail(key string) {
	if f.err == nil {
		f.err = fmt.Errorf(".meta has a bad %s: %.40q", key, f.values[key])
	}
}

func (f *fields) uint(key string, bits int) uint64 {
	n, err := strconv.ParseUint(f.values[key], 10, bits)
	if err != nil {
		f.fail(key)
	}
	return n
}

func (f *fields) hex(key string) uint64 {
	n, err := strconv.ParseUint(strings.TrimPrefix(f.values[key], "0x"), 16, 64)
	if err != nil {
		f.fail(key)
	}
	return n
}

func (f *fields) bool(key string) bool {
	switch f.values[key] {
	case "true":
		return true
	case "false":
	default:
		f.fail(key)
	}
	return false
}
