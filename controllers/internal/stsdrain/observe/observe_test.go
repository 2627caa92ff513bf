package observe

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/stsdrain"
	"example.com/memcached-operator/controllers/internal/trim"
)

func drain() *cachev1alpha1.StatefulSetDrain {
	d := &cachev1alpha1.StatefulSetDrain{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "queue", UID: "drain"}}
	d.Spec.StatefulSetName = "queue"
	return d
}

func statefulSet() *appsv1.StatefulSet {
	s := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "queue", UID: "set"}}
	s.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}}
	return s
}

func controlled(kind, name string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) {
		c.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: name, UID: "owner", Controller: ptr.To(true)}}
	}
}

func protected(c *corev1.PersistentVolumeClaim) {
	c.Annotations = map[string]string{cachev1alpha1.AnnotationProtected: "drain"}
}

func setAside(c *corev1.PersistentVolumeClaim) {
	c.Annotations = map[string]string{cachev1alpha1.AnnotationAsideOf: "first"}
}

// The name makes a claim a member's, unless another owner controls it.
func TestAClaimIsAMembersByItsNameUnlessAnotherOwnerControlsIt(t *testing.T) {
	for what, test := range map[string]struct {
		name    string
		changes []func(*corev1.PersistentVolumeClaim)
		noSet   bool
		ours    bool
	}{
		"a member's":                               {name: "data-queue-1", ours: true},
		"of another StatefulSet":                   {name: "data-other-queue-1"},
		"of no template":                           {name: "log-queue-1"},
		"of a template that is gone, protected":    {name: "log-queue-1", changes: []func(*corev1.PersistentVolumeClaim){protected}, ours: true},
		"no ordinal":                               {name: "data-queue-x"},
		"an ordinal in another form":               {name: "data-queue-01"},
		"controlled by the StatefulSet":            {name: "data-queue-1", changes: []func(*corev1.PersistentVolumeClaim){controlled("StatefulSet", "queue")}, ours: true},
		"controlled by a member's pod":             {name: "data-queue-1", changes: []func(*corev1.PersistentVolumeClaim){controlled("Pod", "queue-1")}, ours: true},
		"controlled by another pod":                {name: "data-queue-1", changes: []func(*corev1.PersistentVolumeClaim){controlled("Pod", "web")}},
		"controlled by another StatefulSet":        {name: "data-queue-1", changes: []func(*corev1.PersistentVolumeClaim){controlled("StatefulSet", "other")}},
		"controlled by another owner, protected":   {name: "data-queue-1", changes: []func(*corev1.PersistentVolumeClaim){protected, controlled("Backup", "nightly")}},
		"aside, and ours":                          {name: "data-queue-1-aside-0123abcd", changes: []func(*corev1.PersistentVolumeClaim){protected}, ours: true},
		"aside by its name alone":                  {name: "data-queue-1-aside-0123abcd"},
		"aside, and left":                          {name: "data-queue-1-aside-0123abcd", changes: []func(*corev1.PersistentVolumeClaim){setAside}, ours: true},
		"aside, and left, of another template":     {name: "log-queue-1-aside-0123abcd", changes: []func(*corev1.PersistentVolumeClaim){setAside}},
		"aside, and left, another controls it":     {name: "data-queue-1-aside-0123abcd", changes: []func(*corev1.PersistentVolumeClaim){setAside, controlled("Backup", "nightly")}},
		"aside, and controlled by the StatefulSet": {name: "data-queue-1-aside-0123abcd", changes: []func(*corev1.PersistentVolumeClaim){protected, controlled("StatefulSet", "queue")}},
		"without a StatefulSet":                    {name: "data-queue-1", noSet: true},
		"without a StatefulSet, protected":         {name: "data-queue-1", noSet: true, changes: []func(*corev1.PersistentVolumeClaim){protected}, ours: true},
	} {
		c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: test.name, UID: "claim"}}
		for _, change := range test.changes {
			change(c)
		}
		set := statefulSet()
		if test.noSet {
			set = nil
		}
		if ours := Owner(drain(), set).Owns(c); ours != test.ours {
			t.Errorf("%s: ours is %v", what, ours)
		}
	}
}

// Another StatefulSetDrain's note protects nothing: it may have been deleted, and made again.
func TestOnlyItsOwnNoteProtectsAClaim(t *testing.T) {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data-queue-1"}}
	for uid, want := range map[string]bool{"drain": true, "another": false, "": false} {
		c.Annotations = map[string]string{cachev1alpha1.AnnotationProtected: uid}
		if is, _ := planClaim(drain(), c); is.Protected != want {
			t.Errorf("%q: protected is %v", uid, is.Protected)
		}
	}
	d := drain()
	d.UID = ""
	if Ours(d, c) {
		t.Error("a StatefulSetDrain without a UID protects a claim")
	}
}

