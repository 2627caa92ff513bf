package move

import (
	"context"
	"errors"
	"strings"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/memcache"
)

// The reasons in a receipt, besides those of a contract.Failure.
const (
	reasonInterrupted = "Interrupted"
	reasonUnreachable = "SurvivorUnreachable"
	reasonProtocol    = "SurvivorProtocol"
	reasonSource      = "SourceUnreachable"
	// reasonSourceProtocol: the source does not speak the meta protocol.
	reasonSourceProtocol = "SourceProtocol"
	reasonRestarted      = "SourceRestarted"
	reasonStillStored    = "StillStored"
	reasonRejected       = "ItemsRejected"
	reasonFlags          = "ClientFlagsTooLarge"
	reasonNoCAS          = "CASDisabled"
	// reasonSourceIsServer: a leaving source is one of the servers.
	reasonSourceIsServer = contract.ReasonSourceIsServer
	reasonFailed         = "Failed"
)

func newReceipt(source string) contract.Receipt {
	return contract.Receipt{Version: 1, Source: source}
}

// Failed returns the receipt of a source that was not read at all.
func Failed(source string, err error) contract.Receipt {
	r := newReceipt(source)
	failReceipt(&r, err)
	return r
}

// failReceipt writes an error into a receipt: the reason, a sentence in one line, and the exit code.
func failReceipt(r *contract.Receipt, err error) {
	r.Message = strings.ReplaceAll(err.Error(), "\n", "; ")
	var failure contract.Failure
	var source *sourceError
	switch {
	case errors.As(err, &failure):
		r.Reason, r.ExitCode = failure.Failure()
	case errors.Is(err, context.Canceled):
		r.Reason, r.ExitCode = reasonInterrupted, contract.ExitFailed
		r.Message = "a signal ended the drainer before the source was read to its end"
	case errors.Is(err, errCopyRestarted), errors.Is(err, errRestarted):
		r.Reason, r.ExitCode = reasonRestarted, contract.ExitFailed
	case errors.Is(err, errStillStored):
		r.Reason, r.ExitCode = reasonStillStored, contract.ExitFailed
	case errors.As(err, &source) && errors.Is(source, memcache.ErrUnreachable):
		r.Reason, r.ExitCode = reasonSource, contract.ExitUnreachable
	case errors.As(err, &source) && errors.Is(source, memcache.ErrProtocol):
		r.Reason, r.ExitCode = reasonSourceProtocol, contract.ExitFailed
	case errors.Is(err, memcache.ErrUnreachable):
		r.Reason, r.ExitCode = reasonUnreachable, contract.ExitUnreachable
	case errors.Is(err, memcache.ErrProtocol):
		r.Reason, r.ExitCode = reasonProtocol, contract.ExitFailed
	default:
		r.Reason, r.ExitCode = reasonFailed, contract.ExitFailed
	}
}
