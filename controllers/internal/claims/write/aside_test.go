package write

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/claims/read"
)

func TestAsideClaimAsksForTheVolumeAndCarriesWhatWasAskedFor(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	labels := map[string]string{cachev1alpha1.LabelInstance: "cache"}
	for name, test := range map[string]struct{ had, want map[string]string }{
		"a member's that stays": {
			map[string]string{"pv.kubernetes.io/bind-completed": "yes"},
			map[string]string{
				cachev1alpha1.AnnotationLeaving: "2026-01-02T03:04:05Z", cachev1alpha1.AnnotationLeft: "7", cachev1alpha1.AnnotationPolicy: "Drain",
				cachev1alpha1.AnnotationMoved: "5",
			},
		},
		"one that was leaving, and held": {
			map[string]string{
				cachev1alpha1.AnnotationLeaving: "2026-01-01T00:00:00Z", cachev1alpha1.AnnotationDrain: cachev1alpha1.DrainHold,
				cachev1alpha1.AnnotationReceipt: "{}", cachev1alpha1.AnnotationLeft: "3", cachev1alpha1.AnnotationPolicy: "Retain",
				cachev1alpha1.AnnotationClaimUID: "uid",
			},
			map[string]string{
				cachev1alpha1.AnnotationLeaving: "2026-01-01T00:00:00Z", cachev1alpha1.AnnotationDrain: cachev1alpha1.DrainHold,
				cachev1alpha1.AnnotationLeft: "3", cachev1alpha1.AnnotationPolicy: "Retain", cachev1alpha1.AnnotationMoved: "5",
			},
		},
		"a retry is due anyway": {
			map[string]string{
				cachev1alpha1.AnnotationLeaving: "2026-01-01T00:00:00Z", cachev1alpha1.AnnotationClaimUID: "uid", cachev1alpha1.AnnotationDrain: cachev1alpha1.DrainRetry,
			},
			map[string]string{cachev1alpha1.AnnotationLeaving: "2026-01-01T00:00:00Z", cachev1alpha1.AnnotationMoved: "5"},
		},
		"one that a backup has brought back": {
			map[string]string{
				cachev1alpha1.AnnotationLeaving: "2026-01-01T00:00:00Z", cachev1alpha1.AnnotationClaimUID: "another", cachev1alpha1.AnnotationDrain: cachev1alpha1.DrainSkip,
			},
			map[string]string{
				cachev1alpha1.AnnotationLeaving: "2026-01-01T00:00:00Z", cachev1alpha1.AnnotationMoved: "5", cachev1alpha1.AnnotationDrain: cachev1alpha1.DrainHold,
				cachev1alpha1.AnnotationAdopted: cachev1alpha1.AdoptedRestored,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			test.want[cachev1alpha1.AnnotationAsideOf], test.want[cachev1alpha1.AnnotationClaimUID] = "uid", "uid"
			had := &corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{
					Name: "data-cache-2", Namespace: "shop", UID: "uid", Labels: labels, Annotations: test.had,
					Finalizers: []string{cachev1alpha1.ClaimFinalizer, "kubernetes.io/pvc-protection"},
				},
				Spec: corev1.PersistentVolumeClaimSpec{
					VolumeName: "pv", StorageClassName: ptr.To("fast"), Selector: &metav1.LabelSelector{},
					AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				},
			}
			is := read.Claim(had, 2, false, "")
			got := AsideClaim(had, &is, "data-cache-2-aside-0", LeavingMark(7, now, "Drain"), labels, map[string]string{cachev1alpha1.AnnotationMoved: "5"})
			want := &corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{
					Name: "data-cache-2-aside-0", Namespace: "shop", Labels: labels, Annotations: test.want,
					Finalizers: []string{cachev1alpha1.ClaimFinalizer},
				},
				Spec: corev1.PersistentVolumeClaimSpec{
					VolumeName: "pv", StorageClassName: ptr.To("fast"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				},
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
