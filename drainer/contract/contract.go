// Package contract has everything that the manager and the drainer agree on: flags, exit codes, the progress
// line and the receipt. The controllers import two of the drainer's packages, contract and routing. Package
// contract imports nothing but the standard library.
//
// Everything here crosses a process boundary between two versions of the operator: a Job that was started
// before an upgrade ends after it. So fields are only ever added.
package contract

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Exit codes of every drainer subcommand.
const (
	// ExitOK: the work is done and the receipt, if there is one, adds up.
	ExitOK = 0
	// ExitFailed: something failed that a retry may fix (a broken connection, an I/O error, a signal).
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
	// MetaFile is the file that memcached writes on SIGUSR1 and unlinks at its start.
	MetaFile = WarmFile + ".meta"
	// Manifest is written by "drainer supervise": the values that .meta would have, kept current while
	// memcached runs, so that a crash needs no .meta.
	Manifest = "manifest.json"
	// SaveFile has the used pages of a warm file, with its .meta and its manifest. "drainer supervise
	// --memory-dir" writes it to a volume that memcached doesn't map.
	SaveFile = "save"
	// InUse, on such a volume, says since when a member has been running, and from which save it started. No
	// save has the later writes of clients.
	InUse = "in-use"
	// EmptyFile has the serial for which the member has started empty (StepOut).
	EmptyFile = "started-empty"
	// ListFile is the clients' list that the member read last.
	ListFile = "list"
	// LockFile is empty. A process that uses the volume holds a lock on it.
	LockFile = "lock"
	// ReplayedFile records which items of a generation have been replayed. The file is beside the
	// generation's warm file or save.
	ReplayedFile = "replayed"
	// SpareFile reserves a little room beside a warm file that memcached maps. The supervisor removes it at a
	// planned end, to make room for the .meta and the manifest.
	SpareFile = "spare"
	// GenerationPrefix begins the name of a directory with an older warm file, its .meta and its manifest,
	// which "drainer supervise" keeps to replay it into a memcached that starts empty. A number follows; a
	// higher one is newer.
	GenerationPrefix = "generation-"
	// FailedSuffix ends the name of a generation that could not be replayed, and is not replayed again. A
	// drain reads such a generation.
	FailedSuffix = ".failed"
)

// TerminationLog is where the kubelet picks up the receipt
// (the container's terminationMessagePath).
const TerminationLog = "/dev/termination-log"

// SlowSave is the assumed speed of a save that has not been measured, in bytes per second: that of a slow
// disk.
const SlowSave = 16 << 20

// MaxReceiptBytes is the kubelet's limit for a termination message.
const MaxReceiptBytes = 4096

