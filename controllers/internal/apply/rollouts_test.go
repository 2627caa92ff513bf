package apply

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"example.com/memcached-operator/controllers/internal/claims/read"
)

func TestATurnIsGivenBackWhereTheAPIServerRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		back bool
	}{
		"forbidden":          {apierrors.NewForbidden(schema.GroupResource{}, "a", nil), true},
		"refused by a check": {read.Refuse("no"), true},
		"the cache is stale": {errStale, true},
		"no answer":          {errors.New("the connection broke"), false},
		"its own troubles":   {apierrors.NewInternalError(errors.New("etcd")), false},
		"done":               {nil, false},
	} {
		if back := notApplied(test.err); back != test.back {
			t.Errorf("%s: it is given back: %v", name, back)
		}
	}
}
