package build

import (
	"maps"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/drainer/contract"
)

// unreachableTimeout is how long one attempt waits for a survivor; the Job's
// retries, and its deadline, bound the whole.
const unreachableTimeout = 2 * time.Minute

// DrainJob drains the claim into the first survivors members. It mounts the
// volume read-only, runs where the member could run, and is never two: a pod
// that failed is replaced only when it is gone. Where the member never started, the
// volume may be as new.
func DrainJob(c *cachev1alpha1.Memcached, o Options, claim string, uid types.UID, survivors int32, neverStarted bool) *batchv1.Job {
	args := migrateArgs(c, uid, survivors)
	args.NeverStarted = neverStarted
	return movingJob(c, JobName(claim, uid), cachev1alpha1.ComponentDrainer, map[string]string{
		cachev1alpha1.AnnotationClaimUID:  string(uid),
		cachev1alpha1.AnnotationSurvivors: strconv.Itoa(int(survivors)),
	}, drainPod(c, o, claim, args))
}

// movingJob runs a drainer that moves items, in a pod of this component.
func movingJob(c *cachev1alpha1.Memcached, name, component string, annotations map[string]string, pod corev1.PodSpec) *batchv1.Job {
	labels := Labels(c, component)
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name:            name,
			Namespace:       c.Namespace,
			Labels:          labels,
			Annotations:     annotations,
			OwnerReferences: []metav1.OwnerReference{ownerReference(c)},
		},
		Spec: batchv1.JobSpec{
			BackoffLimit:          c.Spec.Drain.BackoffLimit,
			ActiveDeadlineSeconds: c.Spec.Drain.ActiveDeadlineSeconds,
			PodReplacementPolicy:  ptr.To(batchv1.Failed),
			PodFailurePolicy:      podFailurePolicy(),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: maps.Clone(labels), Annotations: maps.Clone(annotations)},
				Spec:       pod,
			},
		},
	}
}

