package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/test/tier"
)

// Every member tells the list by ElastiCache's protocol, also in the item for clients that don't know the
// command. The kubelet tells members of each scaling.
func TestDiscoveryFollowsEachScaling(t *testing.T) {
	tier.Second(t, "TestJourneyOfClientsThatFollow")
	t.Parallel()
	spec := persistent(2)
	spec.Discovery = &cachev1alpha1.DiscoverySpec{}
	f := setup(t, spec)
	objects := small(2000)
	f.fill(2, objects)
	for _, size := range []int32{3, 2} {
		f.scale(size)
		began := time.Now()
		f.eventually(fmt.Sprintf("each member says that there are %d", size), func() bool {
			for ordinal := range int(size) {
				if n := f.discovered(ordinal); n != int(size) {
					return false
				}
			}
			return true
		})
		t.Logf("each of %d members says so %s after the scaling", size, time.Since(began).Round(100*time.Millisecond))
		f.settled(size)
		f.expectAll(int(size), objects)
	}
	// A paused operator doesn't change the annotation.
	f.must(kube.Patch(f.ctx, f.memcached(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"paused":true}}`))))
	f.eventually("the operator has seen that", func() bool {
		c := meta.FindStatusCondition(f.memcached().Status.Conditions, cachev1alpha1.ConditionProgressing)
		return c != nil && c.Reason == cachev1alpha1.ReasonPaused
	})
	pod := f.pod(0)
	list, err := contract.ParseList(pod.Annotations[cachev1alpha1.AnnotationList])
	f.must(err)
	// The test writes each list right after the one before was read. A kubelet that isn't woken by the change
	// of the pod would read it only after its whole interval.
	var took []time.Duration
	for range 5 {
		list.Version++
		f.annotatePod(pod, cachev1alpha1.AnnotationList, list.String())
		began := time.Now()
		f.eventually("the member has the next list", func() bool {
			lines, err := f.say(net.JoinHostPort(pod.Status.PodIP, "11212"), "config get cluster")
			return err == nil && len(lines) > 1 && lines[1] == fmt.Sprint(list.Version)
		})
		took = append(took, time.Since(began))
	}
	t.Logf("lists reached the member after %v", took)
}

func (f *fixture) annotatePod(pod *corev1.Pod, name, value string) {
	f.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{name: value}}})
	f.must(err)
	f.must(kube.Patch(f.ctx, pod, client.RawPatch(types.MergePatchType, patch)))
}

// discovered returns how many members a member tells of, in both ways; 0 if it doesn't answer yet.
func (f *fixture) discovered(ordinal int) int {
	f.Helper()
	pod := f.pod(ordinal)
	if pod == nil || pod.Status.PodIP == "" {
		return 0
	}
	nodes := 0
	for _, ask := range [][2]string{{"11212", "config get cluster"}, {"11211", "get " + contract.ListKey}} {
		lines, err := f.say(net.JoinHostPort(pod.Status.PodIP, ask[0]), ask[1])
		if err != nil || len(lines) < 3 {
			return 0
		}
		n := len(strings.Fields(lines[2]))
		if nodes > 0 && n != nodes {
			return 0
		}
		for i, node := range strings.Fields(lines[2]) {
			if !strings.HasPrefix(node, fmt.Sprintf("%s-%d.", f.name, i)) {
				f.Fatalf("node %d is %s", i, node)
			}
		}
		nodes = n
	}
	return nodes
}

// say sends a command, and returns the lines of the answer before END.
func (f *fixture) say(address, command string) (lines []string, err error) {
	conn, err := dialSoon(f.ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second)) // a pod that has just gone doesn't answer: then the test asks again
	if _, err := fmt.Fprintf(conn, "%s\r\n", command); err != nil {
		return nil, err
	}
	for s := bufio.NewScanner(conn); s.Scan(); {
		line := strings.TrimRight(s.Text(), "\r")
		if line == "END" {
			return lines, nil
		}
		lines = append(lines, line)
	}
	return nil, fmt.Errorf("%s ended without END", address)
}
