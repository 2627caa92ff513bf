package member

import "example.com/memcached-operator/drainer/contract"

// lastFailure is what an attempt that is repeated ended with the last time, as one line; empty if it succeeded.
type lastFailure string

// isNew takes the end of the next attempt, and tells whether to log it: a failure that is not the one before.
func (f *lastFailure) isNew(err error) bool {
	before := *f
	*f = ""
	if err != nil {
		*f = lastFailure(contract.OneLine(err))
	}
	return *f != "" && *f != before
}
