package controllers

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/plan"
)

// Memory of a member, in bytes.
type Memory struct{ Used, Limit int64 }

// MemoryReader asks the member at host:port.
type MemoryReader func(ctx context.Context, address string) (Memory, error)

const (
	// roomTimeout bounds what a scale-down waits for its members' answers.
	roomTimeout = 500 * time.Millisecond
	// roomInterval is how often a scale-down that waits for room asks again.
	roomInterval = 10 * time.Second
	// roomQuestions are how many members are asked at once.
	roomQuestions = 16
)

// observeRoom asks the members, when some of them are about to leave, what they
// hold and what they have room for.
func (r *MemcachedReconciler) observeRoom(ctx context.Context, o *observed) {
	if in := o.input(); r.Memory == nil || !in.Shrinks() {
		return
	}
	if build.Secured(o.cluster) {
		o.room = &plan.Room{Unknown: "the members ask for TLS or a login, and the operator doesn't read their Secrets"}
		return
	}
	ctx, cancel := context.WithTimeout(ctx, roomTimeout)
	defer cancel()
	o.room = &plan.Room{}
	var mu sync.Mutex
	var asked sync.WaitGroup
	slots := make(chan struct{}, roomQuestions)
	for i := range o.pods {
		pod := &o.pods[i]
		ordinal, ok := build.PodOrdinal(o.cluster.Name, pod.Name)
		if !ok || ordinal >= *o.statefulSet.Spec.Replicas {
			continue
		}
		asked.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			memory, err := r.memoryOf(ctx, pod, o.cluster.Spec.ContainerPort)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				o.room.Unknown = fmt.Sprintf("pod %s does not say: %v", pod.Name, err)
			case ordinal >= *o.cluster.Spec.Size:
				o.room.Leaving += memory.Used
			default:
				o.room.Free += max(0, memory.Limit-memory.Used)
			}
		})
	}
	asked.Wait()
}

func (r *MemcachedReconciler) memoryOf(ctx context.Context, pod *corev1.Pod, port int32) (Memory, error) {
	if pod.Status.PodIP == "" || pod.Status.Phase != corev1.PodRunning {
		return Memory{}, fmt.Errorf("it doesn't run")
	}
	return r.Memory(ctx, net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(int(port))))
}

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
	var memory Memory
	lines := bufio.NewScanner(connection)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		switch {
		case len(words) == 1 && words[0] == "END" && memory.Limit > 0:
			return memory, nil
		case len(words) == 3 && words[0] == "STAT" && words[1] == "bytes":
			memory.Used, err = strconv.ParseInt(words[2], 10, 64)
		case len(words) == 3 && words[0] == "STAT" && words[1] == "limit_maxbytes":
			memory.Limit, err = strconv.ParseInt(words[2], 10, 64)
		case len(words) == 0 || words[0] != "STAT":
			return Memory{}, fmt.Errorf("no statistics of memcached: %.80q", lines.Text())
		}
		if err != nil {
			return Memory{}, fmt.Errorf("no statistics of memcached: %w", err)
		}
	}
	if err := lines.Err(); err != nil {
		return Memory{}, err
	}
	return Memory{}, fmt.Errorf("its statistics end too early")
}
