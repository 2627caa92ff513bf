package apply

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/build"
)

// access is access to the objects of a cluster that the operator doesn't watch: the Secret of
// spec.binding, because a right to it by name is not enough to watch it, and the ServiceMonitor,
// because its kind may be missing. Each is only read live from time to time. Client writes, Live
// reads.
type access struct {
	Client client.Client
	Live   client.Reader
}

// delete deletes exactly this object, and its dependents in the background.
func (a access) delete(ctx context.Context, object client.Object) error {
	return client.IgnoreNotFound(a.Client.Delete(ctx, object,
		client.Preconditions{UID: ptr.To(object.GetUID())},
		client.PropagationPolicy(metav1.DeletePropagationBackground)))
}

func (r *run) access() access { return access{Client: r.Client, Live: r.Reader.Live} }

// writeBinding writes the Secret of spec.binding, or deletes it.
func (r *run) writeBinding(ctx context.Context, a action.WriteBinding) (err error) {
	r.done.Binding, err = r.Bindings.apply(ctx, r.access(), r.cluster, build.Servers(r.cluster, r.ports, a.ListSize), r.now)
	return err
}

// applyServiceMonitor applies the ServiceMonitor, or deletes it.
func (r *run) applyServiceMonitor(ctx context.Context) (err error) {
	r.done.Monitored, err = r.Monitors.apply(ctx, r.access(), r.cluster, r.now)
	return err
}
