package build

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	appsac "k8s.io/client-go/applyconfigurations/apps/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/drainer/contract"
)

// Service is the headless Service that names the members. With storage it includes
// members that aren't ready, because drainers wait for survivors by name.
func Service(c *cachev1alpha1.Memcached) *coreac.ServiceApplyConfiguration {
	spec := coreac.ServiceSpec().
		WithClusterIP(corev1.ClusterIPNone).
		WithSelector(Selector(c)).
		WithPorts(coreac.ServicePort().
			WithName(portName).
			WithProtocol(corev1.ProtocolTCP).
			WithPort(c.Spec.ContainerPort).
			WithTargetPort(intstr.FromString(portName)))
	if port := MetricsPort(c); port != 0 {
		spec.WithPorts(coreac.ServicePort().
			WithName(metricsPort).
			WithProtocol(corev1.ProtocolTCP).
			WithPort(port).
			WithTargetPort(intstr.FromString(metricsPort)))
	}
	if c.Spec.Storage != nil {
		spec.WithPublishNotReadyAddresses(true) // the API server drops false
	}
	return service(c, c.Name, cachev1alpha1.ComponentMember, &c.Spec.Service).
		WithOwnerReferences(owner(c)).
		WithSpec(spec)
}

// service is a Service of a component, with the labels and annotations of the spec.
func service(c *cachev1alpha1.Memcached, name, component string, given *cachev1alpha1.ServiceSpec) *coreac.ServiceApplyConfiguration {
	return coreac.Service(name, c.Namespace).
		WithLabels(withOurs(given.Labels, Labels(c, component))).
		WithAnnotations(given.Annotations)
}

// addressed is the spec of a Service that has an address of its own, of the type that a person gives. All
// other Services are headless.
func addressed(given *cachev1alpha1.ServiceSpec) *coreac.ServiceSpecApplyConfiguration {
	spec := coreac.ServiceSpec()
	if given.Type != "" {
		spec.WithType(corev1.ServiceType(given.Type))
	}
	return spec
}

// Deployment of a cluster without storage.
func Deployment(c *cachev1alpha1.Memcached, o Options) *appsac.DeploymentApplyConfiguration {
	command := append([]string{"memcached"}, memcachedArgs(c)...)
	memcached := memcachedContainer(c, o)
	spec := memberPod(c, o)
	if Secured(c) || c.Spec.Metrics != nil {
		// The supervisor makes memcached use changed Secrets, and serves its metrics.
		serve := contract.Supervise{Port: c.Spec.ContainerPort, ProbePort: ProbePort(c), MetricsPort: MetricsPort(c), TerminationLog: contract.TerminationLog, Connection: connection(c), Command: command}
		command = append([]string{supervisorDir + "/drainer"}, serve.Args()...)
		supervise(spec, memcached, install(c, o, contract.Install{To: supervisorDir}))
		withSecrets(c, spec, memcached)
	}
	spec.WithContainers(measured(c, memcached.WithCommand(command...)))
	return appsac.Deployment(c.Name, c.Namespace).
		WithLabels(withOurs(c.Spec.PodTemplate.Labels, Labels(c, cachev1alpha1.ComponentMember))).
		WithAnnotations(c.Spec.PodTemplate.Annotations).
		WithOwnerReferences(owner(c)).
		WithSpec(appsac.DeploymentSpec().
			WithReplicas(*c.Spec.Size).
			WithSelector(metaac.LabelSelector().WithMatchLabels(Selector(c))).
			WithTemplate(podTemplate(c, membersTemplate(c), cachev1alpha1.ComponentMember, spec)))
}

