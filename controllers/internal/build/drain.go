package build

import (
	"encoding/json"
	"maps"
	"math"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/ring"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/routing"
)

// unreachableTimeout is how long one attempt waits for a survivor.
const unreachableTimeout = 2 * time.Minute

// DrainJob drains the claim to the given number of survivors. The Job mounts the volume read-only,
// runs where the member could run, and never has two pods: a failed pod is replaced only when it is
// gone. neverStarted: the volume may be empty, because the member never started.
func DrainJob(c *cachev1alpha1.Memcached, o Options, ports Ports, claim string, uid types.UID, survivors int32, neverStarted bool) *batchv1.Job {
	args := drainArgs(c, ports, uid, survivors)
	args.NeverStarted = neverStarted
	return movingJob(c, o, ports, DrainName(claim, uid), cachev1alpha1.ComponentDrainer, map[string]string{
		cachev1alpha1.AnnotationClaimUID:  string(uid),
		cachev1alpha1.AnnotationSurvivors: strconv.Itoa(int(survivors)),
	}, drainPod(c, o, claim, args))
}

// JobTTL is the ttlSecondsAfterFinished of a drainer's Job, in seconds. The operator itself deletes a Job,
// when its failure is counted or its receipt is on the claim. The field is set because some clusters have
// policies that set it where it is missing: if a failed Job were deleted too early, the next one would follow
// without a pause.
const JobTTL = math.MaxInt32

// movingJob is a Job that runs a drainer, for a drain or a move.
func movingJob(c *cachev1alpha1.Memcached, o Options, ports Ports, name, component string, annotations map[string]string, pod corev1.PodSpec) *batchv1.Job {
	t := drainersTemplate(c)
	labels := withOurs(t.Labels, Labels(c, component))
	annotations = withOurs(t.Annotations, annotations)
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name:      name,
			Namespace: c.Namespace,
			Labels:    labels,
			Annotations: withOurs(annotations, map[string]string{
				cachev1alpha1.AnnotationDrainer: DrainerTemplate(c, o),
				cachev1alpha1.AnnotationPorts:   ports.Mark(c),
			}),
			OwnerReferences: []metav1.OwnerReference{ownerReference(c)},
		},
		Spec: batchv1.JobSpec{
			// The drainer has its own deadline. The Job's activeDeadlineSeconds would also count
			// the time that its pod waits.
			BackoffLimit:            c.Spec.Drain.BackoffLimit,
			PodReplacementPolicy:    ptr.To(batchv1.Failed),
			PodFailurePolicy:        podFailurePolicy(),
			TTLSecondsAfterFinished: ptr.To[int32](JobTTL),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: maps.Clone(labels), Annotations: maps.Clone(annotations)},
				Spec:       pod,
			},
		},
	}
}

// DrainerTemplate is a hash of everything that decides whether a drainer's pod can be created and
// can start: its pod and a person's labels and annotations, without the drainer's arguments.
func DrainerTemplate(c *cachev1alpha1.Memcached, o Options) string {
	pod := movingPod(c, o)
	withDrainer(c, &pod, movingContainer(c, o.OperatorImage, nil, nil))
	text, _ := json.Marshal(struct {
		Labels, Annotations map[string]string
		Pod                 corev1.PodSpec
	}{c.Spec.Drain.PodTemplate.Labels, c.Spec.Drain.PodTemplate.Annotations, pod}) // a spec can always be marshalled
	return hash(string(text))
}

// withOurs merges a person's map with ours; our values win.
func withOurs(given, ours map[string]string) map[string]string {
	all := make(map[string]string, len(given)+len(ours))
	maps.Copy(all, given)
	maps.Copy(all, ours)
	return all
}

// podFailurePolicy ends a Job early only if a retry can't succeed: a drainer that can't read its
// source fails the Job at once. An eviction doesn't count as a failure.
func podFailurePolicy() *batchv1.PodFailurePolicy {
	return &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{
		{
			Action: batchv1.PodFailurePolicyActionFailJob,
			OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
				ContainerName: ptr.To(ContainerDrainer),
				Operator:      batchv1.PodFailurePolicyOnExitCodesOpIn,
				Values:        contract.NoRetry,
			},
		},
		{
			Action: batchv1.PodFailurePolicyActionIgnore,
			OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{
				{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue},
			},
		},
	}}
}

// namedServers are the ring's members as arguments of the drainer: [NAME=]HOST:PORT. Each member
// is dialled at its own port. Clients hash the ring's port, so a member that listens at another
// port gets a name.
func namedServers(c *cachev1alpha1.Memcached, ports Ports, r ring.Ring) []string {
	members := r.Members()
	servers := make([]string, len(members))
	for i, s := range RingServers(c, r) {
		servers[i] = s.At(r.Client, ports.dialled(c, members[i], r.Stable)).Text()
	}
	return servers
}

// RingServers are the members of one of the cluster's rings, at the ring's port.
func RingServers(c *cachev1alpha1.Memcached, r ring.Ring) []routing.Server {
	members := r.Members()
	servers := make([]routing.Server, len(members))
	for at, i := range members {
		servers[at] = routing.Server{Host: reachedHost(c, i, r.Stable), Port: uint16(r.Port)}
		if r.ServerName != "" {
			servers[at].Name = strings.Replace(r.ServerName, "{ordinal}", strconv.Itoa(int(i)), 1)
		}
	}
	return servers
}

