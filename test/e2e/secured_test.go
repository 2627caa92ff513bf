package e2e

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/test/certtest"
	"example.com/memcached-operator/test/tier"
)

const password = "a-password-that-must-not-show"

// TestJourneyOfASecuredCluster uses the sample, with TLS, certificates on both sides, and logins. Members use
// new certificates and logins without a restart, and a roll-out stops when a Secret is invalid.
func TestJourneyOfASecuredCluster(t *testing.T) {
	t.Parallel()
	f := inNamespace(t)
	spec := roomForSome(f.sample(samples + "cache_v1alpha1_memcached_secured.yaml").Spec)
	spec.Size = ptr.To[int32](2)
	s := newSecrets(f, &spec)
	s.write("drainer:" + password + "\n")
	f.create(spec)
	objects := f.some()
	f.fill(2, objects)

	logins := f.rotates(s, 2)
	f.stopsAtASpoiledSecret(s, logins)
	movers := f.watchMovers()
	f.scale(3)
	f.settled(3) // the items of the new member are moved there
	f.expectAll(3, objects)
	f.expectStreamed(movers())
	f.scale(2)
	f.expectDrained(2, objects)
	f.expectReceipt(false)
	f.tellsNoPassword()
}

// TestASecuredCluster uses the sample, with its items in memory, TLS, certificates on both sides, and logins.
// The cluster restarts warm, uses new certificates and logins without a restart, and is drained with the new
// ones. A roll-out stops when a Secret is invalid.
func TestASecuredCluster(t *testing.T) {
	tier.Second(t, "TestJourneyOfASecuredCluster")
	t.Parallel()
	f := inNamespace(t)
	sample := f.sample("../../config/samples/cache_v1alpha1_memcached_secured.yaml")
	sample.Spec.Storage.Mode = cachev1alpha1.StorageSaved
	s := newSecrets(f, &sample.Spec)
	s.write("drainer:" + password + "\n")
	f.create(sample.Spec)
	objects := f.objects()
	f.fill(3, objects)

	was := f.pod(1)
	f.must(kube.Delete(f.ctx, was))
	f.replaced(was)
	f.expectAll(3, objects)

	logins := f.rotates(s, 3)
	f.scale(2)
	f.eventually("claim 2 is gone", func() bool { return f.claim(2) == nil })
	f.settled(2)
	f.expectAll(2, objects)
	f.stopsAtASpoiledSecret(s, logins)
	f.expectAll(2, objects)
	f.tellsNoPassword()
}

// rotates changes the certificate and the logins of so many members, which use the new ones without a restart.
// rotates returns the logins.
func (f *fixture) rotates(s *secrets, members int) (logins string) {
	f.Helper()
	before := f.members()
	served, err := f.dialer.Served(f.ctx, f.address("cache-0.:11211"))
	f.must(err)
	logins = "drainer:" + password + "-2\n"
	s.write(logins)
	f.eventually("each member has the new certificate, and takes the new login alone", func() bool {
		for i := range members {
			f.nudge(f.pod(i))
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
			f.Errorf("pod %s was restarted", pod.Name)
		}
	}
	return logins
}

// stopsAtASpoiledSecret checks that a roll-out of two members stops when the first one finds an invalid Secret.
func (f *fixture) stopsAtASpoiledSecret(s *secrets, logins string) {
	f.Helper()
	stays := f.pod(0)
	s.spoil()
	f.patch(f.memcached(), `{"spec":{"podTemplate":{"annotations":{"example.com/rolled":"yes"}}}}`)
	f.eventually("the condition says what is wrong with the Secret", func() bool {
		c := meta.FindStatusCondition(f.memcached().Status.Conditions, cachev1alpha1.ConditionDegraded)
		return c.Reason == cachev1alpha1.ReasonSecretInvalid && strings.Contains(c.Message, "pod cache-1 ") && strings.Contains(c.Message, "tls.key")
	})
	if now := f.pod(0); now.UID != stays.UID || now.Status.ContainerStatuses[0].RestartCount != stays.Status.ContainerStatuses[0].RestartCount || !ready(now) {
		f.Errorf("the other member went, too: %+v", now.Status)
	}
	if _, err := f.dialer.Served(f.ctx, f.address("cache-0.:11211")); err != nil {
		f.Errorf("the other member: %v", err)
	}
	s.write(logins)
	f.eventually("both members run with the new Secret", func() bool {
		if pod := f.pod(1); pod != nil && !ready(pod) {
			f.nudge(pod)
		}
		s := f.memcached().Status
		pod := f.pod(0)
		return pod != nil && pod.UID != stays.UID && s.ReadySize == 2 &&
			meta.IsStatusConditionFalse(s.Conditions, cachev1alpha1.ConditionDegraded) &&
			meta.IsStatusConditionFalse(s.Conditions, cachev1alpha1.ConditionProgressing)
	})
}

func (f *fixture) tellsNoPassword() {
	f.Helper()
	if told := f.dump(); strings.Contains(told, password) {
		f.Errorf("the password is shown:\n%s", told)
	}
}

// members returns the pods that have a claim.
func (f *fixture) members() []corev1.Pod {
	f.Helper()
	return slices.DeleteFunc(f.pods(), func(p corev1.Pod) bool {
		return p.Labels[cachev1alpha1.LabelComponent] != cachev1alpha1.ComponentMember
	})
}

// A secured cluster without storage has TLS and logins, too, and an application that has only the Secret of
// its binding.
func TestASecuredClusterWithoutStorage(t *testing.T) {
	tier.Second(t, "TestJourneyOfASecuredCluster")
	t.Parallel()
	f := inNamespace(t)
	spec := cachev1alpha1.MemcachedSpec{
		TLS:     &cachev1alpha1.TLSSpec{SecretName: "cache-tls"},
		Auth:    &cachev1alpha1.AuthSpec{SecretName: "cache-auth"},
		Binding: &cachev1alpha1.BindingSpec{SecretName: "cache-binding"},
	}
	f.kubectl("create", "role", "cache-binding", "--resource=secrets", "--verb=get,create,patch,delete",
		"--resource-name=cache-tls", "--resource-name=cache-auth", "--resource-name=cache-binding")
	f.kubectl("create", "rolebinding", "cache-binding", "--role=cache-binding",
		"--serviceaccount=memcached-operator-system:memcached-operator-controller-manager")
	s := newSecrets(f, &spec)
	s.write("shop:" + password + "\n")
	f.create(spec)
	f.eventually("an application is let in", func() bool { return f.bound() == nil })
	before := f.pods()[0]
	binding := f.memcached().Status.Binding.Name

	s.write("shop:" + password + "-2\n")
	var err error
	f.eventually("an application with the new password is let in", func() bool {
		f.nudge(&before)
		err = f.bound()
		secret := &corev1.Secret{}
		f.must(kube.Get(f.ctx, f.key(binding), secret))
		return err == nil && string(secret.Data["password"]) == password+"-2"
	})
	if now := f.pods()[0]; now.UID != before.UID || now.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("pod %s was restarted", before.Name)
	}
	f.tellsNoPassword()
}