// A receipt on a claim counts only for this claim, and if its own rule is true of its message.
func TestARecordedReceiptIsCheckedAgain(t *testing.T) {
	rule, err := stsdrain.CompileRule("receipt.found == receipt.moved")
	if err != nil {
		t.Fatal(err)
	}
	good, bad := `{"found": 3, "moved": 3}`, `{"found": 3, "moved": 2}`
	for what, test := range map[string]struct {
		text  string
		there bool
		holds bool
	}{
		"it holds":                {stsdrain.NewRecord("claim,other", rule, good).Encode(), true, true},
		"its rule is false":       {stsdrain.NewRecord("claim", rule, bad).Encode(), true, false},
		"it is of another claim":  {stsdrain.NewRecord("other", rule, good).Encode(), true, false},
		"without a rule":          {stsdrain.NewRecord("claim", nil, "anything").Encode(), true, true},
		"another client wrote it": {"nonsense", false, false},
		"it is too long":          {strings.Repeat("x", stsdrain.MaxRecord+1), false, false},
	} {
		c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data-queue-1", UID: "claim", Annotations: map[string]string{cachev1alpha1.AnnotationReceipt: test.text}}}
		r := recorded(c)
		if (r != nil) != test.there || r != nil && (r.AddsUp("claim") == nil) != test.holds {
			t.Errorf("%s: %+v", what, r)
		}
	}
}

// Exit code 0 proves a drain, if the rule is true of the message; no other end does.
func TestOnlyExitCodeZeroProvesADrain(t *testing.T) {
	rule, err := stsdrain.CompileRule("receipt.found == receipt.moved")
	if err != nil {
		t.Fatal(err)
	}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{cachev1alpha1.AnnotationClaims: "claim,other"}}}
	for what, test := range map[string]struct {
		ended   corev1.ContainerStateTerminated
		rule    *stsdrain.Rule
		proves  bool
		message string
	}{
		"it holds":           {corev1.ContainerStateTerminated{Message: `{"found": 3, "moved": 3}`}, rule, true, `{"found": 3, "moved": 3}`},
		"it does not hold":   {corev1.ContainerStateTerminated{Message: `{"found": 3, "moved": 2}`}, rule, false, ""},
		"no message, a rule": {corev1.ContainerStateTerminated{}, rule, false, ""},
		"no message":         {corev1.ContainerStateTerminated{}, nil, true, ""},
		"it failed":          {corev1.ContainerStateTerminated{ExitCode: 3, Message: "no route"}, nil, false, "the drainer ended with exit code 3: no route"},
		"it was killed":      {corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}, nil, false, "the drainer ended with exit code 137 (OOMKilled)"},
	} {
		r, err := jobReceipt(test.rule, nil, job, endedPod(test.ended))
		proves := err == nil && r.AddsUp("claim", "other") == nil
		if proves != test.proves || r != nil && r.Message != test.message {
			t.Errorf("%s: %+v, %v", what, r, err)
		}
		if proves && r.AddsUp("third") == nil {
			t.Errorf("%s: it proves the drain of a claim that the Job does not name", what)
		}
	}
}

// endedPod is the pod of a drainer that has ended.
func endedPod(ended corev1.ContainerStateTerminated) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Labels:      map[string]string{cachev1alpha1.LabelStatefulSetDrain: "queue"},
		Annotations: map[string]string{cachev1alpha1.AnnotationContainer: "drain"},
	}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "drain", State: corev1.ContainerState{Terminated: &ended}}}
	return pod
}

