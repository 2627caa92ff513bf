// Package contract is what the manager and the drainer agree on: flags, exit
// codes, the progress line and the receipt. Of the drainer's packages the
// controllers import this one and routing. It imports nothing but the standard
// library.
//
// Everything here crosses a process boundary between two versions of the
// operator (a Job that was started before an upgrade ends after it), so fields
// are only ever added.
package contract

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
)

// Exit codes of every drainer subcommand.
const (
	// ExitOK: the work is done and the receipt, if there is one, adds up.
	ExitOK = 0
	// ExitFailed: something failed that a retry may mend (a connection that
	// broke for good, an I/O error, a signal).
	ExitFailed = 1
	// ExitUsage: the arguments, or the servers that they name, are wrong. A retry can't help.
	ExitUsage = 2
	// ExitUnrecoverable: the source can't be read as a warm file (missing,
	// empty, foreign, corrupt, unknown layout, node went down without a save).
	// A retry can't help.
	ExitUnrecoverable = 3
	// ExitUnreachable: a survivor, or the source of a move, did not answer within
	// --unreachable-timeout.
	ExitUnreachable = 4
	// ExitRejected: the source was read to its end, but a survivor refused
	// items (too large for its -I, out of memory). The receipt says how many.
	ExitRejected = 5
)

// NoRetry lists the exit codes after which the Job must fail at once.
var NoRetry = []int32{ExitUsage, ExitUnrecoverable}

// Files on a member's volume, relative to its root.
const (
	// WarmFile is memcached's -e file; memcached writes WarmFile+".meta" beside it.
	WarmFile = "memory_file"
	// MetaFile is what memcached writes on SIGUSR1 and unlinks at its start.
	MetaFile = WarmFile + ".meta"
	// Manifest is written by "drainer supervise": what .meta would say, kept
	// current while memcached runs, so that a crash needs no .meta.
	Manifest = "manifest.json"
	// SaveFile is a warm file's used pages with its .meta and its manifest, on a
	// volume that memcached doesn't map: "drainer supervise --memory-dir" writes it.
	SaveFile = "save"
	// InUse, on such a volume, says since when a member has been running, and from
	// which save: what clients have written since is in no save.
	InUse = "in-use"
	// ListFile is the clients' list as the member knew it last.
	ListFile = "list"
	// LockFile is empty: whoever uses the volume has a lock on it.
	LockFile = "lock"
	// ReplayedFile is beside the warm file, or the save, of a generation: which of its items have
	// been replayed.
	ReplayedFile = "replayed"
	// SpareFile takes a little room beside a warm file that memcached maps, for what is written at a
	// planned end: its .meta and the manifest. It is removed before that.
	SpareFile = "spare"
	// GenerationPrefix begins the name of a directory with an older warm file, its
	// .meta and its manifest: what "drainer supervise" keeps to replay it into a
	// memcached that starts empty. A number follows, higher is newer.
	GenerationPrefix = "generation-"
	// FailedSuffix ends the name of a generation that could not be replayed. No replay
	// tries it again, but a drain reads it.
	FailedSuffix = ".failed"
)

// TerminationLog is where the kubelet picks up the receipt
// (the container's terminationMessagePath).
const TerminationLog = "/dev/termination-log"

// SlowSave is how many bytes a second a save is written that nobody has measured: a slow
// disk.
const SlowSave = 16 << 20

// MaxReceiptBytes is the kubelet's limit for a termination message.
const MaxReceiptBytes = 4096

// ColdStart is a member's termination message, written in advance because a crash
// leaves no time. It says that after an end without a save the member would start cold,
// because the volume has no room for a second warm file beside the one to be replayed.
type ColdStart struct {
	// NeedBytes is the size of a second file, FreeBytes the room for it.
	NeedBytes int64 `json:"coldStartNeedsBytes"`
	FreeBytes int64 `json:"freeBytes"`
	// SaveOutdated: it starts cold in any case, because the pod before it was lost
	// without a save.
	SaveOutdated bool `json:"saveOutdated,omitempty"`
	// BytesPerSecond is the rate of the latest save that is known of, whether or not the
	// start is cold; 0 none.
	BytesPerSecond int64 `json:"saveBytesPerSecond,omitempty"`
	// SaveError is why that pod could not save, if it lived to say so.
	SaveError string `json:"saveError,omitempty"`
	// SaveIncomplete is what is missing of that pod's save; the rest is replayed.
	SaveIncomplete string `json:"saveIncomplete,omitempty"`
	// Unreadable is why its file can't be read; a drain can look at what is kept of it.
	Unreadable string `json:"unreadable,omitempty"`
}

