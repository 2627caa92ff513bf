package build

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"path"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/ring"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/routing"
)

// The volume and the directory of a drainer's or a router's pod with the Secrets for the source of spec.warmFrom.
const (
	sourceVolume = "source"
	sourceDir    = "/source"
	sourceTLS    = sourceDir + "/tls"
	sourceAuth   = sourceDir + "/auth"
)

// WarmName is the name of the Job that copies from the source of spec.warmFrom. Each target has another Job name.
func WarmName(cluster string, uid types.UID, target string) string {
	return boundedJobName(cluster, "-warm-"+hash(ring.Source(uid, target)))
}

// WarmSource names the source of spec.warmFrom. The name stays the same if only the way to the source changes
// (routing, tls, auth).
func WarmSource(c *cachev1alpha1.Memcached) string {
	from := c.Spec.WarmFrom
	text, _ := json.Marshal(cachev1alpha1.WarmSource{Memcached: from.Memcached, Servers: from.Servers, Discovery: from.Discovery, Volumes: from.Volumes})
	return hash(string(text))
}

// WarmMade is a hash of all that the Job of a warming is made of, but for the ring and the members' ports. counts: it
// only counts what the claim has.
func WarmMade(c *cachev1alpha1.Memcached, from *From, claim types.UID, counts bool) string {
	spec := *c.Spec.WarmFrom
	spec.Until, spec.Patience = "", nil
	text, _ := json.Marshal(struct {
		Spec   cachev1alpha1.WarmSource
		From   *From
		Claim  types.UID
		Counts bool
	}{spec, from, claim, counts})
	return hash(string(text))
}

// From is how a source is reached.
type From struct {
	// From, Client, KeyPrefix and ExportPort are as in contract.Copy.
	From              string
	Client, KeyPrefix string
	ExportPort        int32
	// TLS and Auth are the Secrets; empty for none. TLSKeys has those of its keys that a client needs.
	TLS, Auth string
	TLSKeys   []string
}

// WarmFrom says how the source of spec.warmFrom is reached: servers or discovery.
func WarmFrom(c *cachev1alpha1.Memcached) *From {
	spec := c.Spec.WarmFrom
	f := &From{TLSKeys: []string{contract.CAFile, contract.CertFile, contract.KeyFile}}
	if f.From = contract.FromMemcached + strings.Join(spec.Servers, ","); spec.Discovery != "" {
		f.From = contract.FromDiscovery + spec.Discovery
	}
	if r := spec.Routing; r != nil {
		f.Client, f.KeyPrefix = string(r.Client), r.KeyPrefix
	}
	if spec.TLS != nil {
		f.TLS = spec.TLS.SecretName
	}
	if spec.Auth != nil {
		f.Auth = spec.Auth.SecretName
	}
	return f
}

// WarmFromMemcached says how another cluster is reached: its members are the servers of its list.
// WarmFromMemcached returns nil if there are none.
func WarmFromMemcached(source *cachev1alpha1.Memcached) *From {
	listed := source.Status.Servers
	if len(listed) == 0 || len(listed) > cachev1alpha1.MaxSize {
		return nil
	}
	f := &From{Client: source.Spec.Routing.RingClient(), KeyPrefix: source.Spec.Routing.KeyPrefix, TLSKeys: []string{contract.CAFile}}
	r := RingOf(source, int32(len(listed)))
	var servers []string
	for i, named := range RingServers(source, r) { // a cluster without storage has other hosts, and no names
		s, err := routing.ParseServer(listed[i])
		if err != nil {
			return nil
		}
		dialled := s.Port
		s.Port, s.Name = named.Port, named.Name
		servers = append(servers, s.At(r.Client, dialled).Text())
	}
	f.From = contract.FromMemcached + strings.Join(servers, ",")
	if source.Spec.HasVolumes() || source.Spec.InPods() {
		f.ExportPort = exportPort(source)
	}
	if source.Spec.TLS != nil {
		f.TLS = source.Spec.TLS.SecretName
		if verifiesClients(source) {
			f.TLSKeys = append(f.TLSKeys, contract.CertFile, contract.KeyFile)
		}
	}
	if source.Spec.Auth != nil {
		f.Auth = source.Spec.Auth.SecretName
	}
	return f
}