// podFailurePolicy retries what a retry can mend: a drainer that was evicted
// doesn't count, and one that can't read its source fails the Job at once.
func podFailurePolicy() *batchv1.PodFailurePolicy {
	return &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{
		{
			Action: batchv1.PodFailurePolicyActionFailJob,
			OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
				ContainerName: ptr.To(containerDrainer),
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

// namedServers are the members as the drainer takes them: [NAME=]HOST:PORT.
func namedServers(c *cachev1alpha1.Memcached, n int32) []string {
	servers := Servers(c, n)
	if c.Spec.Routing.ServerName == "" {
		return servers
	}
	for i, address := range servers {
		name := strings.Replace(c.Spec.Routing.ServerName, "{ordinal}", strconv.Itoa(i), 1)
		servers[i] = name + "=" + address
	}
	return servers
}

// nodeAffinity is the part of a member's affinity that its drainer shares: what
// it says of other pods is about members.
func nodeAffinity(members *corev1.Affinity) *corev1.Affinity {
	if members == nil || members.NodeAffinity == nil {
		return nil
	}
	return &corev1.Affinity{NodeAffinity: members.NodeAffinity}
}

// drainPod runs the drainer in the operator's image, or, where it may have to
// start a memcached (readers Restart and Auto), in the member's: the program is
// copied there as it is for the members, and a scratch directory takes the copy
// of the warm file. Scratch space is used by that memcached only.
func drainPod(c *cachev1alpha1.Memcached, o Options, claim string, args contract.Migrate) corev1.PodSpec {
	spec := movingPod(c)
	spec.Volumes = append(spec.Volumes, corev1.Volume{
		Name: volumeName,
		VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim, ReadOnly: true},
		},
	})
	path, image := DrainerPath, o.OperatorImage
	mounts := []corev1.VolumeMount{{Name: volumeName, MountPath: dataDir, ReadOnly: true}}
	if c.Spec.Drain.Reader != cachev1alpha1.ReaderWarmFile {
		args.Scratch, path, image = scratchDir, supervisorDir+"/drainer", memberImage(c, o)
		mounts = append(mounts,
			corev1.VolumeMount{Name: supervisorVolume, MountPath: supervisorDir, ReadOnly: true},
			corev1.VolumeMount{Name: scratchVolume, MountPath: scratchDir})
		spec.Volumes = append(spec.Volumes, emptyDir(supervisorVolume), emptyDir(scratchVolume))
		spec.InitContainers = []corev1.Container{installDrainer(o)}
	}
	spec.Containers = []corev1.Container{movingContainer(c, image, append([]string{path}, args.Args()...), mounts)}
	return spec
}

// movingPod is a pod of a drainer, without its container: it runs where the
// members could, and has of their Secrets what it takes to speak to them.
func movingPod(c *cachev1alpha1.Memcached) corev1.PodSpec {
	t := c.Spec.Template
	secrets, _ := secretVolumes(c, false)
	return corev1.PodSpec{
		RestartPolicy:                corev1.RestartPolicyNever,
		AutomountServiceAccountToken: ptr.To(false),
		EnableServiceLinks:           ptr.To(false),
		NodeSelector:                 t.NodeSelector,
		Affinity:                     nodeAffinity(t.Affinity),
		Tolerations:                  t.Tolerations,
		ImagePullSecrets:             t.ImagePullSecrets,
		PriorityClassName:            t.PriorityClassName,
		SecurityContext:              drainPodSecurity(c),
		SchedulerName:                t.SchedulerName,
		RuntimeClassName:             t.RuntimeClassName,
		Volumes:                      secrets,
	}
}

func movingContainer(c *cachev1alpha1.Memcached, image string, command []string, mounts []corev1.VolumeMount) corev1.Container {
	_, secrets := secretVolumes(c, false)
	return corev1.Container{
		Name:                   containerDrainer,
		Image:                  image,
		Command:                command,
		Resources:              drainResources(c),
		SecurityContext:        drainSecurity(),
		TerminationMessagePath: contract.TerminationLog,
		VolumeMounts:           append(mounts, secrets...),
	}
}

func migrateArgs(c *cachev1alpha1.Memcached, uid types.UID, survivors int32) contract.Migrate {
	return contract.Migrate{Dir: dataDir, Reader: string(c.Spec.Drain.Reader), Move: moveArgs(c, string(uid), survivors)}
}

// moveArgs are common to drains and placements: where items go, and how fast.
func moveArgs(c *cachev1alpha1.Memcached, source string, members int32) contract.Move {
	m := contract.Move{
		SourceID:           source,
		Client:             string(c.Spec.Routing.Client),
		KeyPrefix:          c.Spec.Routing.KeyPrefix,
		Servers:            namedServers(c, members),
		UnreachableTimeout: unreachableTimeout,
		Receipt:            contract.TerminationLog,
		Connection:         connection(c),
	}
	if limit := c.Spec.Drain.RateLimit; limit != nil {
		m.RateLimitItems = ptr.Deref(limit.ItemsPerSecond, 0)
		if limit.BytesPerSecond != nil {
			m.RateLimitBytes = limit.BytesPerSecond.Value()
		}
	}
	if within := c.Spec.Drain.SkipExpiringWithin; within != nil {
		m.SkipExpiringWithin = within.Duration
	}
	return m
}

// installDrainer copies the drainer to where the member's image can run it.
func installDrainer(o Options) corev1.Container {
	return corev1.Container{
		Name:    "install",
		Image:   o.OperatorImage,
		Command: []string{DrainerPath, "install", supervisorDir},
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU:    resource.MustParse("10m"),
			corev1.ResourceMemory: resource.MustParse("16Mi"),
		}},
		SecurityContext: drainSecurity(),
		VolumeMounts:    []corev1.VolumeMount{{Name: supervisorVolume, MountPath: supervisorDir}},
	}
}

func emptyDir(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
}

func drainSecurity() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: ptr.To(false),
		ReadOnlyRootFilesystem:   ptr.To(true),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}

func drainResources(c *cachev1alpha1.Memcached) corev1.ResourceRequirements {
	if r := c.Spec.Drain.Resources; r.Requests != nil || r.Limits != nil {
		return r
	}
	return corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("100m"),
		corev1.ResourceMemory: resource.MustParse("64Mi"),
	}}
}

// drainPodSecurity is the members': their files are for their user only. A drainer
// writes nothing, so that its volume needs no fsGroup of its own.
func drainPodSecurity(c *cachev1alpha1.Memcached) *corev1.PodSecurityContext {
	if s := c.Spec.Template.SecurityContext; s != nil {
		return s.DeepCopy()
	}
	return &corev1.PodSecurityContext{
		RunAsNonRoot:   ptr.To(true),
		RunAsUser:      ptr.To[int64](memcachedUID),
		RunAsGroup:     ptr.To[int64](memcachedUID),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
}
