package ask

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"example.com/memcached-operator/controllers/internal/forecast"
)

// MemoryReader asks the member at host:port for its contents.
type MemoryReader func(ctx context.Context, address string) (forecast.Holds, error)

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
	sampler *sampler[memoryTarget, forecast.Holds]
}

// memoryTarget is the member that is asked.
type memoryTarget struct {
	address string
	uid     types.UID
}

// Answer is a member's answer: its contents, or how much longer the answer may take, or why there is none.
type Answer struct {
	Holds forecast.Holds
	// Wait is positive while there is no answer yet.
	Wait time.Duration
	// Err says why the member has not answered; empty if it has.
	Err string
}

// NewMembers returns Members, which ask after Start and call changed for each cluster when all its members
// have answered or failed and an answer is new; changed must not block.
func NewMembers(read MemoryReader, changed func(cluster types.NamespacedName)) *Members {
	return &Members{newSampler(samplerOptions[memoryTarget, forecast.Holds]{
		Ask:     func(ctx context.Context, pod memoryTarget) (forecast.Holds, error) { return read(ctx, pod.address) },
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

func answerOf(s sample[forecast.Holds], now time.Time) Answer {
	left := s.Since.Add(memoryPatience).Sub(now)
	switch {
	case !s.Known && left > 0:
		return Answer{Wait: left}
	case !s.Known:
		return Answer{Err: fmt.Sprintf("no answer within %s", memoryPatience)}
	}
	return Answer{Holds: s.Value, Err: s.Err}
}

// Bounds of a member's answers, because any server may listen at its address.
const (
	maxStatistics = 256 << 10
	maxMemory     = 1 << 50
)

// MemoryFromStats asks the member itself: three questions in one request. The operator must be able to reach
// the member, and needs no credentials.
func MemoryFromStats(ctx context.Context, address string) (forecast.Holds, error) {
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return forecast.Holds{}, err
	}
	defer func() { _ = connection.Close() }()
	if deadline, ok := ctx.Deadline(); ok {
		_ = connection.SetDeadline(deadline)
	}
	if _, err := io.WriteString(connection, "stats\r\nstats slabs\r\nstats items\r\n"); err != nil {
		return forecast.Holds{}, err
	}
	return readMemory(connection)
}

// errNoStatistics: the answer is not that of memcached, or a question is refused.
var errNoStatistics = errors.New("these are no statistics of memcached")

// readMemory reads a member's contents from its answers to stats, stats slabs and stats items. If stats slabs
// or stats items is refused, there are no size classes.
func readMemory(connection io.Reader) (holds forecast.Holds, err error) {
	lines := bufio.NewScanner(io.LimitReader(connection, maxStatistics))
	all, err := statistics(lines)
	if err != nil {
		return forecast.Holds{}, err
	}
	for name, to := range map[string]*int64{"curr_items": &holds.Items, "bytes": &holds.Bytes, "limit_maxbytes": &holds.Limit} {
		if *to, err = memoryNumber(name, all); err != nil {
			return forecast.Holds{}, err
		}
	}
	if holds.Limit == 0 {
		return forecast.Holds{}, fmt.Errorf("%w: limit_maxbytes is 0", errNoStatistics)
	}
	slabs, err := statistics(lines)
	var items map[string]string
	if err == nil {
		items, err = statistics(lines)
	}
	switch {
	case errors.Is(err, errNoStatistics):
		return holds, nil
	case err != nil:
		return forecast.Holds{}, err
	}
	holds.Classes = forecast.Classes(slabs, items)
	return holds, nil
}

// statistics reads one answer.
func statistics(lines *bufio.Scanner) (map[string]string, error) {
	all := map[string]string{}
	for lines.Scan() {
		word, rest, _ := strings.Cut(lines.Text(), " ")
		name, value, _ := strings.Cut(rest, " ")
		switch {
		case lines.Text() == "END":
			return all, nil
		case word != "STAT":
			return nil, fmt.Errorf("%w: %.80q", errNoStatistics, lines.Text())
		}
		all[name] = value
	}
	return nil, cmp.Or(lines.Err(), fmt.Errorf("its statistics end too early, or have more than %d bytes", maxStatistics))
}

func memoryNumber(name string, of map[string]string) (int64, error) {
	n, err := strconv.ParseInt(of[name], 10, 64)
	if err != nil || n < 0 || n > maxMemory {
		return 0, fmt.Errorf("%w: %s: %.40q is not its number", errNoStatistics, name, of[name])
	}
	return n, nil
}
