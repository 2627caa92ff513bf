package identity

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/controllers/internal/build"
)

func TestAJobIsTheClustersByItsControllerAndItsDuty(t *testing.T) {
	cluster := apitest.MakeMemcached("cache").Storage("128Mi").Defaulted().Obj()
	deleted := cluster.DeepCopy()
	deleted.DeletionTimestamp = ptr.To(metav1.Now())
	job := func(change func(*batchv1.Job)) *batchv1.Job {
		j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
			Name:        build.DrainName("data-cache-2", "claim"),
			Labels:      map[string]string{cachev1alpha1.LabelCluster: "cache", cachev1alpha1.LabelComponent: cachev1alpha1.ComponentDrainer},
			Annotations: map[string]string{cachev1alpha1.AnnotationClaimUID: "claim", cachev1alpha1.AnnotationSurvivors: "2"},
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(cluster, cachev1alpha1.GroupVersion.WithKind("Memcached")),
			},
		}}
		change(j)
		return j
	}
	orphan := func(j *batchv1.Job) { j.OwnerReferences = nil }
	for what, test := range map[string]struct {
		cluster *cachev1alpha1.Memcached
		change  func(*batchv1.Job)
		want    bool
	}{
		"its own":                         {cluster, func(*batchv1.Job) {}, true},
		"of a Memcached of the name":      {cluster, func(j *batchv1.Job) { j.OwnerReferences[0].UID = "another" }, false},
		"without a controller":            {cluster, orphan, false},
		"without annotations":             {cluster, func(j *batchv1.Job) { j.Annotations = nil }, false},
		"with no survivors":               {cluster, func(j *batchv1.Job) { j.Annotations[cachev1alpha1.AnnotationSurvivors] = "0" }, false},
		"with too many":                   {cluster, func(j *batchv1.Job) { j.Annotations[cachev1alpha1.AnnotationSurvivors] = "513" }, false},
		"orphaned, the Memcached goes":    {deleted, orphan, true},
		"a copy, the Memcached goes":      {deleted, func(j *batchv1.Job) { orphan(j); j.Name = "copied" }, false},
		"another's, the Memcached goes":   {deleted, func(j *batchv1.Job) { orphan(j); j.Labels[cachev1alpha1.LabelCluster] = "other" }, false},
		"its own, when it is deleted":     {deleted, func(*batchv1.Job) {}, true},
		"another's, when it is deleted":   {deleted, func(j *batchv1.Job) { j.OwnerReferences[0].UID = "another" }, false},
		"a component that drains nothing": {cluster, func(j *batchv1.Job) { j.Labels[cachev1alpha1.LabelComponent] = "member" }, false},
	} {
		if got := OwnJob(test.cluster, job(test.change)); got != test.want {
			t.Errorf("%s: got %v", what, got)
		}
	}
}
