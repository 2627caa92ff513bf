package write

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/claims/read"
)

// refusing fails every patch.
type refusing struct {
	client.Client
	err error
}

func (r refusing) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	return r.err
}

// Otherwise the next status would tell of a finalizer that was never written.
func TestAnOwnerWhoseFinalizerIsNotWrittenStaysAsItIs(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	bare := func() *cachev1alpha1.Memcached { return &cachev1alpha1.Memcached{} }
	with := func() *cachev1alpha1.Memcached {
		c := bare()
		c.Finalizers, c.Annotations = []string{cachev1alpha1.OwnerFinalizer}, map[string]string{"people": "yes"}
		return c
	}
	owner := bare()
	if added, err := AddFinalizer(t.Context(), refusing{err: refused}, owner, "here"); added || !errors.Is(err, refused) {
		t.Errorf("added: %v, %v", added, err)
	}
	if diff := cmp.Diff(bare(), owner); diff != "" {
		t.Errorf("after a refused add:\n%s", diff)
	}
	gone := apierrors.NewNotFound(schema.GroupResource{}, "cache")
	if added, err := AddFinalizer(t.Context(), refusing{err: gone}, owner, "here"); added || !errors.Is(err, read.ErrRefused) {
		t.Errorf("the owner is gone: %v, %v", added, err)
	}
	owner = with()
	if err := RemoveFinalizer(t.Context(), refusing{err: refused}, owner); !errors.Is(err, refused) {
		t.Error(err)
	}
	if diff := cmp.Diff(with(), owner); diff != "" {
		t.Errorf("after a refused removal:\n%s", diff)
	}
	added, err := AddFinalizer(t.Context(), refusing{}, owner, "here") // it has the finalizer
	if added || err != nil {
		t.Errorf("added again: %v, %v", added, err)
	}
	owner = bare()
	if added, err := AddFinalizer(t.Context(), refusing{}, owner, "here"); !added || err != nil || owner.Annotations[cachev1alpha1.AnnotationOperator] != "here" {
		t.Errorf("added: %v, %v, %v", added, err, owner.Annotations)
	}
}
