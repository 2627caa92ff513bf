package write

import (
	"context"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/claims/read"
)

// Admission takes off, or puts back, a patch's change. That counts as denied, and the error names the change.
// Changes of other metadata are admission's own.
func TestAPatchThatAdmissionUndoesCountsAsDenied(t *testing.T) {
	const mark, label = cachev1alpha1.AnnotationLeaving, cachev1alpha1.LabelCluster
	for what, test := range map[string]struct {
		has, change, admission func(*metav1.ObjectMeta)
		undone                 string
	}{
		"all stays": {
			change: func(o *metav1.ObjectMeta) {
				o.Labels, o.Annotations, o.Finalizers = map[string]string{label: "cache"}, map[string]string{mark: "now"}, []string{cachev1alpha1.ClaimFinalizer}
			},
		},
		"other metadata": {
			change: func(o *metav1.ObjectMeta) { o.Labels = map[string]string{label: "cache"} },
			admission: func(o *metav1.ObjectMeta) {
				o.Labels["team"], o.Annotations, o.Finalizers = "x", map[string]string{"note": "y"}, []string{"example.org/z"}
			},
		},
		"a finalizer": {
			change: func(o *metav1.ObjectMeta) {
				o.Finalizers = []string{"kubernetes.io/pvc-protection", cachev1alpha1.ClaimFinalizer}
			},
			admission: func(o *metav1.ObjectMeta) { o.Finalizers = o.Finalizers[:1] },
			undone:    "finalizer " + cachev1alpha1.ClaimFinalizer,
		},
		"a finalizer that was to go": {
			has:       func(o *metav1.ObjectMeta) { o.Finalizers = []string{cachev1alpha1.ClaimFinalizer} },
			change:    func(o *metav1.ObjectMeta) { o.Finalizers = nil },
			admission: func(o *metav1.ObjectMeta) { o.Finalizers = []string{cachev1alpha1.ClaimFinalizer} },
			undone:    "finalizer " + cachev1alpha1.ClaimFinalizer,
		},
		"an annotation and a label": {
			change: func(o *metav1.ObjectMeta) {
				o.Labels, o.Annotations = map[string]string{label: "cache"}, map[string]string{mark: "now", "a": "b"}
			},
			admission: func(o *metav1.ObjectMeta) { o.Labels[label] = "other"; delete(o.Annotations, mark) },
			undone:    "annotation " + mark + ", label " + label,
		},
		"an annotation that was to go": {
			has:       func(o *metav1.ObjectMeta) { o.Annotations = map[string]string{mark: "now"} },
			change:    func(o *metav1.ObjectMeta) { o.Annotations = nil },
			admission: func(o *metav1.ObjectMeta) { o.Annotations = map[string]string{mark: "now"} },
			undone:    "annotation " + mark,
		},
	} {
		t.Run(what, func(t *testing.T) {
			claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data-cache-0"}}
			if test.has != nil {
				test.has(&claim.ObjectMeta)
			}
			c := Logged(fake.NewClientBuilder().WithObjects(claim).WithInterceptorFuncs(interceptor.Funcs{
				Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
					err := c.Patch(ctx, o, patch, options...)
					if test.admission != nil {
						test.admission(&o.(*corev1.PersistentVolumeClaim).ObjectMeta)
					}
					return err
				},
			}).Build())
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(claim), claim); err != nil {
				t.Fatal(err)
			}
			before := claim.DeepCopy()
			test.change(&claim.ObjectMeta)
			err := c.Patch(t.Context(), claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
			if read.Denied(err) != (test.undone != "") || err != nil && !strings.HasSuffix(err.Error(), "of PersistentVolumeClaim data-cache-0: "+test.undone) {
				t.Errorf("got %v, want %q undone", err, test.undone)
			}
		})
	}
}

// A policy takes off the annotation by which the owner knows its Job. Then the Job is in the way, and is no other owner's.
func TestAJobThatAdmissionHasSpoiltIsNoStrangers(t *testing.T) {
	t.Parallel()
	owner := &cachev1alpha1.Memcached{ObjectMeta: metav1.ObjectMeta{Name: "cache", UID: "a"}}
	stranger := &cachev1alpha1.Memcached{ObjectMeta: metav1.ObjectMeta{Name: "cache", UID: "b"}}
	made := func(by metav1.Object) *batchv1.Job {
		return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
			Name: "drain", Labels: map[string]string{cachev1alpha1.LabelCluster: "cache"}, Annotations: map[string]string{cachev1alpha1.AnnotationClaimUID: "c"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(by, cachev1alpha1.GroupVersion.WithKind("Memcached"))},
		}}
	}
	for what, test := range map[string]struct {
		by     metav1.Object
		change func(*batchv1.Job)
		lacks  string
	}{
		"as it was made":                 {owner, func(*batchv1.Job) {}, ""},
		"without its annotations":        {owner, func(j *batchv1.Job) { j.Annotations = nil }, "Job drain: annotation " + cachev1alpha1.AnnotationClaimUID + ";"},
		"with others":                    {owner, func(j *batchv1.Job) { j.Labels["team"] = "x" }, ""},
		"with another value":             {owner, func(j *batchv1.Job) { j.Labels[cachev1alpha1.LabelCluster] = "x" }, "Job drain: label " + cachev1alpha1.LabelCluster + ";"},
		"a stranger's, without the same": {stranger, func(j *batchv1.Job) { j.Annotations = nil }, ""},
	} {
		live := made(test.by)
		test.change(live)
		err := spoilt(owner, made(owner), live)
		if (err != nil) != (test.lacks != "") || err != nil && (!read.Denied(err) || !strings.Contains(err.Error(), test.lacks)) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
