package plan

import (
	"slices"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/ring"
	"example.com/memcached-operator/drainer/contract"
)

// ReceiptOf translates a receipt for the plan; nil stays nil.
func ReceiptOf(r *contract.Receipt) *action.Receipt {
	if r == nil {
		return nil
	}
	out := &action.Receipt{
		Source: r.Source, Err: addsUp(r), Reason: r.Reason, Message: r.Message,
		Final: slices.Contains(contract.NoRetry, int32(r.ExitCode)), Unreadable: r.ExitCode == contract.ExitUnrecoverable,
	}
	text, err := r.Marshal()
	if err != nil {
		out.Err = err
	}
	out.Text = string(text)
	return out
}

// addsUp is the rule for a receipt of its kind: a copy may leave out what its owners refuse, or only count.
func addsUp(r *contract.Receipt) error {
	if ring.IsWarmSource(r.Source) && len(r.Demand) > 0 {
		return r.Counted(r.Source, len(r.Demand))
	}
	if ring.IsWarmSource(r.Source) {
		return r.Copied(r.Source)
	}
	return r.AddsUp(r.Source)
}

// ParseReceipt is ReceiptOf for a receipt as text.
func ParseReceipt(text string) (*action.Receipt, error) {
	r, err := contract.ParseReceipt(text)
	return ReceiptOf(r), err
}

// ReceiptNumbers are the receipt's counts; all are 0 if there is none.
func ReceiptNumbers(r *action.Receipt) contract.Receipt {
	if r != nil {
		if numbers, err := contract.ParseReceipt(r.Text); err == nil {
			return *numbers
		}
	}
	return contract.Receipt{}
}
