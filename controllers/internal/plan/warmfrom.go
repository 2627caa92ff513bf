package plan

import (
	"fmt"
	"hash/fnv"

	"k8s.io/apimachinery/pkg/types"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
)

// Warm has the request in spec.warmFrom, and the known facts about the source.
type Warm struct {
	// Holder stands for the Memcached, which carries the facts about its warming: the failed attempts, and a
	// person's request.
	Holder claims.Claim
	// Asked is the text of the person's request; empty for none. Again: the request is for another copy.
	Asked string
	Again bool
	// Removed: the spec has no source any more, and what a person asked for is left.
	Removed bool
	// Source names the source in the record. Made is a hash of all that the Job is made of.
	Source, Made string
	// Record is what was copied from this source.
	Record action.WarmRecord
	// NotThere says why the source can't be read now; empty if it can.
	NotThere string
	// Volumes: the source is claims. Volume is the next one to be read, and More tells whether others follow it.
	Volumes bool
	Volume  action.ClaimRef
	More    bool
	// HoldsList: clients of a new cluster are told of it when it is warm.
	HoldsList bool
	// OnMiss: routers ask the source for what they miss.
	OnMiss bool
}

// open tells whether there is something to copy.
func (w *Warm) open() bool { return w.Record.Result == action.WarmOpen || w.Again }

// ClaimHash names a claim of the source in the record.
func ClaimHash(claim types.UID) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(claim))
	return fmt.Sprintf("%016x", h.Sum64())
}

// holds tells whether clients of a new cluster wait for it.
func (w *Warm) holds() bool {
	return w != nil && w.HoldsList && w.Record.Result == action.WarmOpen && w.Holder.MoveRequest != claims.Skip
}
