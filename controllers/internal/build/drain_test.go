package build

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/drainer/contract"
)

func drainJob(b *apitest.MemcachedBuilder) *batchv1.Job {
	return DrainJob(b.Namespace("shop").Storage("128Mi").Defaulted().Obj(),
		Options{MemcachedImage: "memcached:1", OperatorImage: "operator:1"}, nil, "data-cache-2", "uid-2", 2, false)
}

func TestOnlyTheDrainerOfAMemberThatNeverStartedIsToldSo(t *testing.T) {
	for _, never := range []bool{false, true} {
		job := DrainJob(apitest.MakeMemcached("cache").Storage("128Mi").Defaulted().Obj(), Options{}, nil, "data-cache-2", "uid-2", 2, never)
		if told := slices.Contains(job.Spec.Template.Spec.Containers[0].Command, "--never-started"); told != never {
			t.Errorf("never started: %v, told so: %v", never, told)
		}
	}
}

// Invariant 3.
func TestDepartedVolumeIsMountedReadOnly(t *testing.T) {
	pod := drainJob(apitest.MakeMemcached("cache")).Spec.Template.Spec
	want := corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-cache-2", ReadOnly: true},
	}}
	if diff := cmp.Diff(want, pod.Volumes[0]); diff != "" {
		t.Errorf("volume: -want +got:\n%s", diff)
	}
	if diff := cmp.Diff(corev1.VolumeMount{Name: "data", MountPath: "/data", ReadOnly: true}, pod.Containers[0].VolumeMounts[0]); diff != "" {
		t.Errorf("mount: -want +got:\n%s", diff)
	}
	for _, c := range append(pod.InitContainers, pod.Containers[0]) {
		for _, m := range c.VolumeMounts {
			if m.Name == "data" && !m.ReadOnly {
				t.Errorf("%s mounts the volume for writing", c.Name)
			}
		}
	}
}

// TestADrainerReadsTheVolumeByItself: in the operator's image, without another container.
func TestADrainerReadsTheVolumeByItself(t *testing.T) {
	pod := drainJob(apitest.MakeMemcached("cache")).Spec.Template.Spec
	if c := pod.Containers[0]; c.Image != "operator:1" || c.Command[0] != "/drainer" || len(pod.InitContainers) > 0 {
		t.Errorf("image %q, program %q, init containers %v", c.Image, c.Command[0], pod.InitContainers)
	}
}

func TestDrainerIsToldItsLimits(t *testing.T) {
	m := apitest.MakeMemcached("cache").With(func(s *cachev1alpha1.MemcachedSpec) {
		s.Drain.RateLimit = &cachev1alpha1.RateLimit{ItemsPerSecond: ptr.To[int64](500), BytesPerSecond: ptr.To(resource.MustParse("2Mi"))}
		s.Drain.SkipExpiringWithin = &metav1.Duration{Duration: 90 * time.Second}
	})
	command := drainJob(m).Spec.Template.Spec.Containers[0].Command
	for _, want := range []string{"--rate-limit-items=500", "--rate-limit-bytes=2097152", "--skip-expiring-within=1m30s"} {
		if !slices.Contains(command, want) {
			t.Errorf("%s is not in %q", want, command)
		}
	}
}

func TestDrainerIsToldItsSourceAndItsSurvivors(t *testing.T) {
	job := drainJob(apitest.MakeMemcached("cache"))
	want := []string{
		"/drainer", "drain", "--dir=/data", "--source-id=uid-2", "--client=libmemcached-ketama-weighted",
		"--unreachable-timeout=2m0s", "--receipt=/dev/termination-log", "--deadline=1h0m0s",
		"--server=cache-0.cache.shop.svc:11211", "--server=cache-1.cache.shop.svc:11211",
	}
	container := job.Spec.Template.Spec.Containers[0]
	if diff := cmp.Diff(want, container.Command); diff != "" {
		t.Errorf("command: -want +got:\n%s", diff)
	}
	if container.Image != "operator:1" || container.TerminationMessagePath != contract.TerminationLog {
		t.Errorf("image %q, termination message %q", container.Image, container.TerminationMessagePath)
	}
	told := map[string]string{cachev1alpha1.AnnotationClaimUID: "uid-2", cachev1alpha1.AnnotationSurvivors: "2", safeToEvict: "true"}
	if diff := cmp.Diff(told, job.Spec.Template.Annotations); diff != "" {
		t.Errorf("annotations of its pods: -want +got:\n%s", diff)
	}
	delete(job.Annotations, cachev1alpha1.AnnotationDrainer) // TestADrainersJobSaysHowItsPodsAreMade
	delete(job.Annotations, cachev1alpha1.AnnotationPorts)   // TestAJobTellsWhereItsMembersListened
	if diff := cmp.Diff(told, job.Annotations); diff != "" {
		t.Errorf("annotations: -want +got:\n%s", diff)
	}
}

