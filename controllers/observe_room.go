package controllers

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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/controllers/internal/sampler"
)

// Memory of a member, in bytes.
type Memory struct{ Used, Limit int64 }

// MemoryReader asks the member at host:port.
type MemoryReader func(ctx context.Context, address string) (Memory, error)

const (
	// roomTimeout bounds the question to a member.
	roomTimeout = 500 * time.Millisecond
	// roomPatience is how long a scale-down waits for its members' answers.
	roomPatience = 2 * time.Second
	// roomInterval is how often the members are asked again while a scale-down waits
	// for room.
	roomInterval = 10 * time.Second
	// roomTargets bounds how many members are asked: of scale-downs with any more,
	// nobody can tell whether the items fit.
	roomTargets = 8192
)

// memoryTarget is who is asked.
type memoryTarget struct {
	address string
	uid     types.UID
}

type roomSampler = sampler.Sampler[memoryTarget, Memory]

// newRoomSampler asks members beside the reconciles.
func newRoomSampler(read MemoryReader, changed func(client.ObjectKey)) *roomSampler {
	return sampler.New(sampler.Options[memoryTarget, Memory]{
		Ask:     func(ctx context.Context, pod memoryTarget) (Memory, error) { return read(ctx, pod.address) },
		Changed: changed,
		Timeout: roomTimeout, Interval: roomInterval, Together: true,
		Workers: 32, PerCluster: 16, Targets: roomTargets,
		Clock: clock.RealClock{},
	})
}

// observeRoom has what is known of the members, when some of them are about to leave:
// what these hold, and what those that stay have room for.
func (r *MemcachedReconciler) observeRoom(o *observed) {
	key := client.ObjectKeyFromObject(o.cluster)
	in := o.input()
	switch {
	case r.room == nil:
	case !in.Shrinks() || paused(o.cluster):
		r.room.Want(key)
	case build.Secured(o.cluster):
		o.room = &plan.Room{Unknown: "the members ask for TLS or a login, and the operator doesn't read their Secrets"}
	default:
		o.room = r.roomOf(key, o)
	}
}

func (r *MemcachedReconciler) roomOf(key client.ObjectKey, o *observed) *plan.Room {
	room := &plan.Room{}
	var pods []memoryTarget
	members := map[memoryTarget]*corev1.Pod{}
	for i := range o.pods {
		pod := &o.pods[i]
		if ordinal, ok := build.PodOrdinal(o.cluster.Name, pod.Name); !ok || ordinal >= *o.statefulSet.Spec.Replicas {
			continue
		}
		if pod.Status.PodIP == "" || pod.Status.Phase != corev1.PodRunning {
			room.Unknown = fmt.Sprintf("pod %s does not say: it doesn't run", pod.Name)
			continue
		}
		address := net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(int(o.cluster.Spec.ContainerPort)))
		target := memoryTarget{address, pod.UID}
		pods = append(pods, target)
		members[target] = pod
	}
	now := r.Clock.Now()
	for target, sample := range r.room.Want(key, pods...) {
		pod := members[target]
		ordinal, _ := build.PodOrdinal(o.cluster.Name, pod.Name)
		switch left := sample.Since.Add(roomPatience).Sub(now); {
		case !sample.Known && left > 0:
			room.Pending = true
			o.waits.atMost(left)
		case !sample.Known:
			room.Unknown = fmt.Sprintf("pod %s does not say: no answer within %s", pod.Name, roomPatience)
		case sample.Err != "":
			room.Unknown = fmt.Sprintf("pod %s does not say: %s", pod.Name, sample.Err)
		case ordinal >= *o.cluster.Spec.Size:
			room.Leaving += sample.Value.Used
		default:
			room.Free += max(0, sample.Value.Limit-sample.Value.Used)
		}
	}
	room.Pending = room.Pending && room.Unknown == ""
	return room
}

// Bounds of a member's answer: whatever listens at its address may have given it.
const (
	maxStatistics = 64 << 10
	maxMemory     = 1 << 50
)

// MemoryFromStats asks the member itself: it takes no credentials, only that the
// operator may reach it.
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

// readMemory reads memcached's statistics.
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
			return Memory{}, fmt.Errorf("no statistics of memcached: %.80q", lines.Text())
		}
		if err != nil {
			return Memory{}, fmt.Errorf("no statistics of memcached: %w", err)
		}
	}
	return Memory{}, cmp.Or(lines.Err(), fmt.Errorf("its statistics end too early, or have more than %d bytes", maxStatistics))
}

func memoryNumber(word string) (int64, error) {
	n, err := strconv.ParseInt(word, 10, 64)
	if err != nil || n < 0 || n > maxMemory {
		return 0, fmt.Errorf("%.40q is no number of bytes", word)
	}
	return n, nil
}
