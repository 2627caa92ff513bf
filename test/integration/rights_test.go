package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"example.com/memcached-operator/test/internal/operator"
)

// operatorUser is the operator's user in all tests. The user has only the rights of config/rbac/role.yaml, so
// a missing right fails a test.
const operatorUser = "system:serviceaccount:memcached-operator-system:memcached-operator-controller-manager"

func asUser(name string) *rest.Config {
	config := rest.CopyConfig(plane.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: name}
	return config
}

// operatorRole is the operator's deployed role.
func operatorRole() (*rbacv1.ClusterRole, error) {
	text, err := os.ReadFile(filepath.Join("..", "..", "config", "rbac", "role.yaml"))
	if err != nil {
		return nil, err
	}
	role := &rbacv1.ClusterRole{}
	if err := yaml.UnmarshalStrict(text, role); err != nil {
		return nil, fmt.Errorf("read the operator's role: %w", err)
	}
	return role, nil
}

// grantOperator binds the operator's role to its user.
func grantOperator(ctx context.Context) error {
	role, err := operatorRole()
	if err != nil {
		return err
	}
	binding := &rbacv1.ClusterRoleBinding{
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: operatorUser}},
	}
	binding.Name = role.Name
	return errors.Join(admin.Create(ctx, role), admin.Create(ctx, binding))
}

// unseen are rights that no request in these tests needs, each with its reason.
var unseen = map[operator.Right]string{
	{Group: "cache.example.com", Resource: "memcacheds/finalizers", Verb: "update"}:        "the admission plugin OwnerReferencesPermissionEnforcement",
	{Group: "cache.example.com", Resource: "statefulsetdrains/finalizers", Verb: "update"}: "the same",
	{Resource: "nodes", Verb: "list"}:                                                      "an API server that streams no lists",
	{Resource: "pods/log", Verb: "get"}:                                                    "progress of drains, which is played here",
	{Group: "events.k8s.io", Resource: "events", Verb: "patch"}:                            "an event that is told again within minutes",
}

// unusedRights returns an error if the operator's role has rights that no test has needed. unusedRights is
// called after all tests.
func unusedRights() error {
	role, err := operatorRole()
	if err != nil {
		return err
	}
	var unused []error
	for _, rule := range role.Rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					right := operator.Right{Group: group, Resource: resource, Verb: verb}
					if _, known := unseen[right]; !known && !operator.Used(right) {
						unused = append(unused, fmt.Errorf("the operator may %s %s (%q), and no test needs that", verb, resource, group))
					}
				}
			}
		}
	}
	return errors.Join(unused...)
}

func TestOperatorMayReadNoSecrets(t *testing.T) {
	w := newNamespace(t)
	c, err := client.New(asUser(operatorUser), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.List(t.Context(), &corev1.SecretList{}, client.InNamespace(w.namespace)); !apierrors.IsForbidden(err) {
		t.Errorf("want a refusal, got %v", err)
	}
	if err := c.Get(t.Context(), w.key("any"), &corev1.Secret{}); !apierrors.IsForbidden(err) {
		t.Errorf("want a refusal, got %v", err)
	}
	secret := &corev1.Secret{}
	secret.Namespace, secret.Name = w.namespace, "any"
	if err := c.Create(t.Context(), secret); !apierrors.IsForbidden(err) {
		t.Errorf("want a refusal, got %v", err)
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "any", Image: "any"}}}}
	pod.Namespace, pod.Name = w.namespace, "any"
	if err := c.Create(t.Context(), pod); !apierrors.IsForbidden(err) {
		t.Errorf("want a refusal, got %v", err)
	}
}

// grantHere gives the world's operator its rights in this namespace alone, as
// config/namespaced does.
func (w *world) grantHere() {
	w.Helper()
	w.user = operatorUser + "-" + w.namespace
	all, err := operatorRole()
	if err != nil {
		w.Fatal(err)
	}
	role := &rbacv1.Role{Rules: all.Rules}
	role.Name = all.Name
	w.create(role)
	binding := &rbacv1.RoleBinding{
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: w.user}},
	}
	binding.Name = role.Name
	w.create(binding)
}
