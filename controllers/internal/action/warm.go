package action

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"example.com/memcached-operator/drainer/contract"
)

// WarmResult says how the warming from a source has ended.
type WarmResult string

// The results.
const (
	// WarmOpen: there is more to copy.
	WarmOpen WarmResult = ""
	// WarmCopied: the source was copied.
	WarmCopied WarmResult = "Warm"
	// WarmSkipped: a person has skipped the warming.
	WarmSkipped WarmResult = "Skipped"
	// WarmOnMiss: the source can't be listed, and routers ask it for what they miss.
	WarmOnMiss WarmResult = "OnMiss"
	// WarmGivenUp: the source could not be copied for as long as the spec says.
	WarmGivenUp WarmResult = "GivenUp"
)

// WarmRecord is the Memcached's record of its warming. Any client may have written it.
type WarmRecord struct {
	// UID is of the Memcached: a record that a backup has brought to another one doesn't count.
	UID types.UID `json:"uid"`
	// Source names the source, and Result says how its warming has ended.
	Source string     `json:"source"`
	Result WarmResult `json:"result,omitempty"`
	// Since is when the warming that is open has failed first since it last copied something or waited for the cluster, or
	// its source was not there; zero if neither. Why is the reason for which it was given up.
	Since time.Time `json:"since,omitzero"`
	Why   string    `json:"why,omitempty"`
	// Owes: the last Job was at work when another copy was asked for, so the next one answers that.
	Owes bool `json:"owes,omitempty"`
	// Jobs counts the Jobs whose receipt is recorded, without those that only count.
	Jobs int32 `json:"jobs,omitempty"`
	// Claims are those of the source's claims that were copied, as hashes of their UIDs.
	Claims []string `json:"claims,omitempty"`
	// Counted are the claims whose items were counted before the first one is copied, and Needs is what each member would
	// get from all of them by the ring of that name, in MiB.
	Counted []string `json:"counted,omitempty"`
	Needs   []int64  `json:"needs,omitempty"`
	Ring    string   `json:"ring,omitempty"`
	// The sums of the receipts.
	Passes         int64    `json:"passes,omitempty"`
	Found          int64    `json:"found,omitempty"`
	Added          int64    `json:"added,omitempty"`
	AlreadyPresent int64    `json:"alreadyPresent,omitempty"`
	Expired        int64    `json:"expired,omitempty"`
	Invalidated    int64    `json:"invalidated,omitempty"`
	Rejected       int64    `json:"rejected,omitempty"`
	LeftOut        int64    `json:"leftOut,omitempty"`
	Bytes          int64    `json:"bytes,omitempty"`
	CantTell       []string `json:"cantTell,omitempty"`
	// At is when the last of these receipts was recorded.
	At time.Time `json:"at,omitzero"`
}

// Bounds of a record.
const (
	// MaxWarmClaims is how many claims a source may have.
	MaxWarmClaims = 64
	maxWarmRecord = 16 << 10
	maxWarmNeeds  = 512
	// MaxWarmText bounds each of its texts.
	MaxWarmText = 64
	maxCantTell = 8
	maxWarmJobs = math.MaxInt32 / 2
	// maxWarmCount is more items or bytes than there are.
	maxWarmCount = 1 << 60
)

// String is the record as text.
func (r *WarmRecord) String() string {
	b, _ := json.Marshal(r) // strings, numbers and a time can always be marshalled
	return string(b)
}

// ParseWarmRecord is the inverse of String.
func ParseWarmRecord(text string) (r WarmRecord, err error) {
	if len(text) > maxWarmRecord {
		return r, fmt.Errorf("a record of %d bytes is too long", len(text))
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return WarmRecord{}, err
	}
	counts := []int64{r.Passes, r.Found, r.Added, r.AlreadyPresent, r.Expired, r.Invalidated, r.Rejected, r.LeftOut, r.Bytes}
	long := func(s string) bool { return len(s) > MaxWarmText }
	switch {
	case !slices.Contains([]WarmResult{WarmOpen, WarmCopied, WarmSkipped, WarmOnMiss, WarmGivenUp}, r.Result):
		err = errors.New("the result is not known")
	case r.Jobs < 0 || r.Jobs > maxWarmJobs || slices.Min(counts) < 0:
		err = errors.New("the record counts less than nothing, or too much")
	case len(r.Needs) > maxWarmNeeds || len(r.Needs) > 0 && (slices.Min(r.Needs) < 0 || slices.Max(r.Needs) > contract.MaxDemand):
		err = errors.New("the record has needs that no cluster has")
	case max(len(r.Claims), len(r.Counted)) > MaxWarmClaims || len(r.CantTell) > maxCantTell ||
		slices.ContainsFunc(slices.Concat(r.Claims, r.Counted, r.CantTell, []string{r.Source, r.Ring, r.Why, string(r.UID)}), long):
		err = errors.New("the record has a text or a list that is too long")
	}
	if err != nil {
		return WarmRecord{}, err
	}
	return r, nil
}

