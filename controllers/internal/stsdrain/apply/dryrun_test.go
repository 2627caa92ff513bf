package apply

import (
	"context"
	"errors"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// answers is an API server that gives this answer to each dry run, and counts them.
type answers struct {
	client.Client
	err   error
	asked int
}

func (a *answers) Create(_ context.Context, _ client.Object, options ...client.CreateOption) error {
	var all client.CreateOptions
	all.ApplyOptions(options)
	if len(all.DryRun) != 1 || all.FieldValidation != metav1.FieldValidationStrict {
		return errors.New("this is no strict dry run")
	}
	a.asked++
	return a.err
}

func dryRunWorld() (*cachev1alpha1.StatefulSetDrain, *appsv1.StatefulSet) {
	d := &cachev1alpha1.StatefulSetDrain{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "queue", UID: "drain"}}
	d.Spec.StatefulSetName = "queue"
	d.Spec.Template.Spec.Raw = []byte(`{"containers":[{"name":"drain","image":"a"}]}`)
	s := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "queue"}}
	s.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "queue"}}
	s.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}}
	return d, s
}

// Each template is checked once, and a refused one again after growing pauses.
func TestATemplateIsCheckedOnceAndARefusedOneAgain(t *testing.T) {
	var runs DryRuns
	d, set := dryRunWorld()
	now := time.Unix(1_000_000, 0)
	server := &answers{}
	check := func(why string, asked int) time.Duration {
		t.Helper()
		refused, wait, err := runs.Check(t.Context(), server, d, set, now)
		if err != nil || refused != why || server.asked != asked {
			t.Fatalf("%q, asked %d times, %v; want %q, asked %d times", refused, server.asked, err, why, asked)
		}
		return wait
	}
	if wait := check("", 1); wait != 0 {
		t.Errorf("a template that is taken is checked again in %s", wait)
	}
	check("", 1)
	d.Spec.Template.Spec.Raw = []byte(`{"containers":[{"name":"drain","image":"b"}]}`)
	server.err = apierrors.NewForbidden(schema.GroupResource{Group: "batch", Resource: "jobs"}, "x", errors.New("a quota"))
	why := `jobs.batch "x" is forbidden: a quota`
	if wait := check(why, 2); wait != dryRunFirst {
		t.Errorf("it is asked again in %s", wait)
	}
	check(why, 2)
	now = now.Add(dryRunFirst)
	check(why, 3)
	now = now.Add(time.Minute)
	if wait := check(why, 4); wait <= dryRunFirst || wait > dryRunLast {
		t.Errorf("it is asked again in %s", wait)
	}
	now = now.Add(24 * time.Hour)
	if wait := check(why, 5); wait != dryRunLast {
		t.Errorf("it is asked again in %s, want %s at most", wait, dryRunLast)
	}
	server.err = nil
	now = now.Add(dryRunLast)
	check("", 6)
	runs.Forget(client.ObjectKeyFromObject(d))
	check("", 7)
}

// An API server that can't be asked refuses nothing, and its last answer counts.
func TestAnAnswerThatIsNoneChangesNothing(t *testing.T) {
	var runs DryRuns
	d, set := dryRunWorld()
	now := time.Unix(1_000_000, 0)
	server := &answers{err: apierrors.NewInternalError(errors.New("etcd has no leader"))}
	if refused, _, err := runs.Check(t.Context(), server, d, set, now); err == nil || refused != "" {
		t.Errorf("%q, %v", refused, err)
	}
	runs.Forget(client.ObjectKeyFromObject(d))
	for what, answer := range map[string]error{
		"it exists":                   apierrors.NewAlreadyExists(schema.GroupResource{Resource: "jobs"}, "x"),
		"a webhook without a dry run": apierrors.NewBadRequest("admission webhook does not support dry run"),
	} {
		server.err = answer
		if refused, _, err := runs.Check(t.Context(), server, d, set, now); err != nil || refused != "" {
			t.Errorf("%s: %q, %v", what, refused, err)
		}
		runs.Forget(client.ObjectKeyFromObject(d))
	}
	d.Spec.Template.Metadata.Labels = map[string]string{"app": "queue"}
	server.asked = 0
	if refused, wait, err := runs.Check(t.Context(), server, d, set, now); err != nil || refused == "" || wait != 0 || server.asked != 0 {
		t.Errorf("labels of members: %q, again in %s, asked %d times, %v", refused, wait, server.asked, err)
	}
}

// An API server that can't be asked is asked after growing pauses, however often its events start a reconcile.
func TestAnAPIServerThatDoesNotAnswerIsAskedAfterGrowingPauses(t *testing.T) {
	var runs DryRuns
	d, set := dryRunWorld()
	begin := time.Unix(1_000_000, 0)
	server := &answers{err: apierrors.NewInternalError(errors.New("failed calling webhook"))}
	for now := begin; now.Before(begin.Add(time.Hour)); now = now.Add(time.Second) {
		refused, wait, _ := runs.Check(t.Context(), server, d, set, now)
		if refused != "" || wait <= 0 || wait > dryRunLast {
			t.Fatalf("%q, again in %s", refused, wait)
		}
	}
	const most = 20
	if server.asked > most || server.asked < 2 {
		t.Errorf("asked %d times in an hour", server.asked)
	}
	server.err = nil
	if refused, wait, err := runs.Check(t.Context(), server, d, set, begin.Add(2*time.Hour)); err != nil || refused != "" || wait != 0 {
		t.Errorf("%q, again in %s, %v", refused, wait, err)
	}
}

// The API server, or a webhook, may choose another code for an object that it would refuse again.
func TestATemplateIsRefusedByAnyCodeThatDenies(t *testing.T) {
	for what, answer := range map[string]error{
		"the Job is too large": apierrors.NewRequestEntityTooLargeError("limit is 3145728"),
		"a webhook's own code": &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 451, Message: "not in this region"}},
	} {
		var runs DryRuns
		d, set := dryRunWorld()
		if refused, _, err := runs.Check(t.Context(), &answers{err: answer}, d, set, time.Unix(1_000_000, 0)); err != nil || refused != answer.Error() {
			t.Errorf("%s: %q, %v", what, refused, err)
		}
	}
}
