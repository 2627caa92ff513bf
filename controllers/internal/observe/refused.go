package observe

import (
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// Denied tells whether the API server denies exactly this request, and would deny it again: by its
// own rules, because of a right or a quota, or because admission denies it. A webhook chooses the
// code of its answer; if it chooses none, as Kyverno, the code is 400, without a reason.
func Denied(err error) bool {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return false
	}
	switch code := answer.Status().Code; code {
	case http.StatusNotFound, http.StatusConflict, http.StatusGone, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	default:
		return http.StatusBadRequest <= code && code < http.StatusInternalServerError
	}
}
