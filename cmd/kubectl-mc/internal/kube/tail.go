package kube

import (
	"bufio"
	"context"
	"io"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

const (
	// tail is how many lines are read of the end of a log, and mostTail bounds their bytes.
	tail, mostTail = 20, 32 << 10
	// fresh is how old a member's lines may be: a member tells every two seconds how far a save or a load is.
	fresh int64 = 6
	// hearsWithin bounds the reading of one log, because a node may be dead.
	hearsWithin = 5 * time.Second
	atOnce      = 8
)

// Ends reads the ends of the logs of members and drainers, in the order of the pods. A log that can't be read
// is missing; why is an error about one of them.
func (s *Session) Ends(ctx context.Context, pods []corev1.Pod) (ends [][]string, why error) {
	ends = make([][]string, len(pods))
	errs := make([]error, len(pods))
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i := range pods {
		if pods[i].Status.Phase != corev1.PodPending {
			group.Go(func() error {
				ends[i], errs[i] = s.end(ctx, &pods[i])
				return nil
			})
		}
	}
	_ = group.Wait() // each has its own error
	for _, err := range errs {
		if err != nil {
			return ends, err
		}
	}
	return ends, nil
}

func (s *Session) end(ctx context.Context, pod *corev1.Pod) (lines []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, hearsWithin)
	defer cancel()
	options := &corev1.PodLogOptions{Container: "drainer", TailLines: ptr.To[int64](tail), LimitBytes: ptr.To[int64](mostTail)}
	if pod.Labels[cachev1alpha1.LabelComponent] == cachev1alpha1.ComponentMember {
		options.Container, options.SinceSeconds = "memcached", ptr.To(fresh)
	}
	stream, err := s.Clients.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, options).Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	in := bufio.NewScanner(io.LimitReader(stream, mostTail))
	for in.Scan() {
		lines = append(lines, in.Text())
	}
	return lines, in.Err()
}