// StatefulSet is the StatefulSet of a cluster with storage. Its claims have the finalizer from the
// start. The drainer is PID 1, and turns SIGTERM into a save.
func StatefulSet(c *cachev1alpha1.Memcached, o Options, replicas int32) *appsac.StatefulSetApplyConfiguration {
	saved := c.Spec.Storage.Mode == cachev1alpha1.StorageSaved // in mode Memory, the file is mapped in a volume in memory
	serve := contract.Supervise{
		Dir:            dataDir,
		Port:           c.Spec.ContainerPort,
		ExportPort:     exportPort(c),
		ProbePort:      ProbePort(c),
		MetricsPort:    MetricsPort(c),
		TerminationLog: contract.TerminationLog,
		GracePeriod:    time.Duration(*graceSeconds(c)) * time.Second,
		Connection:     connection(c),
		Command:        append([]string{"memcached"}, memcachedArgs(c)...),
	}
	if saved {
		serve.MemoryDir = memoryDir
	}
	if d := c.Spec.Discovery; d != nil {
		serve.List, serve.Discovery = listDir+"/"+contract.ListFile, fmt.Sprintf(":%d", d.Port)
	}
	if tellable(c) {
		serve.Step = stepDir + "/" + stepFile
	}
	memcached := memcachedContainer(c, o).
		WithCommand(append([]string{supervisorDir + "/drainer"}, serve.Args()...)...).
		WithStartupProbe(warmProbe(c)).
		WithVolumeMounts(
			coreac.VolumeMount().WithName(volumeName).WithMountPath(dataDir))
	install := install(c, o, contract.Install{To: supervisorDir, Member: serve}).
		WithVolumeMounts(coreac.VolumeMount().WithName(volumeName).WithMountPath(dataDir).WithReadOnly(true))
	if saved {
		memcached.WithVolumeMounts(coreac.VolumeMount().WithName(memoryVolume).WithMountPath(memoryDir))
		install.WithVolumeMounts(coreac.VolumeMount().WithName(memoryVolume).WithMountPath(memoryDir).WithReadOnly(true))
	}
	spec := memberPod(c, o)
	supervise(spec, memcached, install)
	withSecrets(c, spec, memcached)
	withList(c, spec, memcached)
	withStep(c, spec, memcached)
	spec.WithContainers(measured(c, memcached))
	withMemory(c, spec)
	set := appsac.StatefulSetSpec().
		WithServiceName(c.Name).
		WithReplicas(replicas).
		WithPodManagementPolicy(appsv1.ParallelPodManagement).
		WithSelector(metaac.LabelSelector().WithMatchLabels(Selector(c))).
		WithTemplate(podTemplate(c, membersTemplate(c), cachev1alpha1.ComponentMember, spec))
	if c.Spec.HasVolumes() {
		set.WithPersistentVolumeClaimRetentionPolicy(appsac.StatefulSetPersistentVolumeClaimRetentionPolicy().
			WithWhenDeleted(appsv1.RetainPersistentVolumeClaimRetentionPolicyType).
			WithWhenScaled(appsv1.RetainPersistentVolumeClaimRetentionPolicyType)).
			WithVolumeClaimTemplates(claimTemplate(c))
	}
	return appsac.StatefulSet(c.Name, c.Namespace).
		WithLabels(withOurs(c.Spec.PodTemplate.Labels, Labels(c, cachev1alpha1.ComponentMember))).
		WithAnnotations(c.Spec.PodTemplate.Annotations).
		WithOwnerReferences(owner(c)).
		WithSpec(set)
}

// withMemory gives the pod the volume in memory that its mode of storage needs.
func withMemory(c *cachev1alpha1.Memcached, spec *coreac.PodSpecApplyConfiguration) {
	switch c.Spec.Storage.Mode {
	case cachev1alpha1.StorageSaved:
		spec.WithVolumes(inMemory(memoryVolume, Memory(c)))
	case cachev1alpha1.StorageMemory:
		spec.WithVolumes(inMemory(volumeName, roomInPod(c)))
	}
}

// inMemory is a volume in memory for warm files of that many bytes, and two small files. The volume counts
// against the container's memory, as the items of any memcached do.
func inMemory(name string, files int64) *coreac.VolumeApplyConfiguration {
	const beside = 16 << 20
	return coreac.Volume().WithName(name).WithEmptyDir(coreac.EmptyDirVolumeSource().
		WithMedium(corev1.StorageMediumMemory).
		WithSizeLimit(*resource.NewQuantity(files+beside, resource.BinarySI)))
}

// roomInPod is the room for the warm files of a member in mode Memory, in bytes: for two, because after a
// crash a second file is made, and the items of the first are replayed into it. If the container's memory
// limit has no room for two, one fits, and a start after a crash is cold.
func roomInPod(c *cachev1alpha1.Memcached) int64 {
	two := 2 * Memory(c)
	limit, is := c.Spec.Resources.Limits[corev1.ResourceMemory]
	if besides := Memory(c)/10 + 48<<20; is && limit.Value()-besides < two {
		return Memory(c)
	}
	return two
}

// install copies the drainer to where the member's image can run it. Its container has memcached's
// resources. The pod needs no more, because install ends before memcached starts, and a
// ResourceQuota or LimitRange that admits memcached's container also admits this one.
func install(c *cachev1alpha1.Memcached, o Options, args contract.Install) *coreac.ContainerApplyConfiguration {
	return coreac.Container().
		WithName(ContainerInstall).
		WithImage(o.OperatorImage).
		WithTerminationMessagePolicy(messagePolicy).
		WithCommand(append([]string{DrainerPath}, args.Args()...)...).
		WithSecurityContext(containerSecurity()).
		WithResources(memberResources(c)).
		WithVolumeMounts(coreac.VolumeMount().WithName(supervisorVolume).WithMountPath(supervisorDir))
}

