// Package commandline reads command lines: the drainer's own (flags.go), and memcached's. The latter are read as
// memcached reads them, by getopt_long and getsubopt: several letters in one argument, values in the same argument or in the
// next one, long names and their abbreviations, and the suboptions of -o.
package commandline

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Option is one option of memcached.
type Option struct {
	// Letter is the option's letter, also if the command line has its long name. If memcached would exit
	// because of the argument, Letter is Unknown, and Value is the argument.
	Letter byte
	// Value is "" if the option takes none.
	Value string
}

// Unknown is the Letter of an option that memcached doesn't know, and of an option whose value is missing.
const Unknown byte = '?'

// The letters of options that other packages ask for.
const (
	AuthFile   byte = 'Y'
	Daemon     byte = 'd'
	EnableTLS  byte = 'Z'
	Extended   byte = 'o'
	Growth     byte = 'f'
	Listen     byte = 'l'
	MaxItem    byte = 'I'
	MemoryFile byte = 'e'
	Memory     byte = 'm'
	User       byte = 'u'
	Verbose    byte = 'v'
)

// Options are in the order of the command line. If an option is repeated, the last one counts.
type Options []Option

// The letters of memcached's options. Source: memcached's memcached.c, main. Not every version has -D, -A and
// others.
const (
	plainLetters = "AZMkhiVrvdLCSFXW"
	valueLetters = "apsUmcluPfntDRbBIYeoN"
)

// longNames maps long names to letters. All options but those in plainLetters take a value.
var longNames = map[string]byte{
	"unix-mask": 'a', "enable-shutdown": 'A', "enable-ssl": EnableTLS, "port": 'p', "unix-socket": 's', "udp-port": 'U',
	"memory-limit": Memory, "disable-evictions": 'M', "conn-limit": 'c', "lock-memory": 'k', "help": 'h', "license": 'i',
	"version": 'V', "enable-coredumps": 'r', "verbose": Verbose, "daemon": Daemon, "listen": Listen, "user": User, "pidfile": 'P',
	"slab-growth-factor": Growth, "slab-min-size": 'n', "threads": 't', "enable-largepages": 'L', "max-reqs-per-event": 'R',
	"disable-cas": 'C', "listen-backlog": 'b', "protocol": 'B', "max-item-size": MaxItem, "enable-sasl": 'S',
	"disable-flush-all": 'F', "disable-dumping": 'X', "disable-watch": 'W', "auth-file": AuthFile, "memory-file": MemoryFile,
	"extended": Extended, "napi-ids": 'N',
}

// Parse reads the arguments, without the program's name. Parse ignores arguments that aren't options,
// as memcached does.
func Parse(arguments []string) (all Options) {
	for len(arguments) > 0 {
		a := arguments[0]
		arguments = arguments[1:]
		var read Options
		switch {
		case a == "--":
			return all
		case strings.HasPrefix(a, "--"):
			read, arguments = long(a, arguments)
		case len(a) > 1 && a[0] == '-':
			read, arguments = letters(a, arguments)
		}
		all = append(all, read...)
	}
	return all
}

// letters reads an argument with one hyphen, and the value that follows it.
func letters(a string, after []string) (read Options, rest []string) {
	for i := 1; i < len(a); i++ {
		letter := a[i]
		switch {
		case strings.IndexByte(plainLetters, letter) >= 0:
			read = append(read, Option{Letter: letter})
		case strings.IndexByte(valueLetters, letter) < 0:
			return append(read, Option{Unknown, a}), after
		case i+1 < len(a):
			return append(read, Option{letter, a[i+1:]}), after
		case len(after) == 0:
			return append(read, Option{Unknown, a}), after
		default:
			return append(read, Option{letter, after[0]}), after[1:]
		}
	}
	return read, after
}

// long reads an argument with two hyphens, and the value that follows it.
func long(a string, after []string) (read Options, rest []string) {
	name, value, has := strings.Cut(a[len("--"):], "=")
	letter := letterOf(name)
	switch {
	case letter == Unknown:
	case letter == Verbose: // an optional value, which has no meaning
		return Options{{Letter: letter}}, after
	case strings.IndexByte(plainLetters, letter) >= 0:
		if !has {
			return Options{{Letter: letter}}, after
		}
	case has:
		return Options{{letter, value}}, after
	case len(after) > 0:
		return Options{{letter, after[0]}}, after[1:]
	}
	return Options{{Unknown, a}}, after
}

