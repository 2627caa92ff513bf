package controllers

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
)

// Objects that another installation of the operator manages are neither deleted nor released.
func TestUninstallLeavesAloneWhatAnotherInstallationManages(t *testing.T) {
	const lease = "memcached-operator"
	managed := func(name, by string) []client.Object {
		c := apitest.MakeMemcached(name).Namespace("shop").Storage("128Mi").Obj()
		c.Finalizers = []string{cachev1alpha1.OwnerFinalizer}
		if by != "" {
			c.Annotations = map[string]string{cachev1alpha1.AnnotationOperator: by}
		}
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "data-" + name + "-0", Finalizers: []string{cachev1alpha1.ClaimFinalizer},
		}}
		return []client.Object{c, claim}
	}
	for what, test := range map[string]struct {
		args       []string
		deployment string
		// others are the installations whose Memcacheds stay.
		others []string
	}{
		"by the Deployment's namespace": {nil, "manager", []string{"tenant/" + lease, "leases/" + lease}},
		"by its lease's namespace":      {[]string{"--leader-elect", "--leader-election-namespace=leases"}, "manager", []string{"tenant/" + lease, "operators/" + lease}},
		"by an argument of two words":   {[]string{"--leader-election-namespace", "leases"}, "manager", []string{"tenant/" + lease, "operators/" + lease}},
		"its Deployment is gone":        {nil, "gone", []string{"tenant/" + lease, "leases/" + lease}},
		"none is named":                 {nil, "", nil},
	} {
		for _, deletes := range []bool{false, true} {
			manager := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "operators", Name: "manager"}, Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{}}}
			manager.Spec.Template.Spec.Containers = []corev1.Container{{Name: "manager", Args: test.args}}
			objects := []client.Object{manager}
			installations := map[string]string{"unowned": "", "ours": "operators/" + lease, "tenants": "tenant/" + lease, "leased": "leases/" + lease}
			for name, by := range installations {
				objects = append(objects, managed(name, by)...)
			}
			c := fake.NewClientBuilder().WithScheme(NewScheme()).WithObjects(objects...).Build()
			said := &bytes.Buffer{}
			o := UninstallOptions{Client: c, Lease: lease, DeleteClusters: deletes, Timeout: time.Millisecond, Interval: time.Millisecond, Out: said}
			if test.deployment != "" {
				o.Deployment = client.ObjectKey{Namespace: "operators", Name: test.deployment}
			}
			if err := Uninstall(t.Context(), o); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			for name, by := range installations {
				stays := slices.Contains(test.others, by)
				cluster, claim := &cachev1alpha1.Memcached{}, &corev1.PersistentVolumeClaim{}
				gone := c.Get(context.Background(), client.ObjectKey{Namespace: "shop", Name: name}, cluster) != nil
				if err := c.Get(context.Background(), client.ObjectKey{Namespace: "shop", Name: "data-" + name + "-0"}, claim); err != nil {
					t.Errorf("%s: %v", what, err)
				}
				if gone != (deletes && !stays) || !gone && (len(cluster.Finalizers) == 1) != stays || (len(claim.Finalizers) == 1) != stays {
					t.Errorf("%s, deletes=%t: the Memcached of %q: gone %t, finalizers %v, its claim's %v", what, deletes, by, gone, cluster.Finalizers, claim.Finalizers)
				}
				if strings.Contains(said.String(), "Memcached shop/"+name+" stays") != stays {
					t.Errorf("%s: it says:\n%s", what, said)
				}
			}
		}
	}
}
