package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/test/certtest"
	"example.com/memcached-operator/test/internal/app"
	"example.com/memcached-operator/test/tier"
)

// legacy is a StatefulSet of plain memcacheds that a person made by hand, under TLS, in a namespace of its own.
type legacy struct {
	*fixture
	servers []string
	ca      []byte
	app     *app.App
}

// memcachedImage is the image that the operator takes for members.
func (f *fixture) memcachedImage() string {
	f.Helper()
	var all appsv1.DeploymentList
	f.must(kube.List(f.ctx, &all))
	for _, d := range all.Items {
		for _, c := range d.Spec.Template.Spec.Containers {
			for _, e := range c.Env {
				if e.Name == "MEMCACHED_IMAGE" {
					return e.Value
				}
			}
		}
	}
	f.Fatal("no Deployment has MEMCACHED_IMAGE")
	return ""
}

func newLegacy(t *testing.T, size int, args ...string) *legacy {
	t.Helper()
	f := inNamespace(t)
	f.name = "old"
	l := &legacy{fixture: f}
	authority := certtest.NewAuthority(t)
	domain := "old." + f.namespace + ".svc"
	files := authority.Files(t, []string{"*." + domain})
	l.ca = files[contract.CAFile]
	labels := map[string]string{"app": "old"}
	f.must(kube.Create(f.ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "old-tls"}, Type: corev1.SecretTypeTLS, Data: files}))
	f.must(kube.Create(f.ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "old"}, Spec: corev1.ServiceSpec{
		ClusterIP: corev1.ClusterIPNone, Selector: labels, Ports: []corev1.ServicePort{{Port: 11211}},
	}}))
	f.must(kube.Create(f.ctx, &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "old"}, Spec: appsv1.StatefulSetSpec{
		Replicas: ptr.To(int32(size)), ServiceName: "old", Selector: &metav1.LabelSelector{MatchLabels: labels},
		PodManagementPolicy: appsv1.ParallelPodManagement,
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: ptr.To[int64](1),
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](11211), FSGroup: ptr.To[int64](11211), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: "memcached", Image: f.memcachedImage(),
				Command:         append([]string{"memcached", "-m", "64", "-Z", "-o", "ssl_chain_cert=/tls/tls.crt,ssl_key=/tls/tls.key"}, args...),
				ReadinessProbe:  &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(11211)}}},
				SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
				VolumeMounts:    []corev1.VolumeMount{{Name: "tls", MountPath: "/tls", ReadOnly: true}},
			}},
			Volumes: []corev1.Volume{{Name: "tls", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "old-tls", DefaultMode: ptr.To[int32](0o440)}}}},
		}},
	}}))
	f.eventually("the StatefulSet by hand is ready", func() bool {
		set := &appsv1.StatefulSet{}
		f.must(kube.Get(f.ctx, f.key("old"), set))
		return set.Status.ReadyReplicas == int32(size)
	})
	dir := t.TempDir()
	for name, content := range files {
		f.must(os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	for i := range size {
		l.servers = append(l.servers, fmt.Sprintf("old-%d.%s:11211", i, domain))
	}
	a, err := app.New(ringClient, l.servers, f.address)
	f.must(err)
	a.Dialer = memcache.Dialer{Connection: contract.Connection{TLSDir: dir}, Unverified: true}
	l.app = a
	return l
}

// A cache by hand, in another namespace and under TLS, fills a new cluster before its clients are told of it, and stays
// as it is. In the middle the operator is replaced, and the copy begun again.
func TestAStatefulSetByHandFillsACluster(t *testing.T) {
	tier.Second(t, "TestAClusterIsFilledBeforeItIsReadyAndBeforeItsClientsAreTold")
	t.Parallel()
	old := newLegacy(t, 3)
	objects := old.some()
	old.must(old.app.Fill(old.ctx, objects))

	f := inNamespace(t)
	f.must(kube.Create(f.ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "old-ca"}, Data: map[string][]byte{contract.CAFile: old.ca}}))
	spec := roomForSome(persistent(2))
	spec.WarmFrom = &cachev1alpha1.WarmSource{
		Servers: old.servers, Routing: &cachev1alpha1.WarmRouting{Client: ringClient}, TLS: &cachev1alpha1.WarmTLS{SecretName: "old-ca"}, Until: cachev1alpha1.WarmReady,
		RateLimit: &cachev1alpha1.RateLimit{ItemsPerSecond: ptr.To(int64(max(1, len(objects)/300)))}, // five minutes for all
	}
	f.create(spec)
	f.eventually("items are copied", func() bool {
		s := f.memcached().Status.Warm
		return s != nil && s.Phase == cachev1alpha1.WarmCopying && s.ItemsDone > 0
	})
	f.must(kube.DeleteAllOf(f.ctx, &corev1.Pod{}, client.InNamespace(operatorNamespace), client.MatchingLabels{"app.kubernetes.io/name": "memcached-operator"}))
	f.patch(f.memcached(), `{"spec":{"warmFrom":{"rateLimit":null}}}`)
	f.warm()
	f.settled(2)
	f.expectAll(2, objects)
	report, err := old.app.Check(old.ctx, objects)
	old.must(err)
	if report.Found != int64(len(objects)) {
		t.Errorf("the source has lost items:\n%s", strings.Join(report.Examples, "\n"))
	}

	// These are the last moment's items before the switch: those stored at the source since then, and those
	// that clients have stored here.
	f.must(f.app(2).Fill(f.ctx, objects[:10]))
	f.kubectl("annotate", "memcached", "cache", cachev1alpha1.AnnotationWarm+"="+cachev1alpha1.WarmAgain)
	f.eventually("another copy", func() bool { s := f.memcached().Status.Warm; return s != nil && s.Last != nil && s.Last.Jobs == 2 })
	f.settled(2)
	f.expectAll(2, objects)
}

