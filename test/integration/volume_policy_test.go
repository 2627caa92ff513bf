package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// bindVolumePolicy installs the shipped policy that bounds what the operator may do to volumes. The policy
// applies to the operators of all tests.
func bindVolumePolicy(ctx context.Context) error {
	folder := filepath.Join("..", "..", "config", "policy")
	policy, err := os.ReadFile(filepath.Join(folder, "volume_policy.yaml"))
	if err != nil {
		return err
	}
	binding, err := os.ReadFile(filepath.Join(folder, "volume_policy_binding.yaml"))
	if err != nil {
		return err
	}
	// kustomize and the chart name the operator's service account here.
	parts := strings.Split(operatorUser, ":")
	named := strings.NewReplacer("'system'", "'"+parts[2]+"'", "'controller-manager'", "'"+parts[3]+"'").Replace(string(policy))
	p, b := &admissionv1.ValidatingAdmissionPolicy{}, &admissionv1.ValidatingAdmissionPolicyBinding{}
	if err := errors.Join(yaml.UnmarshalStrict([]byte(named), p), yaml.UnmarshalStrict(binding, b)); err != nil {
		return fmt.Errorf("read the policy for volumes: %w", err)
	}
	return errors.Join(admin.Create(ctx, p), admin.Create(ctx, b))
}

// makeVolume makes the volume of the claim "one" in the world's namespace.
func (w *world) makeVolume() *corev1.PersistentVolume {
	w.Helper()
	v := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "policy-", Labels: map[string]string{"disk": "ssd"}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/tmp/none"}},
			ClaimRef:                      &corev1.ObjectReference{Namespace: w.namespace, Name: "one"},
		},
	}
	if err := admin.Create(w.Context(), v); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = admin.Delete(context.Background(), v) })
	return v
}

func TestOperatorMayChangeNothingOfAVolumeButWhichClaimHasIt(t *testing.T) {
	w := newNamespace(t)
	w.byHand = true
	operator, err := client.New(asUser(operatorUser), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	patch := func(c client.Client, v *corev1.PersistentVolume, patch string) error {
		return c.Patch(t.Context(), v.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(patch)))
	}
	const label = `{"metadata":{"labels":{"a":"b"}}}`
	w.eventually("the policy is in force", func() error {
		if err := patch(operator, w.makeVolume(), label); !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
			return fmt.Errorf("want a refusal: %w", errors.Join(errors.New("it was another answer"), err))
		}
		return nil
	})
	for name, test := range map[string]struct {
		before, patch string // the administrator applies before
		refused       string // the words of the refusal; "" if it is allowed
	}{
		"another claim of the namespace": {patch: `{"spec":{"claimRef":{"name":"two","uid":null,"resourceVersion":null}}}`},
		"the claim's UID":                {patch: `{"spec":{"claimRef":{"uid":"1234"}}}`},
		"nothing":                        {patch: `{}`},
		"a label":                        {patch: label, refused: "metadata"},
		"a label less":                   {patch: `{"metadata":{"labels":{"disk":null}}}`, refused: "metadata"},
		"an annotation":                  {patch: `{"metadata":{"annotations":{"a":"b"}}}`, refused: "metadata"},
		"a finalizer less":               {patch: `{"metadata":{"finalizers":null}}`, refused: "metadata"},
		"an owner":                       {patch: `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"1"}]}}`, refused: "metadata"},
		"the reclaim policy":             {patch: `{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}`, refused: "but claimRef"},
		"the capacity":                   {patch: `{"spec":{"capacity":{"storage":"2Gi"}}}`, refused: "but claimRef"},
		"a mount option":                 {patch: `{"spec":{"mountOptions":["ro"]}}`, refused: "but claimRef"},
		"its storage class":              {patch: `{"spec":{"storageClassName":"fast"}}`, refused: "but claimRef"},
		"a claim of another namespace":   {patch: `{"spec":{"claimRef":{"namespace":"default","name":"two"}}}`, refused: "same namespace"},
		"no claim":                       {patch: `{"spec":{"claimRef":null}}`, refused: "same namespace"},
		"a claim for a volume without one": {
			before: `{"spec":{"claimRef":null}}`, patch: `{"spec":{"claimRef":{"namespace":"default","name":"two"}}}`, refused: "same namespace",
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := w.makeVolume()
			if test.before != "" {
				if err := patch(admin, v, test.before); err != nil {
					t.Fatal(err)
				}
			}
			err := patch(operator, v, test.patch)
			switch {
			case test.refused == "" && err != nil:
				t.Errorf("refused: %v", err)
			case test.refused != "" && (err == nil || !strings.Contains(err.Error(), "memcached operator") || !strings.Contains(err.Error(), test.refused)):
				t.Errorf("want a refusal that says %q, got %v", test.refused, err)
			}
			if err := patch(admin, v, test.patch); err != nil && strings.Contains(err.Error(), "memcached operator") {
				t.Errorf("the administrator was refused: %v", err)
			}
		})
	}
}