// ParseColdStart decodes a termination message; nil if it is something else.
func ParseColdStart(message string) *ColdStart {
	var c ColdStart
	if json.Unmarshal([]byte(message), &c) != nil || c.NeedBytes <= c.FreeBytes && !c.SaveOutdated && c.SaveIncomplete == "" && c.Unreadable == "" {
		return nil
	}
	return &c
}

// Saving is the termination message of a member that saves: how far it is. If the kubelet
// kills the member, that is how far it came.
type Saving struct {
	// SavedBytes of SaveBytes are written.
	SavedBytes int64 `json:"savedBytes"`
	SaveBytes  int64 `json:"saveBytes"`
	// BytesPerSecond so far.
	BytesPerSecond int64 `json:"saveBytesPerSecond"`
}

// ParseSaving decodes a termination message; nil if it is something else.
func ParseSaving(message string) *Saving {
	var s Saving
	if json.Unmarshal([]byte(message), &s) != nil || s.SaveBytes <= 0 {
		return nil
	}
	return &s
}

// ParseSaveRate finds the rate of a save in a termination message, in bytes a second; 0 none.
func ParseSaveRate(message string) int64 {
	var c ColdStart
	if json.Unmarshal([]byte(message), &c) != nil {
		return 0
	}
	const most = 1 << 40
	return min(max(0, c.BytesPerSecond), most)
}

// ReasonDeadlineExceeded is that of a receipt: the drainer was at work for as long as
// --deadline allows. It ends with ExitFailed, and another one goes on from there.
const ReasonDeadlineExceeded = "DeadlineExceeded"

// ReasonNotBegun is that of a receipt: within --begin-within nobody said that the move may
// begin. Nothing was moved. It ends with ExitFailed.
const ReasonNotBegun = "NotBegun"

// ReasonSecretInvalid is that of a receipt and of a Refusal: the files of a Secret are
// missing, or memcached can't use them.
const ReasonSecretInvalid = "SecretInvalid"

// OldestMemcached is the oldest version that can be a member. Those before 1.6.10 want the size of a
// meta set in another place, and read its value as requests; up to 1.6.12 a meta delete by CAS deletes
// nothing, and a meta set returns a wrong CAS value.
const OldestMemcached = "1.6.13"

// ReasonVersionTooOld is that of a Refusal: memcached is older than OldestMemcached.
const ReasonVersionTooOld = "VersionTooOld"

// Reasons of a Refusal: what the member's volume does not take.
const (
	ReasonVolumeFull     = "VolumeFull"
	ReasonVolumeReadOnly = "VolumeReadOnly"
	ReasonVolumeFailed   = "VolumeFailed"
)

// ReasonLayoutRefused is that of a Refusal of a memcached that never restarts from its own file.
const ReasonLayoutRefused = "LayoutRefused"

// Refusal is the termination message of a member that does not start, or can't save.
type Refusal struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// ParseRefusal decodes a termination message; nil if it is something else.
func ParseRefusal(message string) *Refusal {
	var r Refusal
	if json.Unmarshal([]byte(message), &r) != nil || r.Reason == "" {
		return nil
	}
	return &r
}

// Phase of a drain, in order.
type Phase string

// The phases of a drain.
const (
	PhaseConnecting Phase = "Connecting" // waiting for every survivor to answer
	PhasePrepared   Phase = "Prepared"   // a move waits until it may begin
	PhaseAdding     Phase = "Adding"     // reading the source and adding its items
	PhaseSettling   Phase = "Settling"   // a member that leaves waits for its last client
	PhaseDone       Phase = "Done"       // the receipt is written
)

