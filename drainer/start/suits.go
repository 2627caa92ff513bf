package start

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"example.com/memcached-operator/drainer/commandline"
	"example.com/memcached-operator/drainer/contract"
)

// suits returns why memcached might not resume from a readable warm file, nil if it will. A memcached that doesn't
// resume starts empty in that same file, or crashes. So suits first compares everything that memcached compares.
// suits computes no settings from the command line: only equal arguments are sure to mean the same.
func (f *Facts) suits(file *File) error {
	known := file.latest()
	switch {
	case file.MetaErr != nil:
		return fmt.Errorf("it had not saved: %s", contract.OneLine(file.MetaErr))
	case known == nil:
		return errors.New("no manifest says how the save was made")
	}
	if err := file.Meta.SameSettings(known); err != nil {
		return fmt.Errorf(".meta is not what memcached ran with: %w", err)
	}
	if before, now := shape(file.Manifest.Arguments), shape(f.Command); !slices.Equal(before, now) {
		return fmt.Errorf("it ran with other arguments: %q, now %q", before, now)
	}
	if f.VersionUnknown {
		return nil
	}
	if file.FlagsBytes != 0 && file.FlagsBytes != f.InstalledFlags {
		return fmt.Errorf("a memcached with client flags of %d bytes saved, the installed one's have %d", file.FlagsBytes, f.InstalledFlags)
	}
	return olderThan(known.Version, f.Installed)
}

// freeOptions may differ between the save and the start. Source: memcached's restart.c.
const freeOptions = "tcRplUuaPbsBDvZY"

// freeSuboptions is the prefix of those suboptions of -o that are about connections.
const freeSuboptions = "ssl_"

// shape returns a command line without memcached's path and without the options that don't matter to a warm
// file.
func shape(command []string) (kept []string) {
	for _, o := range commandline.Parse(command[min(1, len(command)):]) {
		switch {
		case strings.IndexByte(freeOptions, o.Letter) >= 0:
		case o.Letter == commandline.Extended:
			for s := range strings.SplitSeq(o.Value, ",") {
				if !strings.HasPrefix(s, freeSuboptions) {
					kept = append(kept, "-o", s)
				}
			}
		case o.Value == "":
			kept = append(kept, "-"+string(rune(o.Letter)))
		default:
			kept = append(kept, "-"+string(rune(o.Letter)), o.Value)
		}
	}
	return kept
}

// olderThan returns an error if the installed memcached may be older than the memcached that saved: an older
// one would reject the save.
func olderThan(saved, installed string) error {
	before, now := numbersOf(saved), numbersOf(installed)
	if before == nil || now == nil || slices.Compare(now, before) < 0 {
		return fmt.Errorf("memcached %q saved, %q is installed", saved, installed)
	}
	return nil
}

// numbersOf returns the parts of a version such as "1.6.18"; nil if it isn't one.
func numbersOf(version string) []int {
	var numbers []int
	for part := range strings.SplitSeq(version, ".") {
		digits := strings.TrimRight(part, "abcdefghijklmnopqrstuvwxyz-_ ")
		n, err := strconv.Atoi(digits)
		if err != nil {
			return nil
		}
		numbers = append(numbers, n)
	}
	return numbers
}

// MemoryLimit returns the size that memcached gives its warm file: -m, in bytes.
func MemoryLimit(command []string) int64 {
	return commandline.Parse(command[min(1, len(command)):]).MemoryLimit()
}
