package ask

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// Memory of a member, in bytes.
type Memory struct{ Used, Limit int64 }

// MemoryReader asks the member at host:port for its memory.
type MemoryReader func(ctx context.Context, address string) (Memory, error)

const (
	// memoryTimeout bounds the question to a member.
	memoryTimeout = 500 * time.Millisecond
	// memoryPatience is how long a scale-down waits for its members' answers.
	memoryPatience = 2 * time.Second
	// memoryInterval is how often the members are asked while a scale-down waits for room.
	memoryInterval = 10 * time.Second
	// memoryTargets bounds how many members are asked. For a scale-down with more members, the
	// operator doesn't know whether the items fit.
	memoryTargets = 8192
)

// Members asks members how full they are. A nil Members asks none.
type Members struct {
	sampler *sampler[memoryTarget, Memory]
}

// memoryTarget is the member that is asked.
type memoryTarget struct {
	address string
	uid     types.UID
}

// Answer is a member's answer: its memory, or how much longer the answer may take, or why there is
// none.
type Answer struct {
	Memory Memory
	// Wait is positive while there is no answer yet.
	Wait time.Duration
	// Err says why the member has not answered; empty if it has.
	Err string
}

// NewMembers returns Members that ask once they are started. They call changed for each cluster
// when all its members have answered or failed and an answer is new; changed must not block.
func NewMembers(read MemoryReader, changed func(cluster types.NamespacedName)) *Members {
	return &Members{newSampler(samplerOptions[memoryTarget, Memory]{
		Ask:     func(ctx context.Context, pod memoryTarget) (Memory, error) { return read(ctx, pod.address) },
		Changed: changed,
		Timeout: memoryTimeout, Interval: memoryInterval, Together: true,
		Workers: 32, PerCluster: 16, Targets: memoryTargets,
		Clock: clock.RealClock{},
	})}
}

// Start asks until the context ends.
func (m *Members) Start(ctx context.Context) error { return m.sampler.Start(ctx) }

// Want replaces the members of a cluster that are asked from now on, each at its port, and returns the answer of
// each, by the pod's UID.
func (m *Members) Want(cluster types.NamespacedName, port func(*corev1.Pod) int32, now time.Time, pods ...*corev1.Pod) map[types.UID]Answer {
	targets := make([]memoryTarget, 0, len(pods))
	for _, pod := range pods {
		address := net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(int(port(pod))))
		targets = append(targets, memoryTarget{address, pod.UID})
	}
	answers := map[types.UID]Answer{}
	for target, s := range m.sampler.Want(cluster, targets...) {
		answers[target.uid] = answerOf(s, now)
	}
	return answers
}

// Forget asks no member of the cluster any more.
func (m *Members) Forget(cluster types.NamespacedName) {
	if m != nil {
		m.sampler.Want(cluster)
	}
}

func answerOf(s sample[Memory], now time.Time) Answer {
	left := s.Since.Add(memoryPatience).Sub(now)
	switch {
	case !s.Known && left > 0:
		return Answer{Wait: left}
	case !s.Known:
		return Answer{Err: fmt.Sprintf("no answer within %s", memoryPatience)}
	}
	return Answer{Memory: s.Value, Err: s.Err}
}

// Bounds of a member's answer, because any server may listen at its address.
const (
	maxStatistics = 64 << 10
	maxMemory     = 1 << 50
)

// MemoryFromStats asks the member itself. The operator must be able to reach the member, and needs
// no credentials.
func MemoryFromStats(ctx context.Context, address string) (Memory, error) {
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return Memory{}, err
	}
	defer func() { _ = connection.Close() }()
	if deadline, ok := ctx.Deadline(); ok {
		_ = connection.SetDeadline(deadline)
	}
	if _, err := fmt.Fprintf(connection, "stats\r\n"); err != nil {
		return Memory{}, err
	}
	return readMemory(connection)
}

// readMemory reads memcached's memory from its statistics.
func readMemory(connection io.Reader) (Memory, error) {
	memory := Memory{Used: math.MinInt64}
	lines := bufio.NewScanner(io.LimitReader(connection, maxStatistics))
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		var err error
		switch {
		case len(words) == 1 && words[0] == "END" && memory.Limit > 0 && memory.Used >= 0:
			return memory, nil
		case len(words) == 3 && words[0] == "STAT" && words[1] == "bytes":
			memory.Used, err = memoryNumber(words[2])
		case len(words) == 3 && words[0] == "STAT" && words[1] == "limit_maxbytes":
			memory.Limit, err = memoryNumber(words[2])
		case len(words) == 0 || words[0] != "STAT":
			return Memory{}, fmt.Errorf("these are no statistics of memcached: %.80q", lines.Text())
		}
		if err != nil {
			return Memory{}, fmt.Errorf("these are no statistics of memcached: %w", err)
		}
	}
	return Memory{}, cmp.Or(lines.Err(), fmt.Errorf("its statistics end too early, or have more than %d bytes", maxStatistics))
}

func memoryNumber(word string) (int64, error) {
	n, err := strconv.ParseInt(word, 10, 64)
	if err != nil || n < 0 || n > maxMemory {
		return 0, fmt.Errorf("%.40q is not a number of bytes", word)
	}
	return n, nil
}
