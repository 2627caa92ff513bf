package item

// Bytes that client flags other than 0 take in an item.
const (
	SmallFlags = 4
	// LargeFlags are those of a memcached that was built with --enable-large-client-flags.
	LargeFlags = 8
)

// FlagsBytes returns how many bytes client flags have in a memcached, given its answer to
// "stats settings"; 0 unknown. Versions that can be built with large flags tell (from
// 1.6.22 on). Whether a memcached takes flags of 2^32 doesn't: some cut them silently.
func FlagsBytes(settings map[string]string) int {
	switch settings["client_flags_size"] {
	case "", "4":
		return SmallFlags
	case "8":
		return LargeFlags
	}
	return 0
}
