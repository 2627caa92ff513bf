package apply

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/identity"
	"example.com/memcached-operator/controllers/internal/remembered"
	"example.com/memcached-operator/controllers/internal/status"
	"example.com/memcached-operator/drainer/contract"
)

const (
	// bindingInterval is how often the Secrets that a binding is made from are read. A right to a
	// Secret by name is not enough to watch it.
	bindingInterval = time.Minute
	// unboundInterval is how often a binding that failed is tried again.
	unboundInterval = 10 * time.Second
)

// bound is a binding that was written as wanted, with these servers.
type bound struct {
	servers string
	binding status.Binding
}

// unbound is why a binding failed, for a person to fix.
type unbound struct{ reason, message string }

func (e *unbound) Error() string { return e.message }

// Bindings remembers the Secrets of spec.binding that were as wanted.
type Bindings struct{ written remembered.Answers[bound] }

// BindingRecheck is how long until the binding is checked again; 0 if the spec asks for none.
func BindingRecheck(b *status.Binding) time.Duration {
	switch {
	case b == nil:
		return 0
	case b.Reason != "":
		return unboundInterval
	case b.Name != "":
		return bindingInterval
	}
	return 0
}

// apply writes the Secret that spec.binding asks for, with these servers, or deletes the one that status names.
// apply needs rights that a person gives, to Secrets of these names. If a right or a Secret is missing, the
// returned binding says so, and no other step waits.
func (b *Bindings) apply(
	ctx context.Context, a access, c *cachev1alpha1.Memcached, servers []string, now time.Time,
) (*status.Binding, error) {
	wanted, is := c.Spec.Binding, c.Status.Binding
	if wanted == nil {
		if err := a.deleteBinding(ctx, c, is); err != nil {
			return nil, err
		}
		return &status.Binding{}, nil
	}
	list := strings.Join(servers, ",")
	if last, fresh := b.written.Last(c, now, bindingInterval); fresh && last.servers == list {
		return &last.binding, nil
	}
	err := a.writeBinding(ctx, c, servers)
	if err == nil && is != nil && is.Name != wanted.SecretName {
		err = a.deleteBinding(ctx, c, is)
	}
	if why := (*unbound)(nil); errors.As(err, &why) {
		binding := &status.Binding{Reason: why.reason, Message: why.message}
		if is != nil {
			binding.Name = is.Name // the Secret of that name stays
		}
		return binding, nil
	}
	if err != nil {
		return nil, err
	}
	binding := status.Binding{Name: wanted.SecretName}
	b.written.Note(c, now, bound{list, binding})
	return &binding, nil
}

// Forget forgets a Memcached that is gone.
func (b *Bindings) Forget(key client.ObjectKey) { b.written.Forget(key) }

// writeBinding writes the Secret, unless it belongs to another owner. No value of the Secret gets
// into an error, a log or an event.
func (a access) writeBinding(ctx context.Context, c *cachev1alpha1.Memcached, servers []string) error {
	login, authorities, err := a.credentials(ctx, c)
	if err != nil {
		return err
	}
	name := c.Spec.Binding.SecretName
	live, err := a.secret(ctx, c, name)
	if err != nil {
		return err
	}
	if live != nil && !metav1.IsControlledBy(live, c) {
		taken := &identity.NameTakenError{Kind: "Secret", Name: name}
		return &unbound{cachev1alpha1.ReasonNameTaken, taken.Error()}
	}
	desired := build.Binding(c, servers, login, authorities)
	hash := hashOf(desired) // the hash is only readable for clients that may read the Secret
	if live != nil {
		if same, err := asWanted(desired, extracted(coreac.ExtractSecret, live), live, hash); err != nil || same {
			return err
		}
	}
	desired.WithAnnotations(map[string]string{cachev1alpha1.AnnotationApplied: hash})
	err = a.Client.Apply(ctx, desired, client.FieldOwner(cachev1alpha1.ManagedBy), client.ForceOwnership)
	if read.Denied(err) && !apierrors.IsForbidden(err) {
		return &unbound{cachev1alpha1.ReasonBindingForbidden, fmt.Sprintf("the API server denies to write Secret %s: %v", name, err)}
	}
	return mayNot(err, "create and patch", name)
}

// credentials are the login and the authorities that a client needs.
func (a access) credentials(ctx context.Context, c *cachev1alpha1.Memcached) (login *contract.Login, authorities []byte, err error) {
	if auth := c.Spec.Auth; auth != nil {
		text, err := a.secretKey(ctx, c, auth.SecretName, contract.AuthFileKey)
		if err != nil {
			return nil, nil, err
		}
		first, err := contract.FirstLogin(contract.AuthFileKey, text)
		if err != nil {
			return nil, nil, &unbound{cachev1alpha1.ReasonBindingIncomplete, fmt.Sprintf("Secret %s: %v", auth.SecretName, err)}
		}
		login = &first
	}
	if tls := c.Spec.TLS; tls != nil {
		authorities, err = a.secretKey(ctx, c, tls.SecretName, contract.CAFile)
	}
	return login, authorities, err
}

// secretKey returns the value of that key of a Secret that the spec names.
func (a access) secretKey(ctx context.Context, c *cachev1alpha1.Memcached, name, key string) ([]byte, error) {
	secret, err := a.secret(ctx, c, name)
	switch {
	case err != nil:
		return nil, err
	case secret == nil:
		return nil, &unbound{cachev1alpha1.ReasonBindingIncomplete, fmt.Sprintf("there is no Secret %s", name)}
	case len(secret.Data[key]) == 0:
		return nil, &unbound{cachev1alpha1.ReasonBindingIncomplete, fmt.Sprintf("Secret %s has no key %s", name, key)}
	}
	return secret.Data[key], nil
}

// secret reads the Secret of that name live; nil if there is none.
func (a access) secret(ctx context.Context, c *cachev1alpha1.Memcached, name string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	if err := a.Live.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, secret); err != nil {
		return nil, mayNot(client.IgnoreNotFound(err), "get", name)
	}
	return secret, nil
}

// mayNot says which right a person has to give.
func mayNot(err error, what, name string) error {
	if apierrors.IsForbidden(err) {
		return &unbound{cachev1alpha1.ReasonBindingForbidden, fmt.Sprintf(
			"the operator may not %s Secret %s (%v): it takes a Role of yours, see docs/security.md", what, name, err)}
	}
	return err
}

// deleteBinding deletes the cluster's own Secret. If the operator no longer has the right to delete
// it, the Secret stays until the Memcached is deleted.
func (a access) deleteBinding(ctx context.Context, c *cachev1alpha1.Memcached, is *cachev1alpha1.BindingStatus) error {
	if is == nil {
		return nil
	}
	live, err := a.secret(ctx, c, is.Name)
	if err == nil && live != nil && metav1.IsControlledBy(live, c) {
		err = mayNot(a.delete(ctx, live), "delete", is.Name)
	}
	if why := (*unbound)(nil); errors.As(err, &why) {
		return nil
	}
	return err
}