// ColdStart is a member's termination message, written in advance because a crash leaves no time to write:
// the member would start cold after an end without a save, because the volume has no room for a second warm
// file beside the one to be replayed.
type ColdStart struct {
	// NeedBytes is the size of a second file, FreeBytes is the free space on the volume.
	NeedBytes int64 `json:"coldStartNeedsBytes"`
	FreeBytes int64 `json:"freeBytes"`
	// SaveOutdated means that the member starts cold in any case, because the pod before it was lost without
	// a save.
	SaveOutdated bool `json:"saveOutdated,omitempty"`
	// BytesPerSecond is the rate of the latest known save, whether or not the start is cold; 0 if no save is
	// known.
	BytesPerSecond int64 `json:"saveBytesPerSecond,omitempty"`
	// SaveError is why the pod before could not save, if it was able to report that.
	SaveError string `json:"saveError,omitempty"`
	// SaveIncomplete says which part of that pod's save is missing; the rest is replayed.
	SaveIncomplete string `json:"saveIncomplete,omitempty"`
	// Unreadable is why the warm file can't be read. The file is kept, and a drain can read it.
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

// Saving is the termination message of a member that is saving. If the kubelet kills the member, the message
// says how far the save got.
type Saving struct {
	// SavedBytes is how many of the SaveBytes have been written.
	SavedBytes int64 `json:"savedBytes"`
	SaveBytes  int64 `json:"saveBytes"`
	// BytesPerSecond is the average rate so far.
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

// ParseSaveRate returns the rate of the save in a termination message, in bytes per second; 0 if there is
// none.
func ParseSaveRate(message string) int64 {
	var c ColdStart
	if json.Unmarshal([]byte(message), &c) != nil {
		return 0
	}
	const most = 1 << 40
	return min(max(0, c.BytesPerSecond), most)
}

// ReasonDeadlineExceeded is the reason of a receipt whose drainer ran for as long as --deadline allows. The
// exit code is ExitFailed, and the next attempt continues from there.
const ReasonDeadlineExceeded = "DeadlineExceeded"

// ReasonNotBegun is the reason of a receipt whose move was not told to begin within --begin-within. Nothing
// was moved. The exit code is ExitFailed.
const ReasonNotBegun = "NotBegun"

// ReasonSecretInvalid is a reason of receipts and Refusals: files of a Secret are missing, or memcached can't
// use them.
const ReasonSecretInvalid = "SecretInvalid"

// OldestMemcached is the oldest version that can be a member. Versions before 1.6.10 expect the size of a
// meta set in another position, and take its value for requests. Up to 1.6.12, a meta delete by CAS deletes
// nothing, and a meta set returns a wrong CAS value.
const OldestMemcached = "1.6.13"

// ReasonVersionTooOld is the reason of a Refusal of a memcached older than OldestMemcached.
const ReasonVersionTooOld = "VersionTooOld"

// The reasons of a Refusal that the member's volume causes.
const (
	ReasonVolumeFull     = "VolumeFull"
	ReasonVolumeReadOnly = "VolumeReadOnly"
	ReasonVolumeFailed   = "VolumeFailed"
)

// ReasonLayoutRefused is the reason of a Refusal of a memcached that would never restart from its own file.
const ReasonLayoutRefused = "LayoutRefused"

// Refusal is the termination message of a member that can't start or can't save.
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

// Phase is a step of a drain.
type Phase string

// The phases of a drain, in order.
const (
	PhaseConnecting Phase = "Connecting" // waiting for every survivor to answer
	PhasePrepared   Phase = "Prepared"   // a move waits until it may begin
	PhaseAdding     Phase = "Adding"     // reading the source and adding its items
	PhaseSettling   Phase = "Settling"   // a move waits for clients that are late; a copy goes on until it is told to end
	PhaseDone       Phase = "Done"       // the receipt is written
)

// Progress is one line of JSON on the drainer's standard output, written once
// a second and at every change of phase. Nothing else goes to standard output.
type Progress struct {
	Phase Phase `json:"phase"`
	// ItemsDone counts items with an outcome. ItemsTotal is the number of items expected in the source: 0 if
	// unknown, an estimate after a crash.
	ItemsDone  int64 `json:"itemsDone"`
	ItemsTotal int64 `json:"itemsTotal,omitempty"`
	// Pass counts the lists of a running member's items that have been moved: each list is a pass. PassDone and
	// PassTotal are the items of the present one. All three are left out if the source is no running member.
	Pass      int   `json:"pass,omitempty"`
	PassDone  int64 `json:"passDone,omitempty"`
	PassTotal int64 `json:"passTotal,omitempty"`
	// BytesDone and BytesTotal are bytes of the source file.
	BytesDone  int64 `json:"bytesDone"`
	BytesTotal int64 `json:"bytesTotal,omitempty"`
	// NothingLeft means that a pass over a leaving member found no item that another server owns. After that,
	// only clients with an old list can have stored something there.
	NothingLeft bool `json:"nothingLeft,omitempty"`
	// Warm means that a pass of a copy has brought less than a hundredth: the source's present items were
	// copied.
	Warm bool `json:"warm,omitempty"`
	// Late is the share of the member's requests, from 0 to 1, that clients still make by an earlier list: in
	// PhaseSettling, if it is known how many there were before.
	Late float64 `json:"late,omitempty"`
	// Seconds is the time since the phase began.
	Seconds float64 `json:"seconds,omitempty"`
	// Message says what the drainer is waiting for; empty if the drainer isn't waiting. WaitingSeconds is how
	// long the longest of these waits has taken. In PhaseSettling the message names the clients that still
	// call, in at most MaxCallers bytes.
	Message        string  `json:"message,omitempty"`
	WaitingSeconds float64 `json:"waitingSeconds,omitempty"`
	// SourceSilent means that the drainer is waiting for the source of a move, and not for a survivor.
	SourceSilent bool `json:"sourceSilent,omitempty"`
}

// MaxCallers bounds a message about clients, in bytes.
const MaxCallers = 256

// Outcomes counts items by their fate.
type Outcomes struct {
	// Added: this drain stored the item on the owner.
	Added int64 `json:"added"`
	// AlreadyPresent: the owner had a value for the key and keeps it. The value is a newer one from a client,
	// or an earlier attempt added it.
	AlreadyPresent int64 `json:"alreadyPresent"`
	// Expired: the item had expired, or expires within --skip-expiring-within.
	Expired int64 `json:"expired"`
	// Invalidated: the item was flushed, or a client marked it stale. For a move also: a client deleted the
	// item, or memcached evicted it, before it was read.
	Invalidated int64 `json:"invalidated"`
	// NoTextForm: the text protocol can't carry the item's key, so no client of a router can ask for it. The
	// item stays where it is.
	NoTextForm int64 `json:"noTextForm,omitempty"`
	// Rejected: the owner refused to store the item (too large, out of memory).
	Rejected int64 `json:"rejected"`
	// Failed: the owner did not answer.
	Failed int64 `json:"failed"`
}

// Survivor is the part of a receipt about one server.
type Survivor struct {
	Name     string `json:"name"`
	Added    int64  `json:"added"`
	Present  int64  `json:"present,omitempty"`
	Rejected int64  `json:"rejected,omitempty"`
	// Evictions is how many items the server evicted while items were added to it. EvictionsBefore is the
	// server's count from before.
	Evictions       int64 `json:"evictions,omitempty"`
	EvictionsBefore int64 `json:"evictionsBefore,omitempty"`
}

// Receipt is the drainer's termination message. After a drain, the receipt proves that the volume has no item
// left that a client could still ask for; after a move, that the member has no more items that another one
// owns.
type Receipt struct {
	// Version of this structure is 1.
	Version int `json:"version"`
	// Source is the value of --source-id: for a drain the claim's UID, for a move its claim and its ring.
	Source string `json:"source"`
	// Complete means that the source was read to its end, and each item passed the checks.
	Complete bool `json:"complete"`
	// Clean means that memcached had saved (a .meta was there); false after a crash.
	Clean bool `json:"clean"`
	// Found counts the live items in the source; Outcomes counts each of them once. For a move, Found counts
	// the items that another server owns.
	Found int64 `json:"found"`
	Outcomes
	// Bytes is the total size of keys and values of the items that were added.
	Bytes int64 `json:"bytes"`
	// Seconds is the time spent in each phase, for the attempt that wrote this receipt.
	Seconds map[Phase]float64 `json:"seconds,omitempty"`
	// Settled means that no client calls the leaving member any more; false if the move's patience ran out,
	// and for a source that doesn't leave.
	Settled bool `json:"settled,omitempty"`
	// SourceVersion is the version of the memcached that wrote the source.
	SourceVersion string `json:"sourceVersion,omitempty"`
	// Reader is how the source was read: ReaderWarmFile, ReaderLive or ReaderStream.
	Reader string `json:"reader,omitempty"`
	// The following fields are of a copy, whose Found and Outcomes count an item again in each pass that
	// finds it changed.
	// Passes is how many passes were made; LastFound and LastAdded are of the last whole one.
	Passes    int   `json:"passes,omitempty"`
	LastFound int64 `json:"lastFound,omitempty"`
	LastAdded int64 `json:"lastAdded,omitempty"`
	// Replaced counts those of Added that replaced an earlier value of the copy, because the item has changed
	// at the source. TooLarge counts those of Rejected that are larger than the owner's item size limit.
	Replaced int64 `json:"replaced,omitempty"`
	TooLarge int64 `json:"tooLarge,omitempty"`
	// LeftOut is how many items were left out: the servers have no room for them (AsMuchAsFits), it was not known whether
	// a client has deleted them, or an earlier run had not sent them when it ended (then they are among Earlier).
	LeftOut int64 `json:"leftOut,omitempty"`
	// Deleted counts earlier copies that were deleted at their owner: the source no longer has them, a router has marked
	// them, or the source has another version that is not copied.
	Deleted int64 `json:"deleted,omitempty"`
	// Earlier is how many items an earlier run of the copy has had, as the servers remember (Copy.Resume). They are
	// among AlreadyPresent.
	Earlier int64 `json:"earlier,omitempty"`
	// Demand is what each server would get, in ring order and in MiB (Copy.Count). Nothing was copied.
	Demand []int64 `json:"demand,omitempty"`
	// CantTell says what the source and the servers can't tell, e.g. CantTellAll.
	CantTell []string `json:"cantTell,omitempty"`
	// Survivors are in ring order. SurvivorsOmitted counts those that were left out so that the receipt fits
	// in MaxReceiptBytes.
	Survivors        []Survivor `json:"survivors,omitempty"`
	SurvivorsOmitted int        `json:"survivorsOmitted,omitempty"`
	// Reason is a CamelCase word and Message a sentence; both are set if the drain failed.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// ExitCode is the drainer's exit code.
	ExitCode int `json:"exitCode"`
}

// Failure is an error that has a reason and an exit code for the receipt.
type Failure interface {
	error
	// Failure returns the receipt's reason and the exit code.
	Failure() (reason string, exitCode int)
}

// Summary returns the receipt in one line, for people.
func (r *Receipt) Summary() string {
	if n := len(r.Demand); n > 0 {
		all := int64(0)
		for _, mib := range r.Demand {
			all += mib
		}
		return fmt.Sprintf("nothing was copied: %d servers would get %d MiB, and one of them %d MiB", n, all, slices.Max(r.Demand))
	}
	others := ""
	if r.NoTextForm > 0 {
		others = fmt.Sprintf(", %d without a text form", r.NoTextForm)
	}
	if r.LeftOut > 0 {
		others += fmt.Sprintf(", %d left out", r.LeftOut)
	}
	return fmt.Sprintf("%d items found: %d added, %d already present, %d expired, %d invalidated%s; %d bytes in %.1f s",
		r.Found, r.Added, r.AlreadyPresent, r.Expired, r.Invalidated, others, r.Bytes, r.Seconds[PhaseAdding])
}

// AddsUp returns nil if the receipt proves that the source of the given identity is
// drained, else an error that says which condition is missing.
func (r *Receipt) AddsUp(source string) error {
	const most = math.MaxInt64 / 5 // for each kind: the sum of five can't overflow
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
	case r.Found != sum: // this compares sums only: a missed item and one counted twice cancel out
		return fmt.Errorf("%d items were found but %d accounted for", r.Found, sum)
	}
	return nil
}

// Bounds, in bytes, of texts in a receipt that others wrote: a survivor's reply, the version in a manifest.
const (
	maxMessage = 1024
	maxVersion = 64
)

// Marshal encodes the receipt in at most MaxReceiptBytes: the kubelet would cut a longer one, which could not
// be parsed. Marshal leaves out survivors from the end of the list, then cuts the message, until the receipt
// fits, and returns an error if that is not enough.
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
			r.Message = cut(r.Message, len(r.Message)/2) // JSON may need six bytes for one
		default:
			return nil, fmt.Errorf("the receipt has %d bytes, where %d are the most", len(b), MaxReceiptBytes)
		}
	}
}

// cut returns the beginning of a text, in whole characters and at most that many bytes.
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