// supervise mounts the drainer in memcached's container. The volume is in memory, because an
// emptyDir on disk would keep the cluster autoscaler from removing the node.
func supervise(spec *coreac.PodSpecApplyConfiguration, memcached, install *coreac.ContainerApplyConfiguration) {
	memcached.WithVolumeMounts(coreac.VolumeMount().WithName(supervisorVolume).WithMountPath(supervisorDir).WithReadOnly(true))
	spec.WithInitContainers(install).
		WithVolumes(coreac.Volume().WithName(supervisorVolume).WithEmptyDir(coreac.EmptyDirVolumeSource().
			WithMedium(corev1.StorageMediumMemory).
			WithSizeLimit(*resource.NewQuantity(supervisorSize, resource.BinarySI))))
}

func claimTemplate(c *cachev1alpha1.Memcached) *coreac.PersistentVolumeClaimApplyConfiguration {
	spec := coreac.PersistentVolumeClaimSpec().
		WithAccessModes(corev1.ReadWriteOnce).
		WithResources(coreac.VolumeResourceRequirements().
			WithRequests(corev1.ResourceList{corev1.ResourceStorage: *VolumeSize(c)}))
	if class := c.Spec.Storage.StorageClassName; class != nil {
		spec.WithStorageClassName(*class)
	}
	claim := coreac.PersistentVolumeClaim(volumeName, "").
		WithLabels(Labels(c, cachev1alpha1.ComponentMember)).
		WithFinalizers(cachev1alpha1.ClaimFinalizer).
		WithSpec(spec)
	claim.Namespace = nil
	return claim
}

// messagePolicy lets status quote why a container failed: the container's termination message, or else
// the end of its log.
const messagePolicy = corev1.TerminationMessageFallbackToLogsOnError

func memcachedContainer(c *cachev1alpha1.Memcached, o Options) *coreac.ContainerApplyConfiguration {
	return coreac.Container().
		WithName(ContainerMemcached).
		WithImage(memberImage(c, o)).
		WithTerminationMessagePolicy(messagePolicy).
		WithPorts(coreac.ContainerPort().
			WithName(portName).
			WithProtocol(corev1.ProtocolTCP).
			WithContainerPort(c.Spec.ContainerPort)).
		WithReadinessProbe(readyProbe(c)).
		WithResources(memberResources(c)).
		WithSecurityContext(containerSecurity())
}

// readyProbe connects to memcached's port, or with TLS to the supervisor, because memcached counts
// a connection without a handshake as a failed one.
func readyProbe(c *cachev1alpha1.Memcached) *coreac.ProbeApplyConfiguration {
	probe := coreac.Probe().WithPeriodSeconds(2).WithTimeoutSeconds(2)
	if port := ProbePort(c); port != 0 {
		return probe.WithHTTPGet(coreac.HTTPGetAction().WithPath(contract.ReadyPath).WithPort(intstr.FromInt32(port)))
	}
	return probe.WithTCPSocket(coreac.TCPSocketAction().WithPort(intstr.FromString(portName)))
}

// warmProbe keeps a member from being ready before its items are back, so that a roll-out waits for them
// before it continues with the next member. The probe runs a program, which costs more than a TCP probe, but
// only until the first success. A replay may take up to a day.
func warmProbe(c *cachev1alpha1.Memcached) *coreac.ProbeApplyConfiguration {
	return coreac.Probe().
		WithExec(coreac.ExecAction().WithCommand(append([]string{supervisorDir + "/drainer"}, contract.Ready(c.Spec.ContainerPort)...)...)).
		WithPeriodSeconds(1).
		WithTimeoutSeconds(5).
		WithFailureThreshold(86400)
}

func memberImage(c *cachev1alpha1.Memcached, o Options) string {
	if c.Spec.Image != "" {
		return c.Spec.Image
	}
	return o.MemcachedImage
}

// memcachedArgs are memcached's arguments, except -e, which the supervisor adds.
func memcachedArgs(c *cachev1alpha1.Memcached) []string {
	args := []string{
		"-m", strconv.FormatInt(Memory(c)>>20, 10),
		"-p", strconv.Itoa(int(c.Spec.ContainerPort)),
		"-U", "0",
	}
	if c.Spec.MaxItemSize != nil {
		args = append(args, "-I", strconv.FormatInt(c.Spec.MaxItemSize.Value(), 10))
	}
	if c.Spec.Threads != nil {
		args = append(args, "-t", strconv.Itoa(int(*c.Spec.Threads)))
	}
	if c.Spec.MaxConnections != nil {
		args = append(args, "-c", strconv.Itoa(int(*c.Spec.MaxConnections)))
	}
	args = append(args, connection(c).Memcached(verifiesClients(c))...)
	return append(args, c.Spec.ExtraArgs...)
}

