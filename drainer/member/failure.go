package member

import "example.com/memcached-operator/drainer/contract"

// lastFailure is the error of the last attempt of a step that is repeated, as one line; empty if that attempt
// succeeded.
type lastFailure string

// isNew takes the result of the next attempt, and tells whether to log it: a failure that is not the one
// before.
func (f *lastFailure) isNew(err error) bool {
	before := *f
	*f = ""
	if err != nil {
		*f = lastFailure(contract.OneLine(err))
	}
	return *f != "" && *f != before
}
