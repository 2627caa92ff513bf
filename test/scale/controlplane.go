package main

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	_ "embed"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"example.com/memcached-operator/test/internal/harness"
)

// controllers are those that a cluster needs. kwok keeps the nodes ready.
var controllers = []string{
	"deployment-controller",
	"endpointslice-controller",
	"garbage-collector-controller",
	"job-controller",
	"namespace-controller",
	"persistentvolume-binder-controller",
	"persistentvolume-protection-controller",
	"persistentvolumeclaim-protection-controller",
	"replicaset-controller",
	"statefulset-controller",
}

// The manager is audited and authorized as the service account that it is
// deployed with.
const (
	operatorUser = "system:serviceaccount:memcached-operator-system:memcached-operator-controller-manager"
	adminToken   = "admin"
	managerToken = "manager"
)

const tokens = adminToken + `,admin,admin,"system:masters"
` + managerToken + `,` + operatorUser + `,manager,"system:serviceaccounts"
`

//go:embed audit.yaml
var auditPolicy []byte

// controlPlane is etcd, the API server, the controller manager and the
// scheduler, as processes on loopback ports.
type controlPlane struct {
	dir, programs string
	port          int
	children      []*child
}

func (c *controlPlane) url() string      { return fmt.Sprintf("https://127.0.0.1:%d", c.port) }
func (c *controlPlane) cert() string     { return filepath.Join(c.dir, "apiserver.crt") }
func (c *controlPlane) key() string      { return filepath.Join(c.dir, "apiserver.key") }
func (c *controlPlane) auditLog() string { return filepath.Join(c.dir, "audit.log") }

// config returns the administrator's.
func (c *controlPlane) config() *rest.Config {
	return &rest.Config{
		Host: c.url(), BearerToken: adminToken, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAFile: c.cert()},
	}
}

// kubeconfig writes one for the bearer of a token, and returns its path.
func (c *controlPlane) kubeconfig(token string) (string, error) {
	path := filepath.Join(c.dir, token+".kubeconfig")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: scale
clusters: [{name: scale, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: %[3]s, user: {token: %[3]s}}]
contexts: [{name: scale, context: {cluster: scale, user: %[3]s}}]
`, c.url(), c.cert(), token)
	return path, os.WriteFile(path, []byte(text), 0o600)
}

// startControlPlane waits until the API server is ready. The caller calls stop,
// also after an error.
func startControlPlane(ctx context.Context, programs, dir string) (*controlPlane, error) {
	c := &controlPlane{dir: dir, programs: programs}
	for _, step := range []func(context.Context) error{c.startServers, c.awaitReady, c.startControllers} {
		if err := step(ctx); err != nil {
			return c, err
		}
	}
	return c, nil
}

func (c *controlPlane) start(name string, args ...string) error {
	p, err := start(c.dir, name, nil, append([]string{filepath.Join(c.programs, name)}, args...)...)
	if err == nil {
		c.children = append(c.children, p)
	}
	return err
}

func (c *controlPlane) startServers(context.Context) error {
	var ports [3]int
	for i := range ports {
		var err error
		if ports[i], err = harness.FreePort(); err != nil {
			return err
		}
	}
	c.port = ports[0]
	client, peer := fmt.Sprintf("http://127.0.0.1:%d", ports[1]), fmt.Sprintf("http://127.0.0.1:%d", ports[2])
	signing := filepath.Join(c.dir, "service-accounts.key")
	err := errors.Join(
		writeSigningKey(signing),
		os.WriteFile(filepath.Join(c.dir, "tokens.csv"), []byte(tokens), 0o600),
		os.WriteFile(filepath.Join(c.dir, "audit.yaml"), auditPolicy, 0o600))
	if err != nil {
		return err
	}
	err = c.start("etcd",
		"--name=scale", "--data-dir="+filepath.Join(c.dir, "etcd"),
		"--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=scale="+peer,
		// Its data need not survive a crash of the machine.
		"--unsafe-no-fsync", "--quota-backend-bytes=8589934592", "--log-level=warn")
	if err != nil {
		return err
	}
	return c.start("kube-apiserver",
		"--etcd-servers="+client,
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", c.port), "--cert-dir="+c.dir,
		"--token-auth-file="+filepath.Join(c.dir, "tokens.csv"), "--authorization-mode=RBAC",
		"--service-account-issuer=https://scale.example.com",
		"--service-account-key-file="+signing, "--service-account-signing-key-file="+signing,
		"--service-cluster-ip-range=10.96.0.0/12",
		// No controller makes service accounts, or takes taints off nodes.
		"--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
		"--kubelet-preferred-address-types=InternalIP",
		"--audit-policy-file="+filepath.Join(c.dir, "audit.yaml"),
		"--audit-log-path="+c.auditLog(), "--audit-log-mode=blocking", "--audit-log-maxsize=8192")
}

func (c *controlPlane) startControllers(context.Context) error {
	kubeconfig, err := c.kubeconfig(adminToken)
	if err != nil {
		return err
	}
	// With the clients' default limits (20 to 50 requests a second), this benchmark would measure the limits.
	const qps, burst = "--kube-api-qps=2000", "--kube-api-burst=4000"
	return errors.Join(
		c.start("kube-controller-manager",
			"--kubeconfig="+kubeconfig, "--leader-elect=false", "--secure-port=0",
			"--controllers="+strings.Join(controllers, ","), "--use-service-account-credentials=false",
			"--concurrent-statefulset-syncs=20", "--concurrent-job-syncs=20", qps, burst),
		c.start("kube-scheduler",
			"--kubeconfig="+kubeconfig, "--leader-elect=false", "--secure-port=0", qps, burst))
}

// awaitReady waits for the API server, which also makes its certificate.
func (c *controlPlane) awaitReady(ctx context.Context) error {
	return harness.Until(ctx, 200*time.Millisecond, "the API server is ready", func() error {
		if err := c.ended(); err != nil {
			return harness.Never(err)
		}
		return c.ready(ctx)
	})
}

func (c *controlPlane) ready(ctx context.Context) error {
	client, err := rest.HTTPClientFor(c.config())
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url()+"/readyz", nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}

// ended returns an error if a part has ended by itself.
func (c *controlPlane) ended() error {
	for _, p := range c.children {
		if err := p.ended(); err != nil {
			return err
		}
	}
	return nil
}

// stop ends the parts in the reverse order of their start.
func (c *controlPlane) stop() {
	for _, p := range slices.Backward(c.children) {
		p.stop()
	}
}

func writeSigningKey(path string) error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	block := &pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}
	return os.WriteFile(path, pem.EncodeToMemory(block), 0o600)
}
