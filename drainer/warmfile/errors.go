package warmfile

import (
	"errors"
	"fmt"

	"example.com/memcached-operator/drainer/contract"
)

// Kinds of refusal, for errors.Is. A retry can't help after any of them, and none means that the volume is
// empty.
var (
	// ErrUnrecoverable matches every refusal of this package.
	ErrUnrecoverable = errors.New("the warm file can't be read")
	// ErrCorrupt: the file contradicts itself or its description.
	ErrCorrupt = errors.New("corrupt")
	// ErrUnknownLayout: the file may be sound, but this reader doesn't know its layout.
	ErrUnknownLayout = errors.New("unknown layout")
)

// Reason is a CamelCase word for receipts and conditions.
type Reason string

// The reasons why a volume can't be read.
const (
	ReasonMissing       Reason = "WarmFileMissing"
	ReasonTruncated     Reason = "WarmFileTruncated"
	ReasonNoEvidence    Reason = "NoManifest"
	ReasonNodeRestarted Reason = "NodeRestarted"
	ReasonWiped         Reason = "WarmFileWiped"
	ReasonCountMismatch Reason = "CountMismatch"
	ReasonCorrupt       Reason = "WarmFileCorrupt"
	ReasonUnknownLayout Reason = "UnknownLayout"
	// ReasonDamaged: a part of the file never reached the disk.
	ReasonDamaged Reason = "WarmFileDamaged"
	// ReasonSaveIncomplete: pages of the save are missing.
	ReasonSaveIncomplete Reason = "SaveIncomplete"
	// ReasonSaveOutdated: a member has run since the save was made.
	ReasonSaveOutdated Reason = "SaveOutdated"
	// ReasonSaveFailed: a member has run since the save was made, and has reported why it could not save.
	ReasonSaveFailed Reason = "SaveFailed"
)

// Error is a refusal to read on.
type Error struct {
	Reason Reason
	// Offset is the position in the file, -1 if the refusal is not about one place.
	Offset int64
	// Expected is the text that was expected there, or the error.
	Expected string
}

// Error returns a text with the place and what was expected there.
func (e *Error) Error() string {
	if e.Offset < 0 {
		return fmt.Sprintf("%v: %s", ErrUnrecoverable, e.Expected)
	}
	return fmt.Sprintf("%v: at offset %d: %s", ErrUnrecoverable, e.Offset, e.Expected)
}

// Failure returns the receipt's reason and the exit code.
func (e *Error) Failure() (reason string, exitCode int) {
	return string(e.Reason), contract.ExitUnrecoverable
}

// Is makes every Error match ErrUnrecoverable, and some also ErrCorrupt or ErrUnknownLayout.
func (e *Error) Is(target error) bool {
	switch target {
	case ErrUnrecoverable:
		return true
	case ErrCorrupt:
		return e.Reason == ReasonCorrupt || e.Reason == ReasonCountMismatch || e.Reason == ReasonWiped
	case ErrUnknownLayout:
		return e.Reason == ReasonUnknownLayout
	}
	return false
}

// IsReason tells whether an error is a refusal for that reason.
func IsReason(err error, reason Reason) bool {
	var refusal *Error
	return errors.As(err, &refusal) && refusal.Reason == reason
}

// Refuse returns a refusal that is not about one place in the file.
func Refuse(reason Reason, format string, args ...any) error { return refuse(reason, format, args...) }

func refuse(reason Reason, format string, args ...any) *Error {
	return &Error{Reason: reason, Offset: -1, Expected: fmt.Sprintf(format, args...)}
}
