package observe

import (
	"errors"
	"fmt"
)

// ErrRefused means that what the plan saw in the cache is not true any more. It
// is no failure: the next reconcile, on the event that the cache still lacks or
// some time later, sees more. One that holds for long shows in status.
var ErrRefused = errors.New("refused")

// Refuse is an ErrRefused.
func Refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrRefused, fmt.Sprintf(format, args...))
}

// RefusedBy makes a refusal of what a check of the plan found, nil of nothing.
func RefusedBy(why error) error {
	if why == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrRefused, why)
}
