package write

import (
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/identity"
)

func TestAFailureIsHeardOverARefusal(t *testing.T) {
	failure, refusal := errors.New("refused connection"), read.Refuse("the cache is stale")
	taken := &identity.NameTakenError{Kind: "Service", Name: "cache-list"}
	for name, test := range map[string]struct{ first, second, want error }{
		"only one":            {nil, refusal, refusal},
		"refused, then fails": {refusal, failure, failure},
		"fails, then refused": {failure, refusal, failure},
		"taken, then fails":   {taken, failure, failure},
		"fails, then taken":   {failure, taken, failure},
		"refused, then taken": {refusal, taken, taken},
		"taken, then refused": {taken, refusal, taken},
		"two refusals":        {refusal, read.Refuse("another"), refusal},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Worse(test.first, test.second); got != test.want { //nolint:errorlint // the very same
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// Only a denial for good is set apart. Another failure may have changed the object.
func TestOnlyWhatIsDeniedIsSetApart(t *testing.T) {
	webhook := &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 400, Message: "denied the request"}}
	for what, test := range map[string]struct {
		err  error
		want bool
	}{
		"no error":         {nil, false},
		"a webhook":        {webhook, true},
		"wrapped":          {fmt.Errorf("apply: %w", webhook), true},
		"a policy":         {&apierrors.StatusError{ErrStatus: metav1.Status{Code: 413, Reason: metav1.StatusReasonRequestEntityTooLarge}}, true},
		"a quota":          {&apierrors.StatusError{ErrStatus: metav1.Status{Code: 403, Reason: metav1.StatusReasonForbidden}}, true},
		"an invalid value": {&apierrors.StatusError{ErrStatus: metav1.Status{Code: 422, Reason: metav1.StatusReasonInvalid}}, true},
		"a conflict":       {&apierrors.StatusError{ErrStatus: metav1.Status{Code: 409, Reason: metav1.StatusReasonConflict}}, false},
		"too many":         {apierrors.NewTooManyRequests("later", 1), false},
		"a failed webhook": {apierrors.NewInternalError(errors.New("failed calling webhook")), false},
		"no answer":        {errors.New("EOF"), false},
	} {
		if got := isApart(ApartIf(true, test.err)); got != test.want {
			t.Errorf("%s: set apart: %v", what, got)
		}
		if isApart(ApartIf(false, test.err)) {
			t.Errorf("%s: set apart, although others wait for it", what)
		}
	}
}