// Progress is one line of JSON on the drainer's standard output, written once
// a second and at every change of phase. Nothing else goes to standard output.
type Progress struct {
	Phase Phase `json:"phase"`
	// ItemsDone counts items with an outcome, ItemsTotal those that are expected in the
	// source (0: unknown; an estimate after a crash).
	ItemsDone  int64 `json:"itemsDone"`
	ItemsTotal int64 `json:"itemsTotal,omitempty"`
	// BytesDone and BytesTotal count bytes of the source file.
	BytesDone  int64 `json:"bytesDone"`
	BytesTotal int64 `json:"bytesTotal,omitempty"`
	// NothingLeft: a pass over a member that leaves has found nothing that another server owns. From
	// then on only clients with an old list can have stored something there.
	NothingLeft bool `json:"nothingLeft,omitempty"`
	// Seconds since the phase began.
	Seconds float64 `json:"seconds,omitempty"`
	// Message says what the drainer waits for, if anything, and WaitingSeconds for how
	// long, at most. In PhaseSettling it names the clients that still call, in at most
	// MaxCallers bytes.
	Message        string  `json:"message,omitempty"`
	WaitingSeconds float64 `json:"waitingSeconds,omitempty"`
	// SourceSilent: it waits for the source of a move; otherwise for a survivor.
	SourceSilent bool `json:"sourceSilent,omitempty"`
}

// MaxCallers is the size of a message about clients at most, in bytes.
const MaxCallers = 256

// Outcomes counts items by what became of them.
type Outcomes struct {
	// Added: stored on the owner by this drain.
	Added int64 `json:"added"`
	// AlreadyPresent: the owner had a value for the key and keeps it (a newer one from
	// a client, or ours from an earlier attempt).
	AlreadyPresent int64 `json:"alreadyPresent"`
	// Expired: its time of expiry was over (or is within --skip-expiring-within).
	Expired int64 `json:"expired"`
	// Invalidated: flushed, or marked stale by a client; of a move, also
	// deleted by a client, or evicted, before it was read.
	Invalidated int64 `json:"invalidated"`
	// NoTextForm: the text protocol doesn't carry its key, so no client of a router can ask for it.
	// It was left where it is.
	NoTextForm int64 `json:"noTextForm,omitempty"`
	// Rejected: the owner refused to store it (too large, out of memory).
	Rejected int64 `json:"rejected"`
	// Failed: there was no answer for it.
	Failed int64 `json:"failed"`
}

// Survivor is one line of a receipt: what went to one server.
type Survivor struct {
	Name     string `json:"name"`
	Added    int64  `json:"added"`
	Present  int64  `json:"present,omitempty"`
	Rejected int64  `json:"rejected,omitempty"`
	// Evictions of the server while items were added to it; EvictionsBefore is what it
	// had counted until then.
	Evictions       int64 `json:"evictions,omitempty"`
	EvictionsBefore int64 `json:"evictionsBefore,omitempty"`
}

// Receipt is the drainer's termination message. After a drain it proves that nothing is
// left on the volume that a client could still ask for; after a move, that the
// member has no more items that another one owns.
type Receipt struct {
	// Version of this structure; 1.
	Version int `json:"version"`
	// Source is what --source-id was: of a drain the claim's UID, of a move its claim
	// and its ring.
	Source string `json:"source"`
	// Complete: the source was read to its end, and each item passed the checks.
	Complete bool `json:"complete"`
	// Clean: memcached had saved (a .meta was there); false after a crash.
	Clean bool `json:"clean"`
	// Found counts the live items in the source; every one is in Outcomes once.
	// Of a move, those that another server owns.
	Found int64 `json:"found"`
	Outcomes
	// Bytes of keys and values of the items that were added.
	Bytes int64 `json:"bytes"`
	// Seconds by phase of the attempt that wrote this receipt.
	Seconds map[Phase]float64 `json:"seconds,omitempty"`
	// Settled: no client called the member that leaves any more. False if its patience was
	// over, and of a source that doesn't leave.
	Settled bool `json:"settled,omitempty"`
	// SourceVersion is the version of the memcached that wrote the source.
	SourceVersion string `json:"sourceVersion,omitempty"`
	// Reader that read the source: ReaderWarmFile, ReaderLive or ReaderStream.
	Reader string `json:"reader,omitempty"`
	// Survivors, in ring order; SurvivorsOmitted counts those left out so that
	// the receipt fits in MaxReceiptBytes.
	Survivors        []Survivor `json:"survivors,omitempty"`
	SurvivorsOmitted int        `json:"survivorsOmitted,omitempty"`
	// Reason is a CamelCase word, Message a sentence, if the drain failed.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// ExitCode that the drainer ended with.
	ExitCode int `json:"exitCode"`
}