// bound stores and reads an item at the first pod, as an application that has only the Secret that
// status.binding names.
func (f *fixture) bound() error {
	f.Helper()
	binding := f.memcached().Status.Binding
	if binding == nil {
		return errors.New("status.binding is empty")
	}
	secret := &corev1.Secret{}
	f.must(kube.Get(f.ctx, f.key(binding.Name), secret))
	entry := func(key string) string { return string(secret.Data[key]) }
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(secret.Data["ca.crt"])
	ctx, cancel := context.WithTimeout(f.ctx, 30*time.Second)
	defer cancel()
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: entry("host")}}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(f.pods()[0].Status.PodIP, entry("port")))
	if err != nil {
		return err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	f.must(conn.SetDeadline(deadline))
	answers := bufio.NewReader(conn)
	login := entry("username") + " " + entry("password")
	for _, exchange := range []struct{ request, want string }{
		{fmt.Sprintf("set login 0 0 %d\r\n%s\r\n", len(login), login), "STORED\r\n"},
		{"set greeting 0 0 5\r\nhello\r\n", "STORED\r\n"},
		{"get greeting\r\n", "VALUE greeting 0 5\r\nhello\r\nEND\r\n"},
	} {
		if _, err := conn.Write([]byte(exchange.request)); err != nil {
			return err
		}
		answer := make([]byte, len(exchange.want))
		if _, err := io.ReadFull(answers, answer); err != nil || string(answer) != exchange.want {
			return fmt.Errorf("%q, %w", answer, err)
		}
	}
	return nil
}

// sample returns the first object of a file, the Memcached.
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
	// also has further names for the members' certificate.
	also []string
}

func newSecrets(f *fixture, spec *cachev1alpha1.MemcachedSpec) *secrets {
	s := &secrets{f: f, spec: spec, authority: certtest.NewAuthority(f), dir: f.TempDir()}
	// Members are dialled at their pods' addresses, which are not in the certificate.
	f.dialer = memcache.Dialer{Connection: contract.Connection{TLSDir: s.dir, AuthFile: filepath.Join(s.dir, "auth-file")}, Unverified: true}
	return s
}

// write makes a new certificate, and writes it with the logins.
func (s *secrets) write(logins string) {
	s.f.Helper()
	certificate := s.certificate()
	s.put(s.spec.TLS.SecretName, corev1.SecretTypeTLS, certificate)
	s.put(s.spec.Auth.SecretName, corev1.SecretTypeOpaque, map[string][]byte{"auth-file": []byte(logins)})
	maps.Copy(certificate, map[string][]byte{"auth-file": []byte(logins)})
	for name, content := range certificate {
		s.f.must(os.WriteFile(filepath.Join(s.dir, name), content, 0o600))
	}
}

// spoil makes the Secret invalid: its certificate doesn't match its key.
func (s *secrets) spoil() {
	s.f.Helper()
	certificate := s.certificate()
	certificate[contract.KeyFile] = s.certificate()[contract.KeyFile]
	s.put(s.spec.TLS.SecretName, corev1.SecretTypeTLS, certificate)
}

func (s *secrets) certificate() map[string][]byte {
	service := s.f.name + "." + s.f.namespace + ".svc"
	return s.authority.Files(s.f, append([]string{service, "*." + service, "*." + s.f.name + "-list." + s.f.namespace + ".svc"}, s.also...))
}

func (s *secrets) put(name string, kind corev1.SecretType, data map[string][]byte) {
	s.f.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.f.namespace, Name: name}, Type: kind, Data: data}
	err := kube.Create(s.f.ctx, secret)
	if err != nil {
		err = kube.Update(s.f.ctx, secret)
	}
	s.f.must(err)
}

// nudge makes the kubelet look at a pod's volumes, which it otherwise does each minute.
func (f *fixture) nudge(pod *corev1.Pod) {
	f.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"example.com/nudged":%q}}}`, time.Now().Format(time.RFC3339))
	f.must(kube.Patch(f.ctx, pod, client.RawPatch("application/merge-patch+json", patch)))
}