// drainPod is the pod that runs the drainer of a drain, in the operator's image.
func drainPod(c *cachev1alpha1.Memcached, o Options, claim string, args contract.Drain) corev1.PodSpec {
	spec := movingPod(c, o)
	spec.Volumes = append(spec.Volumes, corev1.Volume{
		Name: volumeName,
		VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim, ReadOnly: true},
		},
	})
	mounts := []corev1.VolumeMount{{Name: volumeName, MountPath: dataDir, ReadOnly: true}}
	withDrainer(c, &spec, movingContainer(c, o.OperatorImage, append([]string{DrainerPath}, args.Args()...), mounts))
	return spec
}

// movingPod is a drainer's pod without its container. The pod runs where the members could run, unless its
// template says otherwise, and mounts only the Secrets that it needs to connect to members.
func movingPod(c *cachev1alpha1.Memcached, o Options) corev1.PodSpec {
	t := drainersTemplate(c)
	secrets, _ := secretVolumes(c, false)
	return corev1.PodSpec{
		RestartPolicy:                corev1.RestartPolicyNever,
		AutomountServiceAccountToken: ptr.To(false),
		EnableServiceLinks:           ptr.To(false),
		NodeSelector:                 t.NodeSelector,
		Affinity:                     t.Affinity,
		Tolerations:                  t.Tolerations,
		ImagePullSecrets:             t.ImagePullSecrets,
		PriorityClassName:            t.PriorityClassName,
		ServiceAccountName:           t.ServiceAccountName,
		SecurityContext:              securityContext(t, o), // a drainer writes nothing, so its volume needs no fsGroup
		SchedulerName:                t.SchedulerName,
		RuntimeClassName:             t.RuntimeClassName,

		TerminationGracePeriodSeconds: t.TerminationGracePeriodSeconds,
		Volumes:                       secrets,
	}
}

// withDrainer adds the drainer's container to the pod, and after it the containers and volumes of the spec's
// template. When the drainer has ended, the operator deletes the Job, and Kubernetes stops the other
// containers.
func withDrainer(c *cachev1alpha1.Memcached, pod *corev1.PodSpec, drainer corev1.Container) {
	t := c.Spec.Drain.PodTemplate.DeepCopy()
	drainer.Env = t.Env
	drainer.VolumeMounts = append(drainer.VolumeMounts, t.VolumeMounts...)
	pod.Volumes = append(pod.Volumes, t.Volumes...)
	pod.InitContainers = t.InitContainers
	pod.Containers = append([]corev1.Container{drainer}, t.Containers...)
}

func movingContainer(c *cachev1alpha1.Memcached, image string, command []string, mounts []corev1.VolumeMount) corev1.Container {
	_, secrets := secretVolumes(c, false)
	return corev1.Container{
		Name:                   ContainerDrainer,
		Image:                  image,
		Command:                command,
		Resources:              drainResources(c),
		SecurityContext:        drainSecurity(),
		TerminationMessagePath: contract.TerminationLog,
		VolumeMounts:           append(mounts, secrets...),
	}
}

func drainArgs(c *cachev1alpha1.Memcached, ports Ports, uid types.UID, survivors int32) contract.Drain {
	return contract.Drain{Dir: dataDir, Transfer: transferArgs(c, ports, string(uid), RingOf(c, survivors))}
}

// transferArgs are the arguments that drains and moves share: where items go, and how fast.
func transferArgs(c *cachev1alpha1.Memcached, ports Ports, source string, to ring.Ring) contract.Transfer {
	m := contract.Transfer{
		SourceID:           source,
		Client:             c.Spec.Routing.RingClient(),
		KeyPrefix:          c.Spec.Routing.KeyPrefix,
		Servers:            namedServers(c, ports, to),
		UnreachableTimeout: unreachableTimeout,
		Deadline:           deadline(c),
		Receipt:            contract.TerminationLog,
		Connection:         connection(c),
	}
	m.RateLimitItems, m.RateLimitBytes = rates(c.Spec.Drain.RateLimit)
	if within := c.Spec.Drain.SkipExpiringWithin; within != nil {
		m.SkipExpiringWithin = within.Duration
	}
	return m
}

// deadline is the time that one drainer may run; the API server sets the default and the bounds.
func deadline(c *cachev1alpha1.Memcached) time.Duration {
	const year = 365 * 24 * time.Hour
	return min(ptr.Deref(c.Spec.Drain.ActiveDeadline, metav1.Duration{Duration: time.Hour}).Duration, year)
}

func drainSecurity() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: ptr.To(false),
		ReadOnlyRootFilesystem:   ptr.To(true),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}

// drainResources requests less CPU than members and routers do: where the node has too little, clients' requests
// come first.
func drainResources(c *cachev1alpha1.Memcached) corev1.ResourceRequirements {
	return withRequests(&c.Spec.Drain.Resources, "10m", "64Mi")
}
