package integration

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/test/tier"
)

const (
	bindingName = "cache-binding"
	ofOthers    = "of-another-purpose"
)

// bindable is the Memcached of docs/security.md.
func (w *world) bindable() *cachev1alpha1.Memcached {
	return apitest.MakeMemcached(name).Size(3).Storage("128Mi").With(func(s *cachev1alpha1.MemcachedSpec) {
		s.TLS = &cachev1alpha1.TLSSpec{SecretName: "cache-tls"}
		s.Auth = &cachev1alpha1.AuthSpec{SecretName: "cache-auth"}
		s.Binding = &cachev1alpha1.BindingSpec{SecretName: bindingName}
	}).Obj()
}

func (w *world) makeSecret(name string, data map[string]string) *corev1.Secret {
	w.Helper()
	secret := &corev1.Secret{StringData: data}
	secret.Name = name
	w.create(secret)
	return secret
}

// grantBinding gives the operator the rights that docs/security.md names.
func (w *world) grantBinding() {
	w.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "examples", "binding.yaml"))
	if err != nil {
		w.Fatal(err)
	}
	_, rights, _ := strings.Cut(string(text), "\n---\n")
	role, binding, _ := strings.Cut(rights, "\n---\n")
	r, b := &rbacv1.Role{}, &rbacv1.RoleBinding{}
	if err := errors.Join(yaml.UnmarshalStrict([]byte(role), r), yaml.UnmarshalStrict([]byte(binding), b)); err != nil || len(r.Rules) == 0 {
		w.Fatalf("docs/examples/binding.yaml has no Role: %v", err)
	}
	if w.user != operatorUser {
		b.Subjects = []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: w.user}}
	}
	w.create(r)
	w.create(b)
}

// binding returns the Secret of the binding, or nil.
func (w *world) binding() *corev1.Secret {
	s := &corev1.Secret{}
	return found(w, s, admin.Get(w.Context(), w.key(bindingName), s))
}

func (w *world) bindingHas(want map[string]string) {
	w.Helper()
	w.eventually(fmt.Sprintf("Secret %s with %v", bindingName, want), func() error {
		secret := w.binding()
		if secret == nil {
			return errors.New("there is none")
		}
		for key, value := range want {
			if string(secret.Data[key]) != value {
				return fmt.Errorf("%s is %q", key, secret.Data[key])
			}
		}
		return nil
	})
}

// The operator looks again after ten seconds, or a minute. A restart saves that time.
func TestABindingFollowsWhatItIsMadeOf(t *testing.T) {
	tier.Second(t, "TestBindingHasWhatAnApplicationNeeds")
	w := newWorld(t)
	w.makeSecret("cache-tls", map[string]string{"ca.crt": "authorities", "tls.crt": "certificate", "tls.key": ofOthers})
	logins := w.makeSecret("cache-auth", map[string]string{"auth-file": "shop:" + ofOthers + "-1\nother:login\n"})
	foreign := w.makeSecret(bindingName, map[string]string{"type": "another"})
	w.create(w.bindable())
	w.settled(3)
	w.condition(cachev1alpha1.ConditionBindable, metav1.ConditionFalse, cachev1alpha1.ReasonBindingForbidden)

	w.grantBinding()
	w.restartOperator()
	w.condition(cachev1alpha1.ConditionBindable, metav1.ConditionFalse, cachev1alpha1.ReasonNameTaken)
	equal(w, "another owner's Secret", string(w.binding().Data["type"]), "another")
	equal(w, "status.binding", w.memcached().Status.Binding == nil, true)
	w.delete(foreign)
	w.restartOperator()
	w.noCondition(cachev1alpha1.ConditionBindable)
	w.bindingHas(map[string]string{
		"type": "memcached", "host": "cache-0.cache." + w.namespace + ".svc", "port": "11211", "ca.crt": "authorities",
		"username": "shop", "password": ofOthers + "-1", "servers": strings.Join(w.ring(3), "\n") + "\n", "tls.key": "",
	})
	equal(w, "its type", w.binding().Type, "servicebinding.io/memcached")
	equal(w, "status.binding.name", w.memcached().Status.Binding.Name, bindingName)
	w.quiet()
	w.mayNoMore()

	begin := len(w.journal.Writes())
	w.scale(2)
	w.settled(2)
	w.before("patch secrets "+bindingName, "patch statefulsets cache", begin)
	w.bindingHas(map[string]string{"MEMCACHE_SERVERS": strings.Join(w.ring(2), ",")})
	w.scale(3) // on the list once it is ready
	w.settled(3)
	w.bindingHas(map[string]string{"MEMCACHE_SERVERS": strings.Join(w.ring(3), ",")})

	w.change(logins, `{"stringData":{"auth-file":"shop:`+ofOthers+`-2\n"}}`)
	w.restartOperator()
	w.bindingHas(map[string]string{"password": ofOthers + "-2"})
	w.change(logins, `{"stringData":{"auth-file":"`+ofOthers+`-3"}}`)
	w.restartOperator()
	w.condition(cachev1alpha1.ConditionBindable, metav1.ConditionFalse, cachev1alpha1.ReasonBindingIncomplete)
	w.condition(cachev1alpha1.ConditionDegraded, metav1.ConditionFalse, cachev1alpha1.ReasonHealthy)
	w.bindingHas(map[string]string{"password": ofOthers + "-2"})
	equal(w, "status.binding.name", w.memcached().Status.Binding.Name, bindingName)

	w.change(w.memcached(), `{"spec":{"binding":null}}`)
	w.noCondition(cachev1alpha1.ConditionBindable)
	equal(w, "the Secret is there", w.binding() != nil, false)
	equal(w, "status.binding", w.memcached().Status.Binding == nil, true)
	if told := w.log.tail(1<<20) + w.picture(); strings.Contains(told, ofOthers) {
		t.Errorf("what is in a Secret is told:\n%s", told)
	}
}

// mayNoMore fails if the rights for a binding allow to read any other Secret.
func (w *world) mayNoMore() {
	w.Helper()
	c, err := client.New(asUser(w.user), client.Options{})
	if err != nil {
		w.Fatal(err)
	}
	other := &corev1.Secret{}
	other.Namespace, other.Name = w.namespace, "other"
	for what, err := range map[string]error{
		"list":   c.List(w.Context(), &corev1.SecretList{}, client.InNamespace(w.namespace)),
		"get":    c.Get(w.Context(), client.ObjectKeyFromObject(other), &corev1.Secret{}),
		"create": c.Create(w.Context(), other),
	} {
		if !apierrors.IsForbidden(err) {
			w.Errorf("%s: want a refusal, got %v", what, err)
		}
	}
}

// Without TLS and logins there is no Secret to read. The binding's Secret is deleted with its Memcached. The
// operator is one for this namespace alone.
func TestBindingOfAPlainCluster(t *testing.T) {
	w := newNamespace(t)
	w.grantHere()
	w.grantBinding()
	w.startOperator()
	w.create(apitest.MakeMemcached(name).Size(1).With(func(s *cachev1alpha1.MemcachedSpec) {
		s.Binding = &cachev1alpha1.BindingSpec{SecretName: bindingName}
	}).Obj())
	w.settled(1)
	w.noCondition(cachev1alpha1.ConditionBindable)
	w.bindingHas(map[string]string{"host": "cache-0.cache-list." + w.namespace + ".svc", "username": "", "ca.crt": ""})
	w.delete(w.memcached())
	w.eventually("the Secret is gone", func() error {
		if w.binding() != nil {
			return errors.New("it is there")
		}
		return nil
	})
}
