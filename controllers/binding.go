package controllers

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
	"example.com/memcached-operator/controllers/internal/status"
	"example.com/memcached-operator/drainer/contract"
)

const (
	// bindingInterval is how often the Secrets that a binding is made of are read:
	// whoever may read a Secret by its name only can't watch it.
	bindingInterval = time.Minute
	// unboundInterval is how often that is tried where it didn't do.
	unboundInterval = 10 * time.Second
)

// bound is a binding that was as wanted, with these servers.
type bound struct {
	servers string
	binding status.Binding
}

// unbound is why a binding can't be as wanted, for a person to mend.
type unbound struct{ reason, message string }

func (e *unbound) Error() string { return e.message }

// bindingAgain is when the binding is to be looked at again; 0 where none is asked for.
func bindingAgain(b *status.Binding) time.Duration {
	switch {
	case b == nil || b.Reason == "":
		return 0
	case b.Reason == cachev1alpha1.ReasonBindingWritten:
		return bindingInterval
	}
	return unboundInterval
}

// applyBinding brings the Secret about that spec.binding asks for, or takes back the
// one that the status tells of. It takes rights that a person gives, to Secrets of
// these names; where one lacks, or a Secret, a condition says so, and nothing waits.
func (r *MemcachedReconciler) applyBinding(ctx context.Context, o *observed) error {
	wanted, is := o.cluster.Spec.Binding, o.cluster.Status.Binding
	if wanted == nil {
		if err := r.deleteBinding(ctx, o, is); err != nil {
			return err
		}
		o.binding = &status.Binding{}
		return nil
	}
	now, servers := r.Clock.Now(), strings.Join(o.servers, ",")
	if last, fresh := r.bindings.Last(o.cluster, now, bindingInterval); fresh && last.servers == servers {
		o.binding = &last.binding
		return nil
	}
	err := r.writeBinding(ctx, o)
	if err == nil && is != nil && is.Name != wanted.SecretName {
		err = r.deleteBinding(ctx, o, is)
	}
	if why := (*unbound)(nil); errors.As(err, &why) {
		o.binding = &status.Binding{Reason: why.reason, Message: why.message}
		if is != nil {
			o.binding.Name = is.Name // what it held last stays
		}
		return nil
	}
	if err != nil {
		return err
	}
	o.binding = &status.Binding{
		Name: wanted.SecretName, Reason: cachev1alpha1.ReasonBindingWritten,
		Message: fmt.Sprintf("Secret %s has what applications need", wanted.SecretName),
	}
	r.bindings.Note(o.cluster, now, bound{servers, *o.binding})
	return nil
}

// writeBinding makes the Secret what it should be, and leaves one alone that isn't the
// cluster's. What is in it goes nowhere else: no error, log or event has any of it.
func (r *MemcachedReconciler) writeBinding(ctx context.Context, o *observed) error {
	login, authorities, err := r.credentials(ctx, o)
	if err != nil {
		return err
	}
	name := o.cluster.Spec.Binding.SecretName
	live, err := r.secret(ctx, o, name)
	if err != nil {
		return err
	}
	var current *coreac.SecretApplyConfiguration
	if live != nil {
		if !metav1.IsControlledBy(live, o.cluster) {
			taken := &status.NameTakenError{Kind: "Secret", Name: name}
			return &unbound{cachev1alpha1.ReasonNameTaken, taken.Error()}
		}
		if current, err = coreac.ExtractSecret(live, cachev1alpha1.ManagedBy); err != nil {
			return err
		}
	}
	_, err = applyChanged(ctx, r.Client, build.Binding(o.cluster, o.servers, login, authorities), current)
	return mayNot(err, "create and patch", name)
}

// credentials are what clients of the cluster have to show, and to check.
func (r *MemcachedReconciler) credentials(ctx context.Context, o *observed) (login *contract.Login, authorities []byte, err error) {
	if auth := o.cluster.Spec.Auth; auth != nil {
		text, err := r.secretKey(ctx, o, auth.SecretName, contract.AuthFileKey)
		if err != nil {
			return nil, nil, err
		}
		first, err := contract.FirstLogin(contract.AuthFileKey, text)
		if err != nil {
			return nil, nil, &unbound{cachev1alpha1.ReasonBindingIncomplete, fmt.Sprintf("Secret %s: %v", auth.SecretName, err)}
		}
		login = &first
	}
	if tls := o.cluster.Spec.TLS; tls != nil {
		authorities, err = r.secretKey(ctx, o, tls.SecretName, contract.CAFile)
	}
	return login, authorities, err
}

// secretKey returns what a Secret of the spec has under the key.
func (r *MemcachedReconciler) secretKey(ctx context.Context, o *observed, name, key string) ([]byte, error) {
	secret, err := r.secret(ctx, o, name)
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

// secret of the name, read live, or nil where there is none.
func (r *MemcachedReconciler) secret(ctx context.Context, o *observed, name string) (*corev1.Secret, error) {
	secret, err := get[corev1.Secret](ctx, r.Live, client.ObjectKey{Namespace: o.cluster.Namespace, Name: name})
	return secret, mayNot(err, "get", name)
}

// mayNot says which right a person has to give.
func mayNot(err error, what, name string) error {
	if apierrors.IsForbidden(err) {
		return &unbound{cachev1alpha1.ReasonBindingForbidden, fmt.Sprintf(
			"the operator may not %s Secret %s (%v): it takes a Role of yours, see docs/security.md", what, name, err)}
	}
	return err
}

// deleteBinding deletes the cluster's own. Where the operator has no right to any
// more, it stays until the Memcached goes.
func (r *MemcachedReconciler) deleteBinding(ctx context.Context, o *observed, is *cachev1alpha1.BindingStatus) error {
	if is == nil {
		return nil
	}
	live, err := r.secret(ctx, o, is.Name)
	if err == nil && live != nil && metav1.IsControlledBy(live, o.cluster) {
		err = mayNot(r.deleteObject(ctx, live), "delete", is.Name)
	}
	if why := (*unbound)(nil); errors.As(err, &why) {
		return nil
	}
	return err
}