// Add adds the counts of another receipt. Any client may have written them, so the sums are bounded.
func (r *WarmRecord) Add(n *contract.Receipt) {
	for _, sum := range []struct {
		to   *int64
		more int64
	}{
		{&r.Passes, int64(n.Passes)}, {&r.Found, n.Found}, {&r.Added, n.Added}, {&r.AlreadyPresent, n.AlreadyPresent}, {&r.Expired, n.Expired},
		{&r.Invalidated, n.Invalidated}, {&r.Rejected, n.Rejected}, {&r.LeftOut, n.LeftOut}, {&r.LeftOut, n.NoTextForm}, {&r.Bytes, n.Bytes},
	} {
		*sum.to = min(*sum.to+min(max(0, sum.more), maxWarmCount), maxWarmCount)
	}
	r.CantTell = nil
	for _, what := range n.CantTell {
		if len(what) <= MaxWarmText && len(r.CantTell) < maxCantTell {
			r.CantTell = append(r.CantTell, what)
		}
	}
}

type (
	// CreateWarm creates the Job that copies the source of spec.warmFrom to the first Members members, by the ring in
	// Target. Claim stands for the Memcached. Volume is the claim that is read; empty if the source is a cache. If
	// Counts is set, nothing is copied: the Job counts what each member would get from the claim, Besides what it gets from
	// others, in MiB, and, if Decides is set, whether it has room. Resume names the copy for its next attempt. Answers is
	// the person's request that the Job answers. Before is the record that the plan saw.
	CreateWarm struct {
		Claim           ClaimRef
		Target          string
		Members         int32
		Volume          ClaimRef
		Counts, Decides bool
		Besides         []int64
		Resume          string
		Answers         string
		Before          WarmRecord
	}
	// RecordWarm writes the result of a copy from the source on the Memcached. Receipt is the proof; nil if a person
	// has skipped the warming, the source can't be listed or was given up, its last claims have gone, or only Since changes.
	// Before is the record that is replaced. Answers is the person's request that is answered, and removed.
	RecordWarm struct {
		Claim   ClaimRef
		Target  string
		Before  WarmRecord
		Record  WarmRecord
		Receipt *Receipt
		Answers string
	}
	// ClearWarm removes the person's request from the Memcached, and the count of failures; without the source, also since
	// when it has failed.
	ClearWarm struct {
		Claim   ClaimRef
		Answers string
	}
)

// Notes tells whether nothing changes but since when the source could not be copied.
func (a *RecordWarm) Notes() bool {
	return a.Receipt == nil && a.Record.Result == a.Before.Result && a.Answers == ""
}

func (a CreateWarm) kind() Kind {
	return Kind{Class: Claim, Claim: a.Claim.unit(), MakesJob: true}
}
func (a RecordWarm) kind() Kind {
	return Kind{Class: Claim, Claim: a.Claim.unit(), ReadsAgain: true, EndsJob: true}
}
func (a ClearWarm) kind() Kind {
	return Kind{Class: Claim, Claim: a.Claim.unit(), ReadsAgain: true, EndsJob: true}
}

func (a CreateWarm) String() string {
	of := ""
	if a.Counts {
		return fmt.Sprintf("count claim %s for %d members, by ring %s", a.Volume.Name, a.Members, a.Target)
	}
	if a.Volume.Name != "" {
		of = " from claim " + a.Volume.Name
	}
	return fmt.Sprintf("warm %d members%s, by ring %s", a.Members, of, a.Target)
}
func (a RecordWarm) String() string {
	if a.Notes() {
		return "note since when the source could not be copied"
	}
	return fmt.Sprintf("record the warming by ring %s: %s", a.Target, a.Record.Result)
}
func (a ClearWarm) String() string { return "clear the request about the warming" }
