package ask

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"example.com/memcached-operator/drainer/contract"
)

// CertificateReader asks the member's supervisor, or the router, at host:port about its
// certificate.
type CertificateReader func(ctx context.Context, address string) (contract.Certificate, error)

const (
	certificateTimeout = time.Second
	// certificateInterval is how often each pod is asked.
	certificateInterval = 2 * time.Minute
	// certificateTargets bounds how many pods are asked.
	certificateTargets = 8192
	// maxCertificate bounds an answer, in bytes, because any server may listen at the address.
	maxCertificate = 4 << 10
)

// Certificates asks members and routers about their certificates. A nil Certificates asks none.
type Certificates struct {
	sampler *sampler[certificateTarget, contract.Certificate]
}

type certificateTarget struct {
	address string
	uid     types.UID
}

// NewCertificates returns Certificates, which ask after Start and call changed for each cluster when all its
// pods have answered or failed and an answer is new; changed must not block.
func NewCertificates(read CertificateReader, changed func(cluster types.NamespacedName)) *Certificates {
	return &Certificates{newSampler(samplerOptions[certificateTarget, contract.Certificate]{
		Ask: func(ctx context.Context, pod certificateTarget) (contract.Certificate, error) {
			return read(ctx, pod.address)
		},
		Changed: changed,
		Timeout: certificateTimeout, Interval: certificateInterval, Together: true,
		Workers: 32, PerCluster: 16, Targets: certificateTargets,
		Clock: clock.RealClock{},
	})}
}

// Start asks until the context ends.
func (c *Certificates) Start(ctx context.Context) error { return c.sampler.Start(ctx) }

// CertificateOf has the known facts about a pod's certificate.
type CertificateOf struct {
	Pod string
	contract.Certificate
	// Err says why the pod has not answered; empty if it has. Known: the pod has answered or
	// failed.
	Err   string
	Known bool
}

// Want replaces the pods of a cluster that are asked from now on, each at its address, and returns the known
// certificates.
func (c *Certificates) Want(cluster types.NamespacedName, pods []*corev1.Pod, address func(*corev1.Pod) string) []CertificateOf {
	targets := make([]certificateTarget, 0, len(pods))
	for _, pod := range pods {
		targets = append(targets, certificateTarget{address(pod), pod.UID})
	}
	samples := c.sampler.Want(cluster, targets...)
	known := make([]CertificateOf, 0, len(pods))
	for i, pod := range pods {
		s := samples[targets[i]]
		known = append(known, CertificateOf{Pod: pod.Name, Certificate: s.Value, Err: s.Err, Known: s.Known})
	}
	return known
}

// Forget asks no pod of the cluster any more.
func (c *Certificates) Forget(cluster types.NamespacedName) {
	if c != nil {
		c.sampler.Want(cluster)
	}
}

// CertificateFromPod asks the pod itself. The operator must be able to reach the pod.
func CertificateFromPod(ctx context.Context, address string) (c contract.Certificate, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+contract.CertificatePath, http.NoBody)
	if err != nil {
		return c, err
	}
	response, err := ringClient.Do(request)
	if err != nil {
		return c, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return c, fmt.Errorf("GET %s: %w", contract.CertificatePath, refused(response.StatusCode))
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxCertificate)).Decode(&c); err != nil {
		return contract.Certificate{}, fmt.Errorf("GET %s: %w", contract.CertificatePath, err)
	}
	const year10000 = 253402300800
	if c.NotAfter < 0 || c.NotAfter >= year10000 || c.NotAfter == 0 && c.Trouble == "" {
		return contract.Certificate{}, fmt.Errorf("GET %s: a certificate can't end at %d", contract.CertificatePath, c.NotAfter)
	}
	c.Trouble = strings.ToValidUTF8(c.Trouble[:min(len(c.Trouble), contract.MaxCertificateTrouble)], "")
	return c, nil
}
