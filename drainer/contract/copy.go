package contract

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Names of the flags of "drainer copy" that no other command has.
const (
	FlagFrom           = "from"
	FlagFromClient     = "from-client"
	FlagFromKeyPrefix  = "from-key-prefix"
	FlagFromExportPort = "from-export-port"
	FlagFromTLSDir     = "from-tls-dir"
	FlagFromAuthFile   = "from-auth-file"
	FlagPasses         = "passes"
	FlagAsMuchAsFits   = "as-much-as-fits"
	FlagMarks          = "marks"
	FlagUntilFile      = "until-file"
	FlagUntilWhen      = "until-when"
	FlagCount          = "count"
	FlagBesides        = "besides"
	FlagResume         = "resume"
)

// How a value of FlagFrom begins.
const (
	// FromMemcached precedes addresses: HOST:PORT[,HOST:PORT…].
	FromMemcached = "memcached:"
	// FromDiscovery precedes the HOST:PORT of an endpoint that answers "config get cluster" with the servers.
	FromDiscovery = "discovery:"
	// FromVolumes precedes directories: PATH[,PATH…]. Each is a member's volume, mounted read-only.
	FromVolumes = "volumes:"
)

// Copy holds the arguments of "drainer copy", which fills the Servers from another cache, and changes nothing
// there.
type Copy struct {
	// From are the sources, as FlagFrom has them. All are memcacheds (FromMemcached, FromDiscovery), or all are
	// FromVolumes.
	From []string
	// FromClient names the routing of the source's clients, and FromKeyPrefix is their prefix; "" unknown. If
	// the routing is known, an item on a server where clients don't look for it is left out, and the sources
	// are in ring order.
	FromClient, FromKeyPrefix string
	// FromExportPort is where the supervisors of the sources stream their items; 0 if they are no members of
	// ours. A source that can't be reached there is listed.
	FromExportPort int32
	// FromConnection is used for the sources, and Connection for the Servers.
	FromConnection Connection
	// Passes bounds the passes; 0: until one brings less than a hundredth.
	Passes int
	// AsMuchAsFits copies to servers that have no room for all items: most recently used first, until the room is
	// used. Otherwise the copy ends with ReasonTargetTooSmall before the first item.
	AsMuchAsFits bool
	// Marks means that the Servers' routers mark keys that clients change (FlagOnMiss). Marked keys are left
	// out, also those that a client has deleted before they were copied.
	Marks bool
	// Until says when the copy ends.
	Until Until
	// Count means that volumes are only read, and nothing is copied: the receipt's Demand says what each server would
	// get. If that is too much, the copy ends with ReasonTargetTooSmall, unless AsMuchAsFits is set.
	Count bool
	// Besides is what each of the Servers gets from other volumes, in MiB; nil for nothing. It counts when it is
	// decided whether the servers are too small, and is part of Demand.
	Besides []int64
	// Resume names a copy from volumes, so that one that was interrupted goes on where it was: the Servers remember
	// how far a copy of this name is, and for an hour that it is complete. "": a copy begins at the beginning.
	Resume string
	Transfer
}

// FlagUntilStopped is for people: the copy goes on, pass after pass, until a signal.
const FlagUntilStopped = "until-stopped"

// Until says when a copy ends that goes on after its first passes.
type Until struct {
	// File shows an annotation of the copy's pod, through the downward API. The copy goes on, pass after
	// pass, until the file's text is When, and then makes a last pass. If File is "", the copy doesn't go on.
	File, When string
}

// Args renders the command line, without the program's name.
func (c Copy) Args() []string {
	args := []string{"copy"}
	for _, f := range c.From {
		args = append(args, "--"+FlagFrom+"="+f)
	}
	port, passes := "", ""
	if c.FromExportPort > 0 {
		port = strconv.Itoa(int(c.FromExportPort))
	}
	if c.Passes > 0 {
		passes = strconv.Itoa(c.Passes)
	}
	for _, f := range [][2]string{{FlagFromClient, c.FromClient}, {FlagFromKeyPrefix, c.FromKeyPrefix}, {FlagFromExportPort, port},
		{FlagFromTLSDir, c.FromConnection.TLSDir}, {FlagFromAuthFile, c.FromConnection.AuthFile},
		{FlagPasses, passes}, {FlagUntilFile, c.Until.File}, {FlagUntilWhen, c.Until.When}, {FlagBesides, Numbers(c.Besides)}, {FlagResume, c.Resume}} {
		if f[1] != "" {
			args = append(args, "--"+f[0]+"="+f[1])
		}
	}
	if c.AsMuchAsFits {
		args = append(args, "--"+FlagAsMuchAsFits)
	}
	if c.Marks {
		args = append(args, "--"+FlagMarks)
	}
	if c.Count {
		args = append(args, "--"+FlagCount)
	}
	return append(args, c.args()...)
}