// Many programs end with exit code 0 when they are told to end. Only the rule proves that such a drainer was done.
func TestExitCodeZeroOfADrainerThatWasToldToEndProvesNothingWithoutARule(t *testing.T) {
	rule, err := stsdrain.CompileRule("receipt.found == receipt.moved")
	if err != nil {
		t.Fatal(err)
	}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "job", UID: "job", Labels: map[string]string{cachev1alpha1.LabelComponent: cachev1alpha1.ComponentDrainer}, Annotations: map[string]string{
		cachev1alpha1.AnnotationClaimUID: "claim", cachev1alpha1.AnnotationClaims: "claim", cachev1alpha1.AnnotationSurvivors: "2",
	}}}
	begun := metav1.NewTime(time.Unix(1000, 0))
	for what, told := range map[string]func(*corev1.Pod){
		"by itself": nil,
		"deleted":   func(p *corev1.Pod) { p.DeletionTimestamp = &begun },
		"evicted": func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}
		},
		"by the kubelet":  func(p *corev1.Pod) { p.Status.Phase, p.Status.Reason = corev1.PodFailed, "DeadlineExceeded" },
		"by its deadline": func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds, p.Status.StartTime = ptr.To[int64](60), &begun },
	} {
		for _, r := range []*stsdrain.Rule{nil, rule} {
			pod := endedPod(corev1.ContainerStateTerminated{Message: `{"found": 3, "moved": 3}`, FinishedAt: metav1.NewTime(begun.Add(time.Minute))})
			pod.OwnerReferences = []metav1.OwnerReference{{UID: "job", Controller: ptr.To(true)}}
			if told != nil {
				told(pod)
			}
			kept, _ := trim.Pod(pod)
			owner := &read.Owner{Receipt: func(job *batchv1.Job, pod *corev1.Pod) (*action.Receipt, error) { return jobReceipt(r, nil, job, pod) }}
			done := owner.Job(job, []corev1.Pod{*kept.(*corev1.Pod)}).State == claims.JobComplete
			if want := told == nil || r != nil; done != want {
				t.Errorf("it ended: %s, with a rule: %t: done %t, want %t", what, r != nil, done, want)
			}
		}
	}
}

func TestProgressIsALineWithTwoCounts(t *testing.T) {
	for line, want := range map[string]*Progress{
		`{"done": 1, "total": 4}`:                   {1, 4},
		`{"done": 0, "total": 4, "more": "x"}`:      {0, 4},
		`{"done": 4, "total": 4}`:                   {4, 4},
		`{"done": 5, "total": 4}`:                   nil,
		`{"done": -1, "total": 4}`:                  nil,
		`{"done": 0, "total": 0}`:                   nil,
		`{"done": 1}`:                               nil,
		`{"done": 1, "total": 9223372036854775807}`: nil,
		`done 1 of 4`:                               nil,
		`{"done": 1.5, "total": 4}`:                 nil,
	} {
		if diff := cmp.Diff(want, ParseProgress([]byte(line))); diff != "" {
			t.Errorf("%s: %s", line, diff)
		}
	}
}

// A member exists while a pod has its name, or mounts its claim. Ready counts only if the StatefulSet made the pod, and it
// is not ending.
func TestWhichMembersExistAndAreReady(t *testing.T) {
	set := statefulSet()
	pod := func(name string, ready bool, changes ...func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))}}}
		if ready {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		}
		for _, change := range changes {
			change(p)
		}
		return p
	}
	mounts := func(claim string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}})
		}
	}
	exist, ready := Ordinals("queue", set, []*corev1.Pod{
		pod("queue-0", true), pod("queue-1", false), pod("queue-2", true, func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }),
		pod("queue-3", true, func(p *corev1.Pod) { p.OwnerReferences = nil }), pod("debug", true, mounts("data-queue-7"), mounts("data-queue-8-aside-0123abcd")), pod("queue-x", true),
	})
	if diff := cmp.Diff([][]int32{{0, 1, 2, 3, 7}, {0}}, [][]int32{exist, ready}); diff != "" {
		t.Error(diff)
	}
}

func TestAStatefulSetIsObservedWithItsDefaults(t *testing.T) {
	s := statefulSet()
	s.Spec.Replicas, s.Spec.Ordinals = ptr.To[int32](-1), &appsv1.StatefulSetOrdinals{Start: 5}
	s.OwnerReferences = []metav1.OwnerReference{{APIVersion: cachev1alpha1.GroupVersion.String(), Kind: "Memcached", Name: "cache", Controller: ptr.To(true)}}
	want := stsdrain.StatefulSet{Name: "queue", Exists: true, UID: "set", Version: "set/0", Start: 5, Templates: []string{"data"}, OrderedReady: true, Memcached: "cache"}
	if diff := cmp.Diff(want, set(drain(), s)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(stsdrain.StatefulSet{Name: "queue"}, set(drain(), nil)); diff != "" {
		t.Error(diff)
	}
	if wants(drain()).Parallelism != 1 || wants(drain()).Policy != claims.Drain {
		t.Errorf("the defaults are %+v", wants(drain()))
	}
}

func TestTheGracePeriodIsTheTemplates(t *testing.T) {
	for raw, want := range map[string]int64{`{"terminationGracePeriodSeconds": 90}`: 90, `{}`: 0, `{"terminationGracePeriodSeconds": -1}`: 0, `nonsense`: 0} {
		d := drain()
		d.Spec.Template.Spec = runtime.RawExtension{Raw: []byte(raw)}
		if is := grace(d); is != want {
			t.Errorf("%s: %d", raw, is)
		}
	}
}
