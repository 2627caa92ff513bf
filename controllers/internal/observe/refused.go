package observe

import (
	"errors"
	"fmt"
)

// ErrRefused means that what the plan saw in the cache is not true any more. It is no
// failure: the next reconcile sees more. If a refusal lasts, status shows it.
var ErrRefused = errors.New("refused")

// Refuse is an ErrRefused.
func Refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrRefused, fmt.Sprintf(format, args...))
}

// RefusedBy makes a refusal of a check's error; nil of nil.
func RefusedBy(why error) error {
	if why == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrRefused, why)
}
