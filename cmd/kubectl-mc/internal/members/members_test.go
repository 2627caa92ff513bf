package members

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/test/certtest"
	"example.com/memcached-operator/test/tied"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// memcached starts a real one, and returns its address.
func memcached(t *testing.T, args ...string) string {
	t.Helper()
	binary := os.Getenv("MEMCACHED")
	if binary == "" {
		binary = "memcached"
	}
	_, err := exec.LookPath(binary)
	tier.Needs(t, "memcached", err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	_, port, _ := net.SplitHostPort(address)
	cmd := exec.CommandContext(wait.Context(t), binary, append([]string{"-u", "root", "-l", "127.0.0.1", "-p", port, "-U", "0", "-m", "64"}, args...)...)
	if err := tied.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	wait.For(t, "memcached", func() error {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
		}
		return err
	})
	return address
}

// direct connects to the address, as a port-forward would.
func direct(address string) Dialer {
	return func(ctx context.Context, _ *corev1.Pod, _ int32) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", address)
	}
}

// secrets is a reader that has Secrets only.
type secrets map[string]map[string][]byte

func (s secrets) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	data, has := s[key.Name]
	if !has {
		return errors.New("no such Secret")
	}
	o.(*corev1.Secret).Data = data
	return nil
}

func (s secrets) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("not asked for")
}

func TestKeysAndNumbersComeFromTheMember(t *testing.T) {
	dir := t.TempDir()
	for file, text := range certtest.NewAuthority(t).Files(t, []string{"localhost"}, x509.ExtKeyUsageServerAuth) {
		if err := os.WriteFile(filepath.Join(dir, file), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	auth := filepath.Join(dir, "auth")
	if err := os.WriteFile(auth, []byte("alice:wonder\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		args []string
		spec func(*cachev1alpha1.MemcachedSpec)
	}{
		"plain": {nil, func(*cachev1alpha1.MemcachedSpec) {}},
		"TLS and a login": {
			[]string{"-Z", "-o", "ssl_chain_cert=" + filepath.Join(dir, "tls.crt") + ",ssl_key=" + filepath.Join(dir, "tls.key"), "-Y", auth},
			func(s *cachev1alpha1.MemcachedSpec) {
				s.TLS, s.Auth = &cachev1alpha1.TLSSpec{SecretName: "tls"}, &cachev1alpha1.AuthSpec{SecretName: "auth"}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := apitest.MakeMemcached("cache").Namespace("shop").Obj()
			test.spec(&m.Spec)
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "cache-0"}}
			pod.Status.Phase = corev1.PodRunning
			a, err := Of(t.Context(), secrets{"auth": {"auth-file": []byte("alice:wonder\n")}}, direct(memcached(t, test.args...)), m)
			if err != nil {
				t.Fatal(err)
			}
			value := bytes.Repeat([]byte("v\r\n"), 1000)
			set(t, a, m, pod, "user:17", value)
			item, err := a.Get(t.Context(), m, pod, "user:17")
			if err != nil || item == nil || !bytes.Equal(item.Value, value) || item.Flags != 5 || item.Expires != -1 {
				t.Fatalf("get: %+v, %v", item, err)
			}
			if there, err := a.Touch(t.Context(), m, pod, "user:17", 100); !there || err != nil {
				t.Errorf("touch: %v, %v", there, err)
			}
			if item, err := a.Get(t.Context(), m, pod, "user:17"); err != nil || item.Expires < 1 || item.Expires > 100 {
				t.Errorf("get after a touch: %+v, %v", item, err)
			}
			numbers, why := a.Each(t.Context(), m, []corev1.Pod{*pod})
			if n := numbers["cache-0"]; n == nil || n.Items != 1 || n.Bytes < 3000 || n.Limit != 64<<20 {
				t.Errorf("numbers: %+v, %v", n, why)
			}
			if there, err := a.Delete(t.Context(), m, pod, "user:17"); !there || err != nil {
				t.Errorf("delete: %v, %v", there, err)
			}
			if there, err := a.Delete(t.Context(), m, pod, "user:17"); there || err != nil {
				t.Errorf("delete again: %v, %v", there, err)
			}
			if item, err := a.Get(t.Context(), m, pod, "user:17"); item != nil || err != nil {
				t.Errorf("get after a delete: %+v, %v", item, err)
			}
		})
	}
}

func set(t *testing.T, a *Members, m *cachev1alpha1.Memcached, pod *corev1.Pod, key string, value []byte) {
	t.Helper()
	c, end, err := a.connect(t.Context(), m, pod)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	if line, err := c.ask(fmt.Sprintf("set %s 5 0 %d\r\n%s", key, len(value), value)); err != nil || line != "STORED" {
		t.Fatalf("set: %q, %v", line, err)
	}
}

func TestWhatIsNoKeyIsNotSent(t *testing.T) {
	for key, ok := range map[string]bool{"a": true, strings.Repeat("k", 250): true, "ü": true, "": false, strings.Repeat("k", 251): false, "a b": false, "a\r\nflush_all": false, "a\x00": false} {
		if err := CheckKey(key); (err == nil) != ok {
			t.Errorf("%q: %v", key, err)
		}
	}
}
