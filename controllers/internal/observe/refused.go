package observe

import (
	"errors"
	"fmt"
)

// ErrRefused means that the cache that the plan was made from is stale. A refusal is no failure:
// the next reconcile sees more. If a refusal lasts, status shows it.
var ErrRefused = errors.New("refused")

// Refuse returns an ErrRefused with a reason.
func Refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrRefused, fmt.Sprintf(format, args...))
}

// RefusedBy turns a check's error into a refusal, and nil into nil.
func RefusedBy(why error) error {
	if why == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrRefused, why)
}
