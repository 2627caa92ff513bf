// Package read reads claims, their volumes, and the Jobs and pods that drain them: from the cache to plan,
// and live before steps that can't be undone. Package read translates them for package claims, for Memcacheds
// and StatefulSetDrains alike (Owner), and writes nothing.
//
//	owner.go       whose they are            live.go        live reads, by label and by name
//	claim.go       one claim                 volumes.go     where its volume is
//	jobs.go        Jobs, and how they ended  drainers.go    drainers' pods, and why they wait
package read

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"example.com/memcached-operator/controllers/internal/remembered"
)

// Reader reads the objects of one owner.
type Reader struct {
	*Owner
	// Cache is read to plan, Live before steps that can't be undone.
	Cache, Live client.Reader
	Clock       clock.PassiveClock
	// Unlabelled are claims that the cache can't see; nil has none.
	Unlabelled *UnlabelledClaims
	// Seen are the names of claims and Jobs that owners had; nil remembers none.
	Seen *remembered.Names
}

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

// Get returns the object, or nil if there is none.
func Get[T any, P interface {
	*T
	client.Object
}](ctx context.Context, c client.Reader, key client.ObjectKey) (P, error) {
	object := P(new(T))
	if err := c.Get(ctx, key, object); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return object, nil
}