// Invariant 6: a pod is replaced only when it has ended for good.
// TestDrainerIsToldTheClientsNamesAndPrefix: the name by which clients call a member precedes the
// address at which it is dialled.
func TestDrainerIsToldTheClientsNamesAndPrefix(t *testing.T) {
	m := apitest.MakeMemcached("cache").With(func(s *cachev1alpha1.MemcachedSpec) {
		s.Routing.KeyPrefix = "shop:"
		s.Routing.ServerName = "cache-{ordinal}.cache.shop.svc.cluster.local"
	})
	got := drainJob(m).Spec.Template.Spec.Containers[0].Command
	want := []string{
		"--key-prefix=shop:",
		"--server=cache-0.cache.shop.svc.cluster.local=cache-0.cache.shop.svc:11211",
		"--server=cache-1.cache.shop.svc.cluster.local=cache-1.cache.shop.svc:11211",
	}
	if diff := cmp.Diff(want, got[len(got)-len(want):]); diff != "" {
		t.Errorf("command's end: -want +got:\n%s", diff)
	}
}

func TestTwoDrainersOfOneVolumeNeverOverlap(t *testing.T) {
	spec := drainJob(apitest.MakeMemcached("cache")).Spec
	if got := ptr.Deref(spec.PodReplacementPolicy, ""); got != batchv1.Failed {
		t.Errorf("podReplacementPolicy %q", got)
	}
	if p := ptr.Deref(spec.Parallelism, 1); p != 1 {
		t.Errorf("parallelism %d", p)
	}
	if spec.Template.Spec.RestartPolicy != corev1.RestartPolicyNever {
		t.Errorf("restartPolicy %q", spec.Template.Spec.RestartPolicy)
	}
}

func TestDrainIsRetriedOnlyWhereThatCanHelp(t *testing.T) {
	policy := drainJob(apitest.MakeMemcached("cache")).Spec.PodFailurePolicy
	for code, want := range map[int32]batchv1.PodFailurePolicyAction{
		contract.ExitFailed:        batchv1.PodFailurePolicyActionCount,
		contract.ExitUsage:         batchv1.PodFailurePolicyActionFailJob,
		contract.ExitUnrecoverable: batchv1.PodFailurePolicyActionFailJob,
		contract.ExitUnreachable:   batchv1.PodFailurePolicyActionCount,
		contract.ExitRejected:      batchv1.PodFailurePolicyActionCount,
	} {
		if got := actionAfter(policy, code); got != want {
			t.Errorf("exit code %d: %s, want %s", code, got, want)
		}
	}
	disrupted := slices.ContainsFunc(policy.Rules, func(r batchv1.PodFailurePolicyRule) bool {
		return r.Action == batchv1.PodFailurePolicyActionIgnore && len(r.OnPodConditions) == 1 && r.OnPodConditions[0].Type == corev1.DisruptionTarget
	})
	if !disrupted {
		t.Errorf("an eviction counts as a failure: %v", policy.Rules)
	}
}

// actionAfter is the action of the first rule for the exit code.
func actionAfter(policy *batchv1.PodFailurePolicy, code int32) batchv1.PodFailurePolicyAction {
	for _, rule := range policy.Rules {
		if rule.OnExitCodes != nil && slices.Contains(rule.OnExitCodes.Values, code) {
			return rule.Action
		}
	}
	return batchv1.PodFailurePolicyActionCount
}

func TestDrainerRunsWhereTheMemberCouldRun(t *testing.T) {
	b := apitest.MakeMemcached("cache").EveryField()
	template := b.Obj().Spec.PodTemplate
	pod := drainJob(b).Spec.Template.Spec
	if diff := cmp.Diff(&corev1.Affinity{NodeAffinity: template.Affinity.NodeAffinity}, pod.Affinity); diff != "" {
		t.Errorf("affinity, of which only the nodes' is the drainer's: -want +got:\n%s", diff)
	}
	if diff := cmp.Diff(template.NodeSelector, pod.NodeSelector); diff != "" {
		t.Errorf("nodeSelector: -want +got:\n%s", diff)
	}
	if diff := cmp.Diff(template.Tolerations, pod.Tolerations); diff != "" {
		t.Errorf("tolerations: -want +got:\n%s", diff)
	}
	if diff := cmp.Diff(template.ImagePullSecrets, pod.ImagePullSecrets); diff != "" {
		t.Errorf("imagePullSecrets: -want +got:\n%s", diff)
	}
}