// OnMissOf is how routers reach the source that they ask for missed keys; nil if they ask none, or not members of this
// Memcached.
func OnMissOf(source *cachev1alpha1.Memcached, routers *appsv1.Deployment) *From {
	if routers == nil {
		return nil
	}
	f, pod := &From{}, &routers.Spec.Template.Spec
	for i := range pod.Containers {
		if pod.Containers[i].Name != ContainerRouter {
			continue
		}
		for _, arg := range pod.Containers[i].Command {
			flag, value, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
			if to := map[string]*string{contract.FlagOnMiss: &f.From, contract.FlagOnMissClient: &f.Client, contract.FlagOnMissKeyPrefix: &f.KeyPrefix}[flag]; to != nil {
				*to = value
			}
		}
	}
	servers, asks := strings.CutPrefix(f.From, contract.FromMemcached)
	if !asks || !ourServers(source, strings.Split(servers, ",")) {
		return nil
	}
	for i := range pod.Volumes {
		if v := &pod.Volumes[i]; v.Name == sourceVolume && v.Projected != nil {
			f.readSecrets(v.Projected.Sources)
		}
	}
	return f
}

// readSecrets is the inverse of secrets.
func (f *From) readSecrets(sources []corev1.VolumeProjection) {
	for _, s := range sources {
		if s.Secret == nil {
			continue
		}
		for _, item := range s.Secret.Items {
			switch path.Dir(item.Path) {
			case path.Base(sourceTLS):
				f.TLS, f.TLSKeys = s.Secret.Name, append(f.TLSKeys, item.Key)
			case path.Base(sourceAuth):
				f.Auth = s.Secret.Name
			}
		}
	}
}

// connection is how to connect to the source.
func (f *From) connection() (conn contract.Connection) {
	if f.TLS != "" {
		conn.TLSDir = sourceTLS
	}
	if f.Auth != "" {
		conn.AuthFile = sourceAuth + "/" + contract.AuthFileKey
	}
	return conn
}

// onMissArgs are the arguments of a router that asks the source for missed keys.
func (f *From) onMissArgs() (args []string) {
	conn := f.connection()
	for _, a := range [][2]string{
		{contract.FlagOnMiss, f.From}, {contract.FlagOnMissClient, f.Client}, {contract.FlagOnMissKeyPrefix, f.KeyPrefix}, {contract.FlagOnMissTLSDir, conn.TLSDir}, {contract.FlagOnMissAuthFile, conn.AuthFile},
	} {
		if a[1] != "" {
			args = append(args, "--"+a[0]+"="+a[1])
		}
	}
	return args
}

// Variant is a hash of how the source is reached; 0 for none.
func (f *From) Variant() int32 {
	if f == nil {
		return 0
	}
	h := fnv.New32a()
	_, _ = fmt.Fprint(h, *f)
	return int32(h.Sum32() >> 1)
}

// secrets is the volume with the source's Secrets, and its mount; nil if there are none. As for the members' own
// (secretVolumes), a missing Secret or key is reported by the drainer.
func (f *From) secrets() (*corev1.Volume, *corev1.VolumeMount) {
	var sources []corev1.VolumeProjection
	add := func(dir, secret string, keys ...string) {
		if secret == "" {
			return
		}
		projected := &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: secret}, Optional: ptr.To(true)}
		for _, key := range keys {
			projected.Items = append(projected.Items, corev1.KeyToPath{Key: key, Path: path.Join(path.Base(dir), key)})
		}
		sources = append(sources, corev1.VolumeProjection{Secret: projected})
	}
	add(sourceTLS, f.TLS, f.TLSKeys...)
	add(sourceAuth, f.Auth, contract.AuthFileKey)
	if len(sources) == 0 {
		return nil, nil
	}
	return &corev1.Volume{Name: sourceVolume, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: sources}}},
		&corev1.VolumeMount{Name: sourceVolume, MountPath: sourceDir, ReadOnly: true}
}

// Warm is the input of WarmJob.
type Warm struct {
	// Target names the Job, and the ring, which has this number of Members.
	Target  string
	Members int32
	// From is how the source is reached; nil if the source is Claim.
	From  *From
	Claim string
	// Counts, Decides, Besides, Resume and Answers are as in action.CreateWarm.
	Counts, Decides bool
	Besides         []int64
	Resume, Answers string
	// Ports are the members' ports.
	Ports Ports
}

