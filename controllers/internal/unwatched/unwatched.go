// Package unwatched applies the objects of a cluster that the operator doesn't watch: the Secret of
// spec.binding, because a right to it by name is not enough to watch it, and the ServiceMonitor,
// because its kind may be missing. Each is only read live from time to time.
package unwatched

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Access is access to the API server: Client writes, Live reads.
type Access struct {
	Client client.Client
	Live   client.Reader
}

// delete deletes exactly this object, and its dependents in the background.
func (a Access) delete(ctx context.Context, object client.Object) error {
	return client.IgnoreNotFound(a.Client.Delete(ctx, object,
		client.Preconditions{UID: ptr.To(object.GetUID())},
		client.PropagationPolicy(metav1.DeletePropagationBackground)))
}
