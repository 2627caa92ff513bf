package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/drainer/certtest"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/memcache"
)

const password = "a-password-nobody-should-see"

// TestASecuredCluster is the sample's: TLS with certificates on both sides, and
// logins. It restarts warm, takes new certificates and logins up without a restart,
// and is drained, by the new ones.
func TestASecuredCluster(t *testing.T) {
	t.Parallel()
	f := inNamespace(t)
	sample := f.sample("../../config/samples/cache_v1alpha1_memcached_secured.yaml")
	s := newSecrets(f, &sample.Spec)
	s.write("drainer:" + password + "\n")
	f.create(sample.Spec)
	objects := f.objects()
	f.fill(3, objects)

	was := f.pod(1).UID
	f.must(kube.Delete(f.ctx, f.pod(1)))
	f.eventually("the member is back", func() bool {
		pod := f.pod(1)
		return pod != nil && pod.UID != was && ready(pod)
	})
	f.expectAll(3, objects)

	before := f.pods()
	served, err := f.dialer.Served(f.ctx, f.address("cache-0.:11211"))
	f.must(err)
	const changed = password + "-2"
	s.write("drainer:" + changed + "\n")
	f.eventually("each member has the new certificate, and takes the new login alone", func() bool {
		for i := range 3 {
			f.nudge(i)
			address := f.address(fmt.Sprintf("cache-%d.:11211", i))
			if now, err := f.dialer.Served(f.ctx, address); err != nil || now.Equal(served) {
				return false
			}
		}
		return true
	})
	for _, pod := range before {
		now := f.pod(int(pod.Name[len(pod.Name)-1] - '0'))
		if now.UID != pod.UID || now.Status.ContainerStatuses[0].RestartCount != pod.Status.ContainerStatuses[0].RestartCount {
			t.Errorf("pod %s was restarted", pod.Name)
		}
	}

	f.scale(2)
	f.eventually("claim 2 is gone", func() bool { return f.claim(2) == nil })
	f.settled(2)
	f.expectAll(2, objects)
	if told := f.dump(); strings.Contains(told, password) {
		t.Errorf("the password is told:\n%s", told)
	}
}

// sample is the Memcached in a file, which comes first there.
func (f *fixture) sample(file string) *cachev1alpha1.Memcached {
	f.Helper()
	text, err := os.ReadFile(file)
	f.must(err)
	m := &cachev1alpha1.Memcached{}
	first, _, _ := strings.Cut(string(text), "\n---\n")
	f.must(yaml.UnmarshalStrict([]byte(first), m))
	return m
}

// secrets are those that a spec names, and the same files for the application.
type secrets struct {
	f         *fixture
	spec      *cachev1alpha1.MemcachedSpec
	authority *certtest.Authority
	dir       string
}

func newSecrets(f *fixture, spec *cachev1alpha1.MemcachedSpec) *secrets {
	s := &secrets{f: f, spec: spec, authority: certtest.NewAuthority(f), dir: f.TempDir()}
	// Members are dialled at their pods' addresses, for which the certificate isn't.
	f.dialer = memcache.Dialer{Connection: contract.Connection{TLSDir: s.dir, AuthFile: filepath.Join(s.dir, "auth-file")}, Unverified: true}
	return s
}

// write makes a new certificate, and these the logins.
func (s *secrets) write(logins string) {
	s.f.Helper()
	tls := s.authority.Files(s.f, []string{"*." + s.f.name + "." + s.f.namespace + ".svc"})
	auth := map[string][]byte{"auth-file": []byte(logins)}
	for _, secret := range []*corev1.Secret{
		{ObjectMeta: metav1.ObjectMeta{Name: s.spec.TLS.SecretName}, Type: corev1.SecretTypeTLS, Data: tls},
		{ObjectMeta: metav1.ObjectMeta{Name: s.spec.Auth.SecretName}, Data: auth},
	} {
		secret.Namespace = s.f.namespace
		err := kube.Create(s.f.ctx, secret)
		if err != nil {
			err = kube.Update(s.f.ctx, secret)
		}
		s.f.must(err)
		for name, content := range secret.Data {
			s.f.must(os.WriteFile(filepath.Join(s.dir, name), content, 0o600))
		}
	}
}

// nudge has the kubelet look at a pod's volumes, which it does each minute.
func (f *fixture) nudge(ordinal int) {
	f.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"example.com/nudged":%q}}}`, time.Now().Format(time.RFC3339))
	f.must(kube.Patch(f.ctx, f.pod(ordinal), client.RawPatch("application/merge-patch+json", patch)))
}
