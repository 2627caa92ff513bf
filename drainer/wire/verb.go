// Package wire reads memcached's text protocol, classic and meta: requests of clients, and answers of
// members. Package wire allocates nothing, keeps no references to its input, and does no input or output.
//
// Source: memcached's proto_text.c (1.6.18) and doc/protocol.txt.
package wire

// Verb is a command.
type Verb uint8

// The verbs. Verbs that a router answers itself come first.
const (
	Unknown Verb = iota
	Version
	Stats
	Verbosity
	Quit
	MetaNoop
	FlushAll
	Get
	Gets
	Gat
	Gats
	Set
	Add
	Replace
	Append
	Prepend
	Cas
	Incr
	Decr
	Touch
	Delete
	MetaGet
	MetaSet
	MetaDelete
	MetaArithmetic
	MetaDebug
	Verbs // the number of verbs
)

var names = [Verbs]string{
	Unknown: "unknown", Version: "version", Stats: "stats", Verbosity: "verbosity", Quit: "quit", MetaNoop: "mn",
	FlushAll: "flush_all", Get: "get", Gets: "gets", Gat: "gat", Gats: "gats", Set: "set", Add: "add",
	Replace: "replace", Append: "append", Prepend: "prepend", Cas: "cas", Incr: "incr", Decr: "decr",
	Touch: "touch", Delete: "delete", MetaGet: "mg", MetaSet: "ms", MetaDelete: "md", MetaArithmetic: "ma", MetaDebug: "me",
}

// String is the command's name.
func (v Verb) String() string { return names[v] }

// verbOf returns the verb of a command's name.
func verbOf(name []byte) Verb {
	switch string(name) { // the compiler searches by length and value
	case "get", "bget":
		return Get
	case "gets":
		return Gets
	case "gat":
		return Gat
	case "gats":
		return Gats
	case "set":
		return Set
	case "add":
		return Add
	case "replace":
		return Replace
	case "append":
		return Append
	case "prepend":
		return Prepend
	case "cas":
		return Cas
	case "incr":
		return Incr
	case "decr":
		return Decr
	case "touch":
		return Touch
	case "delete":
		return Delete
	}
	return rareVerb(name)
}

func rareVerb(name []byte) Verb {
	switch string(name) {
	case "mg":
		return MetaGet
	case "ms":
		return MetaSet
	case "md":
		return MetaDelete
	case "ma":
		return MetaArithmetic
	case "me":
		return MetaDebug
	case "mn":
		return MetaNoop
	case "version":
		return Version
	case "stats":
		return Stats
	case "verbosity":
		return Verbosity
	case "quit":
		return Quit
	case "flush_all":
		return FlushAll
	}
	return Unknown
}

// Reads tells whether the verb is a classic read, which may have many keys.
func (v Verb) Reads() bool { return v >= Get && v <= Gats }

// Stores tells whether a data block follows the line.
func (v Verb) Stores() bool { return v >= Set && v <= Cas || v == MetaSet }

// Meta tells whether the verb is a meta command with a key.
func (v Verb) Meta() bool { return v >= MetaGet && v <= MetaDebug }