// letterOf returns the letter of a long name, or of an unambiguous beginning of one.
func letterOf(name string) byte {
	if letter, ok := longNames[name]; ok {
		return letter
	}
	found := Unknown
	for known, letter := range longNames {
		if strings.HasPrefix(known, name) {
			if found != Unknown {
				return Unknown
			}
			found = letter
		}
	}
	return found
}

// Last returns the value that counts; false if the option isn't there.
func (o Options) Last(letter byte) (value string, there bool) {
	for i := len(o) - 1; i >= 0; i-- {
		if o[i].Letter == letter {
			return o[i].Value, true
		}
	}
	return "", false
}

// Suboption is one of -o's suboptions.
type Suboption struct{ Name, Value string }

// Suboptions returns the suboptions of all -o, in order.
func (o Options) Suboptions() (all []Suboption) {
	for _, option := range o {
		if option.Letter != Extended {
			continue
		}
		for part := range strings.SplitSeq(option.Value, ",") {
			name, value, _ := strings.Cut(part, "=")
			all = append(all, Suboption{name, value})
		}
	}
	return all
}

// MemoryLimit returns the size that memcached gives its warm file: -m, in bytes.
func (o Options) MemoryLimit() int64 {
	const most = 1 << 40 // in MiB: the number of bytes fits in an int64
	value, there := o.Last(Memory)
	if !there {
		return 64 << 20
	}
	return min(number(value), most) << 20
}

// pageSize is memcached's slab_page_size, in bytes.
const pageSize = 1 << 20

// ShortPages tells whether memcached may give its slab pages individual lengths, because it moves none and
// its largest slot is a page. From such a file memcached never restarts (see package warmfile). The order of
// the suboptions is ignored, so that the API's rule is the same.
//
// Source: memcached's memcached.c, main; slabs.c, do_slabs_newslab.
func (o Options) ShortPages() bool {
	unmodern, stays, unchunked, set, page := false, false, false, false, false
	for _, s := range o.Suboptions() {
		switch s.Name {
		case "no_modern":
			unmodern = true
		case "no_slab_reassign":
			stays = true
		case "no_chunked_items":
			unchunked = true
		case "slab_chunk_max": // in bytes or in KiB, depending on the version
			n := number(s.Value)
			set, page = true, page || n == pageSize || n == pageSize>>10
		}
	}
	if set {
		page = page || unchunked
	} else {
		page = (unmodern || unchunked) && o.maxItem() <= pageSize
	}
	return (unmodern || stays) && page
}

// External tells whether memcached keeps values in other files, by extstore. With extstore, memcached never
// restarts from its warm file.
//
// Source: memcached's memcached.c, main.
func (o Options) External() bool {
	return slices.ContainsFunc(o.Suboptions(), func(s Suboption) bool { return s.Name == "ext_path" })
}

// number returns the number that strtol reads from a text: space, a sign, digits; 0 if there are none.
func number(text string) int64 {
	text = strings.TrimPrefix(strings.TrimLeft(text, " \t\n\v\f\r"), "+")
	end := 0
	for end < len(text) && text[end] >= '0' && text[end] <= '9' {
		end++
	}
	n, _ := strconv.ParseInt(text[:end], 10, 63)
	return n
}

// maxItem returns -I, in bytes.
func (o Options) maxItem() int64 {
	value, there := o.Last(MaxItem)
	if !there || value == "" {
		return pageSize
	}
	unit := map[byte]int64{'k': 1 << 10, 'K': 1 << 10, 'm': 1 << 20, 'M': 1 << 20, 'g': 1 << 30, 'G': 1 << 30}[value[len(value)-1]]
	return number(value) * max(1, unit)
}

// IsSupervisors tells whether only the supervisor may set the option: the supervisor chooses the warm file
// and stays memcached's parent. An option whose value is missing counts, too.
func (o Option) IsSupervisors() bool {
	switch o.Letter {
	case MemoryFile, Daemon:
		return true
	case Unknown:
		return o.lacksValueOf() == MemoryFile
	}
	return false
}

// lacksValueOf returns the letter of the option whose value is missing.
func (o Option) lacksValueOf() byte {
	if name, isLong := strings.CutPrefix(o.Value, "--"); isLong {
		return letterOf(name)
	}
	return o.Value[len(o.Value)-1]
}

