package build

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
)

func secured(clientAuth cachev1alpha1.TLSClientAuth) *apitest.MemcachedBuilder {
	return apitest.MakeMemcached("cache").Namespace("shop").With(func(s *cachev1alpha1.MemcachedSpec) {
		s.TLS = &cachev1alpha1.TLSSpec{SecretName: "certificate", ClientAuth: clientAuth}
		s.Auth = &cachev1alpha1.AuthSpec{SecretName: "logins"}
	})
}

// A command has only paths, and no value of the Secrets.
var connectionFlags = []string{"--tls-dir=/tls", "--auth-file=/auth/auth-file"}

func TestSecuredMembersGetTheSecretsAndASupervisor(t *testing.T) {
	for clientAuth, verify := range map[cachev1alpha1.TLSClientAuth]string{"None": "", "Required": ",ssl_verify_mode=2"} {
		c := secured(clientAuth).Storage("128Mi").Defaulted().Obj()
		memcached := []string{
			"--", "memcached", "-m", "64", "-p", "11211", "-U", "0", "--enable-ssl",
			"--extended=ssl_chain_cert=/tls/tls.crt,ssl_key=/tls/tls.key,ssl_ca_cert=/tls/ca.crt" + verify, "--auth-file=/auth/auth-file",
		}
		serve := append(slices.Clone(connectionFlags), memcached...)
		for kind, test := range map[string]struct {
			pod  *coreac.PodSpecApplyConfiguration
			want []string
		}{
			"StatefulSet": {
				StatefulSet(c, options, 1).Spec.Template.Spec,
				append([]string{"/supervisor/drainer", "supervise", "--dir=/data", "--memory-dir=/memory", "--port=11211", "--export-port=11212", "--probe-port=11213", "--termination-log=/dev/termination-log", "--grace-period=34s"}, serve...),
			},
			"Deployment": {
				Deployment(c, options).Spec.Template.Spec,
				append([]string{"/supervisor/drainer", "supervise", "--port=11211", "--probe-port=11213", "--termination-log=/dev/termination-log"}, serve...),
			},
		} {
			member := test.pod.Containers[0]
			if diff := cmp.Diff(test.want, member.Command); diff != "" {
				t.Errorf("%s, %s: -want +got:\n%s", kind, clientAuth, diff)
			}
			for path, secret := range map[string]string{"/tls": "certificate tls.crt tls.key ca.crt", "/auth": "logins auth-file"} {
				if got := secretAt(convert[corev1.PodSpec](test.pod), path); !sameWords(got, secret) {
					t.Errorf("%s, %s: at %s is %q, want %q", kind, clientAuth, path, got, secret)
				}
			}
			if got := test.pod.InitContainers[0].Command[:2]; !slices.Equal(got, []string{"/drainer", "install"}) {
				t.Errorf("%s: the supervisor is put there by %q", kind, got)
			}
		}
	}
}

// Only drainers that have to show a certificate get its private key.
func TestDrainersGetWhatTheyNeedOfTheSecrets(t *testing.T) {
	for clientAuth, want := range map[cachev1alpha1.TLSClientAuth]string{"None": "certificate ca.crt", "Required": "certificate ca.crt tls.crt tls.key"} {
		move := MoveJob(secured(clientAuth).Defaulted().Obj(), options, Move{Claim: "data-cache-0", UID: "uid", Target: "target", Members: 3})
		for kind, pod := range map[string]corev1.PodSpec{"drain": drainJob(secured(clientAuth)).Spec.Template.Spec, "move": move.Spec.Template.Spec} {
			for _, flag := range connectionFlags {
				if !slices.Contains(pod.Containers[0].Command, flag) {
					t.Errorf("%s: %s is not in %q", kind, flag, pod.Containers[0].Command)
				}
			}
			if got := secretAt(&pod, "/tls"); !sameWords(got, want) {
				t.Errorf("%s, %s: at /tls is %q, want %q", kind, clientAuth, got, want)
			}
			if got := secretAt(&pod, "/auth"); !sameWords(got, "logins auth-file") {
				t.Errorf("%s: at /auth is %q", kind, got)
			}
		}
	}
}

// secretAt is the name of the Secret that the first container has at path, and its keys:
// read-only, as a directory, and optional.
func secretAt(pod *corev1.PodSpec, path string) string {
	for _, m := range pod.Containers[0].VolumeMounts {
		if m.MountPath != path || !m.ReadOnly || m.SubPath != "" {
			continue
		}
		for _, v := range pod.Volumes {
			if v.Name != m.Name || v.Secret == nil || v.Secret.Optional == nil || !*v.Secret.Optional {
				continue
			}
			words := []string{v.Secret.SecretName}
			for _, item := range v.Secret.Items {
				if item.Key == item.Path {
					words = append(words, item.Key)
				}
			}
			return strings.Join(words, " ")
		}
	}
	return ""
}

func sameWords(a, b string) bool {
	x, y := strings.Fields(a), strings.Fields(b)
	slices.Sort(x)
	slices.Sort(y)
	return slices.Equal(x, y)
}
