package observe

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/claims"
)

func TestClaimIsReadFromItsMarks(t *testing.T) {
	made := func(name string, annotations map[string]string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid", Annotations: annotations}}
	}
	for name, test := range map[string]struct {
		pvc  *corev1.PersistentVolumeClaim
		want claims.Claim
		ours bool
	}{
		"a member's":         {made("data-cache-3", nil), claims.Claim{Ordinal: 3}, true},
		"another owner's":    {made("logs-cache-3", nil), claims.Claim{}, false},
		"of another cluster": {made("data-cache-a-3", nil), claims.Claim{}, false},
		"leaving": {
			made("data-cache-3", map[string]string{cachev1alpha1.AnnotationLeaving: "2026-01-02T03:04:05Z", cachev1alpha1.AnnotationClaimUID: "uid"}),
			claims.Claim{Ordinal: 3, LeavingSince: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}, true,
		},
		"a mark that is spoilt still is a mark": {
			made("data-cache-3", map[string]string{cachev1alpha1.AnnotationLeaving: "yes", cachev1alpha1.AnnotationClaimUID: "uid"}), claims.Claim{Ordinal: 3, LeavingSince: time.Unix(1, 0)}, true,
		},
		"a receipt that is spoilt is none": {
			made("data-cache-3", map[string]string{cachev1alpha1.AnnotationReceipt: "{"}), claims.Claim{Ordinal: 3}, true,
		},
		"one that takes a volume over":         {made("data-cache-3-aside-0123abcd", nil), claims.Claim{Ordinal: 3, Aside: true, Pending: true}, true},
		"a member's, with a name that goes on": {made("data-cache-3-aside-", nil), claims.Claim{}, false},
		"a request": {
			made("data-cache-3", map[string]string{cachev1alpha1.AnnotationDrain: "retry"}), claims.Claim{Ordinal: 3, Request: claims.Retry}, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, ours := PlanClaim("cache", test.pvc)
			if ours {
				test.want.Name, test.want.UID = test.pvc.Name, "uid"
				test.want.AsideName = "data-cache-3-aside-5cc7e6cd" // by the UID
			}
			if diff := cmp.Diff(test.want, got); diff != "" || ours != test.ours {
				t.Errorf("ours %v, want %v; -want +got:\n%s", ours, test.ours, diff)
			}
		})
	}
}