func TestDrainerHoldsNoCredentialsAndNoPrivilege(t *testing.T) {
	pod := drainJob(apitest.MakeMemcached("cache")).Spec.Template.Spec
	if ptr.Deref(pod.AutomountServiceAccountToken, true) {
		t.Error("a service account's token is mounted")
	}
	for _, c := range append(pod.InitContainers, pod.Containers...) {
		security := c.SecurityContext
		if ptr.Deref(security.AllowPrivilegeEscalation, true) || !ptr.Deref(security.ReadOnlyRootFilesystem, false) ||
			!ptr.Deref(pod.SecurityContext.RunAsNonRoot, false) {
			t.Errorf("%s: security: %v %v", c.Name, pod.SecurityContext, security)
		}
		if diff := cmp.Diff([]corev1.Capability{"ALL"}, security.Capabilities.Drop); diff != "" {
			t.Errorf("%s: capabilities: -want +got:\n%s", c.Name, diff)
		}
	}
}

func TestJobHasTheSpecsLimits(t *testing.T) {
	spec := drainJob(apitest.MakeMemcached("cache").With(func(s *cachev1alpha1.MemcachedSpec) {
		s.Drain.BackoffLimit, s.Drain.ActiveDeadline = ptr.To[int32](0), &metav1.Duration{Duration: 77 * time.Second}
	})).Spec
	if *spec.BackoffLimit != 0 {
		t.Errorf("backoffLimit %d", *spec.BackoffLimit)
	}
	if command := spec.Template.Spec.Containers[0].Command; !slices.Contains(command, "--deadline=1m17s") {
		t.Errorf("the drainer is not told its deadline: %v", command)
	}
}

// A deadline of the Job, or of the pod, would also run while the pod waits for a node, a volume or
// an image.
func TestPendingTimeCountsAgainstNoDeadline(t *testing.T) {
	c := apitest.MakeMemcached("cache").Storage("1Gi").Defaulted().Obj()
	for name, spec := range map[string]batchv1.JobSpec{
		"drain": DrainJob(c, Options{}, nil, "data-cache-2", "uid", 2, false).Spec,
		"move":  MoveJob(c, Options{}, Move{Claim: "data-cache-0", UID: "uid", Target: "1", Members: 3}).Spec,
	} {
		if spec.ActiveDeadlineSeconds != nil || spec.Template.Spec.ActiveDeadlineSeconds != nil {
			t.Errorf("%s: the Job's deadline is %v s, its pod's %v s", name, spec.ActiveDeadlineSeconds, spec.Template.Spec.ActiveDeadlineSeconds)
		}
	}
}

// A policy that gives Jobs a time to live where they have none must not delete one that isn't counted yet.
func TestAJobThatHasEndedStaysUntilTheOperatorDeletesIt(t *testing.T) {
	c := apitest.MakeMemcached("cache").Storage("1Gi").Defaulted().Obj()
	for name, spec := range map[string]batchv1.JobSpec{
		"drain": DrainJob(c, Options{}, nil, "data-cache-2", "uid", 2, false).Spec,
		"move":  MoveJob(c, Options{}, Move{Claim: "data-cache-0", UID: "uid", Target: "1", Members: 3}).Spec,
	} {
		if ttl := spec.TTLSecondsAfterFinished; ttl == nil || *ttl != math.MaxInt32 {
			t.Errorf("%s: it goes after %v s", name, ttl)
		}
	}
}