// Numbers renders numbers for a flag.
func Numbers(all []int64) string {
	var text []string
	for _, n := range all {
		text = append(text, strconv.FormatInt(n, 10))
	}
	return strings.Join(text, ",")
}

// ParseNumbers is the inverse of Numbers, for numbers from 0 to MaxDemand.
func ParseNumbers(text string) (all []int64, err error) {
	for word := range strings.SplitSeq(text, ",") {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil || n < 0 || n > MaxDemand {
			return nil, fmt.Errorf("%.40q is not a number of MiB", word)
		}
		all = append(all, n)
	}
	return all, nil
}

// MaxDemand is more MiB than a server has.
const MaxDemand = 1 << 40

// Reasons in the receipt of a copy that a person has to know. The exit code of all of them is ExitUsage: no retry
// helps.
const (
	// ReasonListingRefused: a source doesn't list its items (-X, -o no_lru_crawler, a managed service). Nothing was
	// copied. The routers can ask it instead (warmFrom.onMiss). A move has this reason, too.
	ReasonListingRefused = "ListingRefused"
	// ReasonTargetTooSmall: the servers have no room for what the source has. Nothing was copied.
	ReasonTargetTooSmall = "TargetTooSmall"
	// ReasonSourceTooOld: a source is older than OldestSource, or no memcached.
	ReasonSourceTooOld = "SourceTooOld"
	// ReasonSourceIsServer: a source is one of the servers. A move has this reason, too.
	ReasonSourceIsServer = "SourceIsServer"
	// ReasonNoSource: the endpoint for discovery names no servers, or too many.
	ReasonNoSource = "NoSource"
)

// OldestSource is the oldest memcached that lists its items (lru_crawler metadump).
const OldestSource = "1.4.31"

// Properties of items that a source, or a server that items are copied to, can't tell (Receipt.CantTell).
const (
	// CantTellAll: the source lists its items by age, and overlooks those that are in use meanwhile. The next pass
	// finds most of them.
	CantTellAll = "All"
	// CantTellChanges: the source keeps no CAS (-C). If a client changes a value while it is copied, the old
	// value may be copied.
	CantTellChanges = "Changes"
	// CantTellBinaryKeys: the source is too old to be asked for keys that are no text.
	CantTellBinaryKeys = "BinaryKeys"
	// CantTellCopies: a server is too old (before 1.6.27), keeps no CAS (-C), or refuses items when it is full (-M). An
	// item that a copy has stored there looks like a client's, so a later pass never replaces it by a newer value of
	// the source, and never deletes it.
	CantTellCopies = "Copies"
)

// Copied returns nil if the receipt says that the source of the given identity was copied: everything but the items
// that the servers refused (Rejected, TooLarge).
func (r *Receipt) Copied(source string) error {
	if r.Rejected < 0 {
		return errors.New("the receipt counts less than no items")
	}
	rest := *r
	rest.Rejected, rest.Found = 0, r.Found-r.Rejected
	if err := rest.AddsUp(source); err != nil {
		return err
	}
	if r.Passes < 1 {
		return fmt.Errorf("the receipt is of %d passes", r.Passes)
	}
	return nil
}

// Counted returns nil if the receipt says what so many servers would get from the source of the given identity.
func (r *Receipt) Counted(source string, servers int) error {
	switch {
	case r.Source != source:
		return fmt.Errorf("the receipt is for %q, not for %q", r.Source, source)
	case r.Reason != "" || r.ExitCode != ExitOK:
		return fmt.Errorf("the drainer failed: %s (exit code %d): %s", r.Reason, r.ExitCode, r.Message)
	case !r.Complete:
		return errors.New("the source was not read to its end")
	case len(r.Demand) != servers || slices.Min(r.Demand) < 0 || slices.Max(r.Demand) > MaxDemand:
		return fmt.Errorf("the receipt does not say what each of %d servers would get", servers)
	}
	return nil
}
