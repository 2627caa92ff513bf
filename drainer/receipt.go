package drainer

import (
	"context"
	"errors"
	"os"
	"strings"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/restart"
	"example.com/memcached-operator/drainer/warmfile"
)

// Reasons in a receipt, besides those of package warmfile.
const (
	reasonUsage       = "BadArguments"
	reasonInterrupted = "Interrupted"
	reasonUnreachable = "SurvivorUnreachable"
	reasonProtocol    = "SurvivorProtocol"
	reasonSource      = "SourceUnreachable"
	reasonRestarted   = "SourceRestarted"
	reasonStillStored = "StillStored"
	reasonRejected    = "ItemsRejected"
	reasonScratch     = "ScratchTooSmall"
	reasonSecret      = contract.ReasonSecretInvalid
	reasonFailed      = "Failed"
)

func newReceipt(source string) contract.Receipt {
	return contract.Receipt{Version: 1, Source: source}
}

// failedReceipt is that of a source of which nothing was read.
func failedReceipt(source string, err error) contract.Receipt {
	r := newReceipt(source)
	failReceipt(&r, err)
	return r
}

// failReceipt writes an error into a receipt: a reason, a sentence in one
// line, and the exit code that goes with it.
func failReceipt(r *contract.Receipt, err error) {
	r.Message = strings.ReplaceAll(err.Error(), "\n", "; ")
	var refusal *warmfile.Error
	var usage *usageError
	var room *restart.RoomError
	var source *sourceError
	var secret *secretError
	switch {
	case errors.As(err, &refusal):
		r.Reason, r.ExitCode = string(refusal.Reason), contract.ExitUnrecoverable
	case errors.As(err, &room):
		// Not unrecoverable: the volume is sound, and must not be given up.
		r.Reason, r.ExitCode = reasonScratch, contract.ExitFailed
	case errors.As(err, &secret):
		r.Reason, r.ExitCode = reasonSecret, contract.ExitFailed
	case errors.As(err, &usage):
		r.Reason, r.ExitCode = reasonUsage, contract.ExitUsage
	case errors.Is(err, context.Canceled):
		r.Reason, r.ExitCode = reasonInterrupted, contract.ExitFailed
		r.Message = "a signal ended the drain before the source was read to its end"
	case errors.Is(err, errRestarted):
		r.Reason, r.ExitCode = reasonRestarted, contract.ExitFailed
	case errors.Is(err, errStillStored):
		r.Reason, r.ExitCode = reasonStillStored, contract.ExitFailed
	case errors.As(err, &source) && errors.Is(err, memcache.ErrUnreachable):
		r.Reason, r.ExitCode = reasonSource, contract.ExitUnreachable
	case errors.Is(err, memcache.ErrUnreachable):
		r.Reason, r.ExitCode = reasonUnreachable, contract.ExitUnreachable
	case errors.Is(err, memcache.ErrProtocol):
		r.Reason, r.ExitCode = reasonProtocol, contract.ExitFailed
	default:
		r.Reason, r.ExitCode = reasonFailed, contract.ExitFailed
	}
}

// writeReceipt overwrites path in place: the kubelet has created it, and holds
// that very file.
func writeReceipt(path string, r contract.Receipt) error {
	b, err := r.Marshal()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Close())
}