// neverStarts matches the arguments, with a space between them, if memcached exits at once because of the
// value of an option. The API's rule of extraArgs has the same expression. Values whose effect depends on the
// node or on other options are not in it.
//
// Source: memcached's memcached.c, main; tried with memcached 1.6.
var neverStarts = regexp.MustCompile(`(^| )(-[vkMrLACSFXWZ]*f ?|--slab-g[a-z-]*[= ])([+]?(0*1([.]0*)?|0+([.][0-9]*)?|[.][0-9]+)|[-a-zA-Z][^ ]*)( |$)` +
	`|(^| )(-[vkMrLACSFXWZ]*[nR] ?|--(slab-m|max-r)[a-z-]*[= ])([+]?0+([^0-9 ][^ ]*)?|[a-zA-Z.][^ ]*)( |$)` +
	`|(^| )(-[vkMrLACSFXWZ]*[nR] ?|--(slab-m|max-r)[a-z-]*[= ])(-[^ ]*|[0-9]{10,})( |$)` +
	`|((^| )(-[vkMrLACSFXWZ]*o ?|--ex[a-z]*[= ])|,)((hashpower|tail_repair_time|lru_crawler_(sleep|tocrawl)|read_buf_mem_limit|(hot|warm)_lru_pct|slab_chunk_max|w(atch|ork)er_logbuf_size|slab_automove_window|ext_([a-z]+_(size|age|ttl|rate|under|sleep|depth)|threads)|ssl_(wbuf_size|min_version))(=([0-9]*[^0-9 ,][^ ,]*|[0-9]{10,})?)?` +
	`|hashpower=0*([0-9]|1[0-2]|3[3-9]|[4-9][0-9]|[1-9][0-9]{2,})` +
	`|(hot|warm)_lru_pct=0*([89][0-9]|[1-9][0-9]{2,})?` +
	`|tail_repair_time=0*[0-9]?` +
	`|lru_crawler_sleep=0*([2-9][0-9]{6}|[1-9][0-9]{7,})` +
	`|slab_chunk_max=0+` +
	`|worker_logbuf_size=0*([1-3]?[0-9]|4[0-7]|5[3-9][0-9]{4}|[6-9][0-9]{5}|[1-9][0-9]{6,})` +
	`|slab_automove_window=0*([0-2]?|[1-9][0-9]{6,})` +
	`|slab_sizes(=([0-9-]*[^0-9 ,-][^ ,]*|-[^ ,]*|([0-9]+-)*0*([1-3]?[0-9]|4[0-7]|[1-9][0-9]{7,})(-[0-9-]*)?)?)?` +
	`|(slab_automove_(ratio|freeratio)|ext_max_frag|(hot|warm)_max_factor)(=([a-zA-Z][^ ,]*)?)?` +
	`|sock_cookie_id|temporary_ttl|idle_timeout|ssl_ciphers|ssl_min_version=0*([4-9]|[1-9][0-9]+)|proxy_[a-z]+(=[^ ,]*)?` +
	`|slab_automove_ratio=([+]?0*([.]0*)?|[+]?0*(1[.]0*[1-9][0-9]*|([2-9]|[1-9][0-9]+)([.][0-9]*)?)|-[^ ,]*)` +
	`|slab_automove=([+]?0*([3-9]|[1-9][0-9]+)|-[1-9][^ ,]*)` +
	`|(hot|warm)_max_factor=([+]?0*([.]0*)?|-[^ ,]*)` +
	`)([ ,]|$)`)

// NeverStarts tells whether memcached exits at once because of the value of an option, or becomes a proxy, which is no member.
func NeverStarts(arguments []string) bool {
	all := Parse(arguments).Suboptions()
	return neverStarts.MatchString(strings.Join(arguments, " ")) || slices.ContainsFunc(all, Suboption.unknownHash) || fullQueues(all)
}

// unknownHash tells whether memcached doesn't know the algorithm.
func (s Suboption) unknownHash() bool {
	return s.Name == "hash_algorithm" && !slices.Contains([]string{"jenkins", "murmur3", "xxh3"}, s.Value)
}

// fullQueues tells whether the queues of hot and warm items have more of the memory than memcached allows.
func fullQueues(all []Suboption) bool {
	const most = 80
	percent := map[string]int64{"warm_lru_pct": 40, "hot_lru_pct": 20}
	for _, s := range all {
		if _, there := percent[s.Name]; there {
			percent[s.Name] = number(s.Value) // the last one counts
		}
	}
	return percent["hot_lru_pct"]+percent["warm_lru_pct"] > most
}
