package write

import (
	"errors"
	"testing"

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
