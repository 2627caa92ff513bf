package write

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/identity"
	"example.com/memcached-operator/controllers/internal/remembered"
)

// A step of a kind that ends a Job forgets how many Jobs in a row the claim had, if it succeeds.
func TestAStepThatEndsAJobForgetsTheCountOfJobs(t *testing.T) {
	owner, ref := client.ObjectKey{Namespace: "shop", Name: "cache"}, action.ClaimRef{UID: "uid-2"}
	for what, test := range map[string]struct {
		step action.Action
		err  error
		want int32
	}{
		"it ends the Job":           {action.DeleteJob{ClaimUID: ref.UID}, nil, 0},
		"it fails":                  {action.DeleteJob{ClaimUID: ref.UID}, errors.New("timeout"), 1},
		"it leaves the Job":         {action.CountFailure{Claim: ref}, nil, 1},
		"it is about another claim": {action.DeleteJob{ClaimUID: "uid-3"}, nil, 1},
	} {
		obstructed, now := &remembered.Obstructions{}, time.Unix(1000, 0)
		obstructed.Made(owner, ref.UID, now)
		steps := Steps{Owner: owner, Obstructed: obstructed, Now: now, Take: func(context.Context, action.Action) error { return test.err }}
		if err := steps.InOrder(t.Context(), []action.Action{test.step}); !errors.Is(err, test.err) {
			t.Errorf("%s: %v", what, err)
		}
		if got, _ := obstructed.MadeBefore(owner, ref.UID); got != test.want {
			t.Errorf("%s: %d Jobs are counted, want %d", what, got, test.want)
		}
	}
}

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
