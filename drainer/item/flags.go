package item

// How many bytes client flags other than 0 take in an item.
const (
	SmallFlags = 4
	// LargeFlags is for a memcached that was built with --enable-large-client-flags.
	LargeFlags = 8
)

// FlagsBytes returns how many bytes client flags take in a memcached, given its answer to "stats settings"; 0
// unknown. Versions that can be built with large flags (from 1.6.22 on) report it. A test with a flag of 2^32
// would not show it, because some versions silently truncate it.
func FlagsBytes(settings map[string]string) int {
	switch settings["client_flags_size"] {
	case "", "4":
		return SmallFlags
	case "8":
		return LargeFlags
	}
	return 0
}
