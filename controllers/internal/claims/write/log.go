package write

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

// Logged returns a client that logs each write that succeeded, with its reason, for the person on
// call. The logger of the context names the cluster. Writes of a status are not logged. A patch that
// admission undoes fails (undone.go).
func Logged(c client.Client) client.Client { return logged{c} }

type logged struct{ client.Client }

type reasonKey struct{}

// Because gives the writes of this context a reason.
func Because(ctx context.Context, reason string) context.Context {
	return context.WithValue(ctx, reasonKey{}, reason)
}

func (c logged) wrote(ctx context.Context, verb, kind, name string) {
	reason, ok := ctx.Value(reasonKey{}).(string)
	if !ok {
		reason = "as the spec wants it"
	}
	logf.FromContext(ctx).Info("Wrote an object", "verb", verb, "kind", kind, "object", name, "reason", reason)
}

func (c logged) wroteObject(ctx context.Context, verb string, object client.Object) {
	kind := object.GetObjectKind().GroupVersionKind().Kind
	if gvk, err := c.GroupVersionKindFor(object); err == nil {
		kind = gvk.Kind
	}
	c.wrote(ctx, verb, kind, object.GetName())
}

// Create implements client.Client.
func (c logged) Create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	err := c.Client.Create(ctx, object, options...)
	if err == nil {
		c.wroteObject(ctx, "create", object)
	}
	return err
}

// Delete implements client.Client.
func (c logged) Delete(ctx context.Context, object client.Object, options ...client.DeleteOption) error {
	err := c.Client.Delete(ctx, object, options...)
	if err == nil {
		c.wroteObject(ctx, "delete", object)
	}
	return err
}

// Patch implements client.Client.
func (c logged) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption) error {
	data, err := patch.Data(object)
	if err != nil {
		return err
	}
	if err := c.Client.Patch(ctx, object, client.RawPatch(patch.Type(), data), options...); err != nil {
		return err
	}
	c.wroteObject(ctx, "patch", object)
	return undone(patch.Type(), data, object)
}

// Apply implements client.Client.
func (c logged) Apply(ctx context.Context, object runtime.ApplyConfiguration, options ...client.ApplyOption) error {
	err := c.Client.Apply(ctx, object, options...)
	if err != nil {
		return err
	}
	kind, name := "", ""
	switch o := object.(type) {
	case interface {
		GetKind() *string
		GetName() *string
	}:
		kind, name = ptr.Deref(o.GetKind(), ""), ptr.Deref(o.GetName(), "")
	case interface {
		GetKind() string
		GetName() string
	}:
		kind, name = o.GetKind(), o.GetName()
	}
	c.wrote(ctx, "apply", kind, name)
	return nil
}