// warm waits until the cluster has its source's items.
func (f *fixture) warm() {
	f.Helper()
	f.eventually("the cluster is warm", func() bool { s := f.memcached().Status.Warm; return s != nil && s.Phase == cachev1alpha1.WarmDone })
	f.Logf("%+v", *f.memcached().Status.Warm.Last)
}

// A backup of a cache is a copy of its volumes, and a restore is a spec. A running cluster fills another one, too.
func TestACopyOfItsVolumesOrTheClusterItselfFillsAnother(t *testing.T) {
	tier.Second(t, "TestAClusterIsFilledBeforeItIsReadyAndBeforeItsClientsAreTold")
	t.Parallel()
	f := setup(t, roomForSome(persistent(2)))
	objects := f.some()
	f.fill(2, objects)

	blue := *f
	blue.name = "blue"
	spec := roomForSome(persistent(3))
	spec.Storage.Mode = cachev1alpha1.StorageMapped
	spec.WarmFrom = &cachev1alpha1.WarmSource{Memcached: "cache"}
	blue.create(spec)
	blue.warm()
	blue.settled(3)
	blue.expectAll(3, objects)

	f.scale(0) // saves; with storage.mode Mapped a running cluster can be copied
	f.settled(0)
	for i := range 2 {
		f.must(kube.Create(f.ctx, &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: fmt.Sprintf("monday-%d", i), Labels: map[string]string{"backup": "monday"}},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
				DataSource:  &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: fmt.Sprintf("data-cache-%d", i)},
			},
		}))
	}
	restored := *f
	restored.name = "restored"
	spec = roomForSome(persistent(1))
	spec.WarmFrom = &cachev1alpha1.WarmSource{
		Volumes: &cachev1alpha1.WarmVolumes{Selector: metav1.LabelSelector{MatchLabels: map[string]string{"backup": "monday"}}}, Until: cachev1alpha1.WarmReady,
	}
	restored.create(spec)
	restored.warm()
	restored.settled(1)
	restored.expectAll(1, objects)
	f.must(kube.DeleteAllOf(f.ctx, &corev1.PersistentVolumeClaim{}, client.InNamespace(f.namespace), client.MatchingLabels{"backup": "monday"}))
}

// A source that doesn't list its items is asked by the routers for missed keys.
func TestRoutersAskASourceThatCannotBeListed(t *testing.T) {
	tier.Second(t, "TestAClusterIsFilledBeforeItIsReadyAndBeforeItsClientsAreTold")
	t.Parallel()
	old := newLegacy(t, 2, "-X")
	objects := old.some()
	old.must(old.app.Fill(old.ctx, objects))

	f := inNamespace(t)
	f.must(kube.Create(f.ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "old-ca"}, Data: map[string][]byte{contract.CAFile: old.ca}}))
	spec := roomForSome(routed(2))
	spec.WarmFrom = &cachev1alpha1.WarmSource{
		Servers: old.servers, Routing: &cachev1alpha1.WarmRouting{Client: ringClient}, TLS: &cachev1alpha1.WarmTLS{SecretName: "old-ca"}, OnMiss: true,
	}
	f.create(spec)
	f.eventually("the source is asked on a miss", func() bool { s := f.memcached().Status.Warm; return s != nil && s.Phase == cachev1alpha1.WarmOnMiss })
	f.settled(2)
	through := f.appAt([]string{"router:11211"}, f.routers(*spec.Router.Replicas))
	f.eventually("every object is found", func() bool { // a fetch that takes too long is a miss
		report, err := through.Check(f.ctx, objects)
		f.must(err)
		return report.Found == int64(len(objects)) && report.Wrong == 0
	})
	f.patch(f.memcached(), `{"spec":{"warmFrom":null}}`)
	f.settled(2)
	f.eventually("the members have them", func() bool {
		f.routersReady(*spec.Router.Replicas)
		report, err := f.appAt([]string{"router:11211"}, f.routers(*spec.Router.Replicas)).Check(f.ctx, objects)
		f.must(err)
		return report.Found == int64(len(objects))
	})
}
