package action

import "k8s.io/apimachinery/pkg/types"

// The actions on the claims of a StatefulSet that a StatefulSetDrain names, and on the StatefulSet itself.
// Each action about a claim is one write.
type (
	// Protect gives the claim of a wanted member our label, our finalizer, and the note that it was seen while
	// its member was wanted.
	Protect struct{ Claim ClaimRef }
	// Label gives a claim that is left over our label alone, so that the cache has it.
	Label struct{ Claim ClaimRef }
	// Mark writes the leaving mark on a claim, with the policy and the number of its unit, and protects it.
	Mark struct{ Claim ClaimRef }
	// Unmark removes the leaving mark and all that came with it, because the member is wanted again.
	Unmark struct{ Claim ClaimRef }
	// Unlabel removes our label and annotations from a claim that has no finalizer of ours any more.
	Unlabel struct{ Claim ClaimRef }
	// Wake increments the annotation on the StatefulSet, which wakes the StatefulSet's controller.
	Wake struct{ UID types.UID }
)

func (a Protect) kind() Kind { return Kind{Class: Claim, Claim: a.Claim.unit(), ReadsAgain: true} }
func (a Label) kind() Kind   { return Kind{Class: Claim, Claim: a.Claim.unit(), ReadsAgain: true} }
func (a Mark) kind() Kind    { return Kind{Class: Claim, Claim: a.Claim.unit(), ReadsAgain: true} }
func (a Unmark) kind() Kind  { return Kind{Class: Claim, Claim: a.Claim.unit(), ReadsAgain: true} }
func (a Unlabel) kind() Kind { return Kind{Class: Claim, Claim: a.Claim.unit(), ReadsAgain: true} }
func (Wake) kind() Kind      { return Kind{Class: Beside} }

func (a Protect) String() string { return "protect claim " + a.Claim.Name }
func (a Label) String() string   { return "label claim " + a.Claim.Name }
func (a Mark) String() string    { return "mark claim " + a.Claim.Name + " as leaving" }
func (a Unmark) String() string  { return "take the leaving mark off claim " + a.Claim.Name }
func (a Unlabel) String() string { return "take the label off claim " + a.Claim.Name }
func (Wake) String() string      { return "wake the StatefulSet's controller" }