// Failure is an error that knows what a receipt says of it.
type Failure interface {
	error
	// Failure is the receipt's reason and the exit code.
	Failure() (reason string, exitCode int)
}

// Summary is the receipt for people, in one line.
func (r *Receipt) Summary() string {
	noTextForm := ""
	if r.NoTextForm > 0 {
		noTextForm = fmt.Sprintf(", %d without a text form", r.NoTextForm)
	}
	return fmt.Sprintf("%d items found: %d added, %d already present, %d expired, %d invalidated%s; %d bytes in %.1f s",
		r.Found, r.Added, r.AlreadyPresent, r.Expired, r.Invalidated, noTextForm, r.Bytes, r.Seconds[PhaseAdding])
}

// AddsUp returns nil if the receipt proves that the source of the given identity is
// drained, else an error that says which condition is missing.
func (r *Receipt) AddsUp(source string) error {
	const most = math.MaxInt64 / 5 // of one kind: five of them don't wrap
	switch sum := r.Added + r.AlreadyPresent + r.Expired + r.Invalidated + r.NoTextForm; {
	case r.Source != source:
		return fmt.Errorf("the receipt is for %q, not for %q", r.Source, source)
	case r.Reason != "" || r.ExitCode != ExitOK:
		return fmt.Errorf("the drainer failed: %s (exit code %d): %s", r.Reason, r.ExitCode, r.Message)
	case !r.Complete:
		return errors.New("the source was not read to its end")
	case min(r.Found, r.Added, r.AlreadyPresent, r.Expired, r.Invalidated, r.NoTextForm) < 0:
		return errors.New("the receipt counts less than no items")
	case max(r.Added, r.AlreadyPresent, r.Expired, r.Invalidated, r.NoTextForm) > most:
		return errors.New("the receipt counts more items than there can be")
	case r.Rejected != 0 || r.Failed != 0:
		return fmt.Errorf("%d items were rejected and %d failed", r.Rejected, r.Failed)
	case r.Found != sum: // a sum only: an item missed and another one counted twice cancel out
		return fmt.Errorf("%d items were found but %d accounted for", r.Found, sum)
	}
	return nil
}

// What a receipt has room for, in bytes, of texts that others wrote: a survivor's reply,
// the version in a manifest.
const (
	maxMessage = 1024
	maxVersion = 64
)

// Marshal encodes the receipt in at most MaxReceiptBytes: the kubelet would cut a longer
// one, and nobody could read it. Survivors are left out from the end of the list until it
// fits, then the message is cut. An error tells that it can't fit.
func (r Receipt) Marshal() ([]byte, error) {
	r.Message, r.SourceVersion = cut(r.Message, maxMessage), cut(r.SourceVersion, maxVersion)
	for {
		b, err := json.Marshal(r)
		switch n := len(r.Survivors); {
		case err != nil:
			return nil, err
		case len(b) <= MaxReceiptBytes:
			return b, nil
		case n > 0:
			r.Survivors = r.Survivors[:n/2]
			r.SurvivorsOmitted += n - n/2
		case r.Message != "":
			r.Message = cut(r.Message, len(r.Message)/2) // JSON may write one byte as six
		default:
			return nil, fmt.Errorf("the receipt has %d bytes, where %d are the most", len(b), MaxReceiptBytes)
		}
	}
}

// cut returns the beginning of a text, of whole characters, in at most that many bytes.
func cut(s string, most int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "")
}

// ParseReceipt decodes a termination message.
func ParseReceipt(message string) (*Receipt, error) {
	switch {
	case message == "":
		return nil, errors.New("the drainer left no receipt")
	case len(message) > MaxReceiptBytes:
		return nil, fmt.Errorf("the drainer left no receipt, but %d bytes, where %d are the most", len(message), MaxReceiptBytes)
	}
	var r Receipt
	if err := json.Unmarshal([]byte(message), &r); err != nil {
		return nil, fmt.Errorf("the drainer left no receipt, but %.120q: %w", message, err)
	}
	if r.Version != 1 {
		return nil, fmt.Errorf("receipt version %d is not known", r.Version)
	}
	return &r, nil
}