// MemoryOf is the memory of a member with this command, in bytes; 0 if the command has another
// form.
func MemoryOf(command []string) int64 {
	args := memoryArgs(command)
	if args == nil {
		return 0
	}
	mebibytes, err := strconv.ParseInt(args[2], 10, 40)
	if err != nil {
		return 0
	}
	return mebibytes << 20
}

// MemberArgs are the parts of a member's command that the operator reads: its ports and its memory.
func MemberArgs(command []string) []string {
	var kept []string
	for i, a := range command {
		for _, flag := range []string{exportFlag, probeFlag, stepFlag} {
			if strings.HasPrefix(a, flag) && len(a) <= maxArg && !slices.ContainsFunc(kept, func(k string) bool { return strings.HasPrefix(k, flag) }) {
				kept = append(kept, a)
			}
		}
		if a != "memcached" {
			continue
		}
		if memory := memoryArgs(command[i:]); memory != nil {
			kept = append(kept, memory...)
			if port := command[i+len(memory):]; len(port) > 1 && port[0] == portFlag && len(port[1]) <= maxArg {
				kept = append(kept, port[:2]...)
			}
			return kept
		}
	}
	return nil
}

// RouterArgs is the part of a router's command that the operator reads: the port at which it is asked.
func RouterArgs(command []string) []string {
	if i := slices.IndexFunc(command, func(a string) bool { return strings.HasPrefix(a, adminFlag) && len(a) <= maxArg }); i >= 0 {
		return command[i : i+1]
	}
	return nil
}

// maxArg is the longest argument of a command that is kept, in bytes.
const maxArg = 32

// memoryArgs are the part of a member's command that MemoryOf reads; nil if it is missing.
func memoryArgs(command []string) []string {
	const maxDigits = 16
	for i, a := range command {
		if a == "memcached" && i+2 < len(command) && command[i+1] == "-m" && len(command[i+2]) <= maxDigits {
			return command[i : i+3]
		}
	}
	return nil
}

// Memory is the room for items, in bytes; the API server sets the default.
func Memory(c *cachev1alpha1.Memcached) int64 {
	if c.Spec.Memory == nil {
		return 64 << 20
	}
	return c.Spec.Memory.Value()
}

// VolumeSize is the spec's, or else room for two files of all items (one is replayed from the
// other, or saved beside it), an eighth of a file for the filesystem, and 64Mi; in whole MiB.
func VolumeSize(c *cachev1alpha1.Memcached) *resource.Quantity {
	if size := c.Spec.Storage.Size; !size.IsZero() {
		return &size
	}
	memory := Memory(c) >> 20
	return resource.NewQuantity((2*memory+(memory+7)/8+64)<<20, resource.BinarySI)
}

// memberResources are the spec's, or else a memory request for the items, a tenth more
// for the hash table, and 32Mi for connections and the supervisor.
func memberResources(c *cachev1alpha1.Memcached) *coreac.ResourceRequirementsApplyConfiguration {
	bytes := Memory(c)
	mib := (bytes + bytes/10 + 32<<20) >> 20
	return resourcesOf(&c.Spec.Resources, "50m", strconv.FormatInt(mib, 10)+"Mi")
}

func resourcesOf(given *corev1.ResourceRequirements, cpu, memory string) *coreac.ResourceRequirementsApplyConfiguration {
	all := withRequests(given, cpu, memory)
	return convert[coreac.ResourceRequirementsApplyConfiguration](&all)
}

// withRequests returns the spec's resources, with these requests if it has neither a request nor a
// limit. A limit alone counts as a request, too.
func withRequests(given *corev1.ResourceRequirements, cpu, memory string) corev1.ResourceRequirements {
	all := *given.DeepCopy()
	for name, quantity := range map[corev1.ResourceName]string{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory} {
		_, requested := all.Requests[name]
		_, limited := all.Limits[name]
		if requested || limited {
			continue
		}
		if all.Requests == nil {
			all.Requests = corev1.ResourceList{}
		}
		all.Requests[name] = resource.MustParse(quantity)
	}
	return all
}

func containerSecurity() *coreac.SecurityContextApplyConfiguration {
	return coreac.SecurityContext().
		WithAllowPrivilegeEscalation(false).
		WithReadOnlyRootFilesystem(true).
		WithCapabilities(coreac.Capabilities().WithDrop("ALL"))
}