func TestJobsHaveWhatTheTemplateGivesThem(t *testing.T) {
	c := apitest.MakeMemcached("cache").Storage("1Gi").Defaulted().With(func(s *cachev1alpha1.MemcachedSpec) {
		s.PodTemplate.ServiceAccountName = "members"
		s.Drain.PodTemplate = cachev1alpha1.PodTemplate{
			Labels:      map[string]string{"team": "shop", cachev1alpha1.LabelComponent: "mine", cachev1alpha1.LabelInstance: "mine"},
			Annotations: map[string]string{"sidecar.istio.io/inject": "false", cachev1alpha1.AnnotationClaimUID: "mine"},
		}
	}).Obj()
	jobs := func() map[string]*batchv1.Job {
		return map[string]*batchv1.Job{
			cachev1alpha1.ComponentDrainer: DrainJob(c, Options{}, nil, "data-cache-2", "uid", 2, false),
			cachev1alpha1.ComponentMove:    MoveJob(c, Options{}, Move{Claim: "data-cache-0", UID: "uid", Target: "1", Members: 3}),
		}
	}
	for component, job := range jobs() {
		for where, meta := range map[string]metav1.ObjectMeta{"Job": job.ObjectMeta, "pod": job.Spec.Template.ObjectMeta} {
			want := Labels(c, component)
			want["team"] = "shop"
			if diff := cmp.Diff(want, meta.Labels); diff != "" {
				t.Errorf("%s, %s: labels: -want +got:\n%s", component, where, diff)
			}
			if a := meta.Annotations; a["sidecar.istio.io/inject"] != "false" || a[cachev1alpha1.AnnotationClaimUID] != "uid" {
				t.Errorf("%s, %s: annotations %v", component, where, a)
			}
		}
		if got := job.Spec.Template.Spec.ServiceAccountName; got != "members" {
			t.Errorf("%s: service account %q, want that of the members", component, got)
		}
	}
	c.Spec.Drain.PodTemplate.ServiceAccountName = "drainers"
	for component, job := range jobs() {
		if got := job.Spec.Template.Spec.ServiceAccountName; got != "drainers" {
			t.Errorf("%s: service account %q, want the one of drain.podTemplate", component, got)
		}
	}
}

func TestASecurityContextIsMergedOverTheDefaults(t *testing.T) {
	type user struct {
		User, Group int64
		NonRoot     *bool
		Seccomp     corev1.SeccompProfileType
		FSGroup     *int64
		FSPolicy    *corev1.PodFSGroupChangePolicy
		Groups      []int64
	}
	onMismatch, always := corev1.FSGroupChangeOnRootMismatch, corev1.FSGroupChangeAlways
	for name, test := range map[string]struct {
		given            *corev1.PodSecurityContext
		members, drainer user
	}{
		"nothing": {
			nil,
			user{11211, 11211, ptr.To(true), "RuntimeDefault", ptr.To[int64](11211), &onMismatch, nil},
			user{11211, 11211, ptr.To(true), "RuntimeDefault", nil, nil, nil},
		},
		"empty": {
			&corev1.PodSecurityContext{},
			user{11211, 11211, ptr.To(true), "RuntimeDefault", ptr.To[int64](11211), &onMismatch, nil},
			user{11211, 11211, ptr.To(true), "RuntimeDefault", nil, nil, nil},
		},
		"a group more": {
			&corev1.PodSecurityContext{SupplementalGroups: []int64{7}},
			user{11211, 11211, ptr.To(true), "RuntimeDefault", ptr.To[int64](11211), &onMismatch, []int64{7}},
			user{11211, 11211, ptr.To(true), "RuntimeDefault", nil, nil, []int64{7}},
		},
		"another user": {
			&corev1.PodSecurityContext{RunAsUser: ptr.To[int64](1000), FSGroup: ptr.To[int64](2000), FSGroupChangePolicy: &always},
			user{1000, 11211, ptr.To(true), "RuntimeDefault", ptr.To[int64](2000), &always, nil},
			user{1000, 11211, ptr.To(true), "RuntimeDefault", ptr.To[int64](2000), &always, nil},
		},
		"root": {
			&corev1.PodSecurityContext{RunAsUser: ptr.To[int64](0), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}},
			user{0, 11211, nil, "Unconfined", ptr.To[int64](11211), &onMismatch, nil},
			user{0, 11211, nil, "Unconfined", nil, nil, nil},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := apitest.MakeMemcached("cache").Storage("1Gi").Defaulted().With(func(s *cachev1alpha1.MemcachedSpec) {
				s.PodTemplate.SecurityContext = test.given
			}).Obj()
			m := StatefulSet(c, Options{}, 3).Spec.Template.Spec.SecurityContext
			members := user{*m.RunAsUser, *m.RunAsGroup, m.RunAsNonRoot, *m.SeccompProfile.Type, m.FSGroup, m.FSGroupChangePolicy, m.SupplementalGroups}
			if diff := cmp.Diff(test.members, members); diff != "" {
				t.Errorf("members: -want +got:\n%s", diff)
			}
			d := DrainJob(c, Options{}, nil, "data-cache-2", "uid", 2, false).Spec.Template.Spec.SecurityContext
			drainer := user{*d.RunAsUser, *d.RunAsGroup, d.RunAsNonRoot, d.SeccompProfile.Type, d.FSGroup, d.FSGroupChangePolicy, d.SupplementalGroups}
			if diff := cmp.Diff(test.drainer, drainer); diff != "" {
				t.Errorf("drainer: -want +got:\n%s", diff)
			}
		})
	}
}
