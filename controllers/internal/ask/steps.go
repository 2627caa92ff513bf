package ask

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"example.com/memcached-operator/drainer/contract"
)

// StepReader asks the supervisor at host:port whether it has started empty.
type StepReader func(ctx context.Context, address string) (contract.Stepped, error)

const (
	stepTimeout  = time.Second
	stepInterval = 500 * time.Millisecond
	// stepTargets bounds how many members are asked: one in each cluster.
	stepTargets = 8192
	// maxStep bounds an answer, in bytes, because any server may listen at the address.
	maxStep = 1 << 10
)

// Steps asks members that are out of the ring whether they have started empty. A nil Steps asks none.
type Steps struct {
	sampler *sampler[stepTarget, contract.Stepped]
}

// stepTarget is a run of a member's container.
type stepTarget struct {
	address string
	uid     types.UID
	serial  int64
}

// NewSteps returns Steps, which ask after Start and call changed for each cluster with a new answer; changed
// must not block.
func NewSteps(read StepReader, changed func(cluster types.NamespacedName)) *Steps {
	return &Steps{newSampler(samplerOptions[stepTarget, contract.Stepped]{
		Ask:     func(ctx context.Context, pod stepTarget) (contract.Stepped, error) { return read(ctx, pod.address) },
		Changed: changed,
		Timeout: stepTimeout, Interval: stepInterval,
		Workers: 32, PerCluster: 1, Targets: stepTargets,
		Clock: clock.RealClock{},
	})}
}

// Start asks until the context ends.
func (s *Steps) Start(ctx context.Context) error { return s.sampler.Start(ctx) }

// StartedEmpty tells whether the pod has said that it has started empty for this serial, and whether it is
// aside. From now on the pod is asked, at this port.
func (s *Steps) StartedEmpty(cluster types.NamespacedName, port int32, serial int64, pod *corev1.Pod) (empty, aside bool) {
	target := stepTarget{net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(int(port))), pod.UID, serial}
	said := s.sampler.Want(cluster, target)[target]
	told := said.Value.Told
	known := said.Known && said.Err == "" && (told == contract.StepOut(serial, string(pod.UID)) || told == contract.StepAside(serial, string(pod.UID)))
	return known && said.Value.Empty == serial, known && contract.StepsAside(told)
}

// Forget asks no pod of the cluster any more.
func (s *Steps) Forget(cluster types.NamespacedName) {
	if s != nil {
		s.sampler.Want(cluster)
	}
}

// StepFromPod asks the pod itself. The operator must be able to reach the pod.
func StepFromPod(ctx context.Context, address string) (s contract.Stepped, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+contract.StepPath, http.NoBody)
	if err != nil {
		return s, err
	}
	response, err := ringClient.Do(request)
	if err != nil {
		return s, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return s, fmt.Errorf("GET %s: %w", contract.StepPath, refused(response.StatusCode))
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxStep)).Decode(&s); err != nil {
		return contract.Stepped{}, fmt.Errorf("GET %s: %w", contract.StepPath, err)
	}
	return s, nil
}