// WarmJob copies from the source of spec.warmFrom, which is only read, to the owners of its items among the first
// members.
func WarmJob(c *cachev1alpha1.Memcached, o Options, p Warm) *batchv1.Job {
	spec := c.Spec.WarmFrom
	args := contract.Copy{
		AsMuchAsFits: spec.OnShortage == cachev1alpha1.ShortageProceed || p.Counts && !p.Decides,
		Count:        p.Counts,
		Besides:      p.Besides,
		Resume:       p.Resume,
		Marks:        spec.OnMiss && p.From != nil,
		Transfer:     transferArgs(c, p.Ports, ring.Source(c.UID, p.Target), RingOf(c, p.Members)),
	}
	args.Scratch, args.SkipExpiringWithin = scratchDir, 0
	if p.Counts { // it can't go on where another one was
		args.Deadline = 0
	}
	args.RateLimitItems, args.RateLimitBytes = rates(spec.RateLimit)
	pod := movingPod(c, o)
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: scratchVolume, VolumeSource: corev1.VolumeSource{
		EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: resource.NewQuantity(scratchSize, resource.BinarySI)},
	}})
	mounts := []corev1.VolumeMount{{Name: scratchVolume, MountPath: scratchDir}}
	if p.From == nil {
		args.From = []string{contract.FromVolumes + dataDir}
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: volumeName, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: p.Claim, ReadOnly: true},
		}})
		mounts = append(mounts, corev1.VolumeMount{Name: volumeName, MountPath: dataDir, ReadOnly: true})
	} else {
		args.From, args.FromClient, args.FromKeyPrefix = []string{p.From.From}, p.From.Client, p.From.KeyPrefix
		args.FromExportPort, args.FromConnection = p.From.ExportPort, p.From.connection()
		if volume, mount := p.From.secrets(); volume != nil {
			pod.Volumes, mounts = append(pod.Volumes, *volume), append(mounts, *mount)
		}
	}
	withDrainer(c, &pod, movingContainer(c, o.OperatorImage, append([]string{DrainerPath}, args.Args()...), mounts))
	annotations := map[string]string{
		cachev1alpha1.AnnotationClaimUID: string(c.UID),
		cachev1alpha1.AnnotationTarget:   p.Target,
		cachev1alpha1.AnnotationBegin:    p.Target,
	}
	if p.Answers != "" {
		annotations[cachev1alpha1.AnnotationWarm] = p.Answers
	}
	return movingJob(c, o, p.Ports, WarmName(c.Name, c.UID, p.Target), cachev1alpha1.ComponentMove, annotations, pod)
}

// rates are the limits as arguments.
func rates(limit *cachev1alpha1.RateLimit) (items, bytes int64) {
	if limit == nil {
		return 0, 0
	}
	if limit.BytesPerSecond != nil {
		bytes = limit.BytesPerSecond.Value()
	}
	return ptr.Deref(limit.ItemsPerSecond, 0), bytes
}

// WarmSays names the source for people.
func WarmSays(c *cachev1alpha1.Memcached) string {
	switch from := c.Spec.WarmFrom; {
	case from.Memcached != "":
		return "Memcached " + from.Memcached
	case from.Discovery != "":
		return from.Discovery
	case from.Volumes != nil:
		return "the claims of spec.warmFrom.volumes"
	case len(from.Servers) == 1:
		return from.Servers[0]
	default:
		return fmt.Sprintf("%s and %s more", from.Servers[0], strconv.Itoa(len(from.Servers)-1))
	}
}

// WarmClaims are the claims of the source, in order of their names. why says what keeps one of them from being read.
func WarmClaims(c *cachev1alpha1.Memcached, all []corev1.PersistentVolumeClaim) (claims []corev1.PersistentVolumeClaim, why string) {
	claims = slices.SortedFunc(slices.Values(all), func(a, b corev1.PersistentVolumeClaim) int { return strings.Compare(a.Name, b.Name) })
	for i := range claims {
		if why = unreadable(c, &claims[i]); why != "" {
			break
		}
	}
	return claims, why
}

// unreadable says why the claim can't be a source; empty if it can.
func unreadable(c *cachev1alpha1.Memcached, claim *corev1.PersistentVolumeClaim) string {
	of, member := ClaimCluster(claim.Name)
	switch {
	case member && of == c.Name:
		return fmt.Sprintf("warmFrom.volumes.selector selects claim %s, which is this cluster's own", claim.Name)
	case claim.DeletionTimestamp != nil:
		return fmt.Sprintf("claim %s is being deleted", claim.Name)
	case ptr.Deref(claim.Spec.VolumeMode, corev1.PersistentVolumeFilesystem) != corev1.PersistentVolumeFilesystem:
		return fmt.Sprintf("claim %s is for a block device, not for files", claim.Name)
	case claim.Status.Phase == corev1.ClaimLost:
		return fmt.Sprintf("claim %s has lost its volume", claim.Name)
	}
	return ""
}
