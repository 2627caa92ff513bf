package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/test/internal/deployed"
	"example.com/memcached-operator/test/internal/stranger"
)

// fault is a failure, or a person's action. Its function returns the name of the object that was hit, or ""
// for none. Only random decides, so that a seed gives the same faults in every run.
type fault struct {
	name   string
	weight int
	do     func(ctx context.Context, random uint64) (string, error)
	// kills is set if the fault kills a member.
	kills bool
	// losesPods is set if members' pods go, although their items stay in the cluster.
	losesPods bool
}

// These faults happen when the next drainer runs.
const (
	drainerKilled  = "kill the next drainer (SIGKILL)"
	drainerDeleted = "delete the next drainer's pod"
	happened       = ": done"
)

// faults chooses faults.
type faults struct {
	*world
	random  *rand.Rand
	all     []fault
	mu      sync.Mutex
	counts  map[string]int
	retried map[string]time.Time
	size    int32
	pending sync.WaitGroup
	// stranger acts beside the operator.
	stranger *stranger.Stranger
}

func newFaults(w *world, seed uint64) *faults {
	f := &faults{world: w, random: rand.New(rand.NewPCG(seed, 1<<32)), counts: map[string]int{}, retried: map[string]time.Time{}, size: minSize + 1}
	f.stranger = stranger.New(w.kube, w.namespace, clusterName)
	f.all = []fault{
		{name: "scale", weight: 6, do: f.scaleOnce},
		{name: "scale twice at once", weight: 2, do: f.scaleTwice},
		{name: "hibernate and wake", weight: 1, do: f.hibernate, losesPods: true},
		{name: drainerKilled, weight: 4, do: f.killDrainer},
		{name: drainerDeleted, weight: 2, do: f.deleteDrainer},
		{name: "kill a member (SIGKILL)", weight: 3, do: f.killMember, kills: true},
		{name: "kill a member's memcached (SIGKILL)", weight: 2, do: f.killMemcached, kills: true},
		{name: "kill a member's container by the runtime", weight: 2, do: f.killContainer, kills: true},
		{name: "delete a member's pod", weight: 2, do: f.deleteMember, kills: true, losesPods: true},
		{name: "kill the operator (SIGKILL)", weight: 3, do: f.killOperator},
		{name: "delete the operator's pod", weight: 1, do: f.deleteOperator},
		{name: "stop a kubelet for a moment", weight: 2, do: f.stopKubelet},
		{name: "let a stranger make, relabel or delete objects", weight: 6, do: f.stranger.Act},
	}
	if w.inPods {
		f.all = slices.DeleteFunc(f.all, func(one fault) bool { return one.losesPods })
	}
	if w.routed {
		f.all = append(f.all, fault{name: "kill a router (SIGKILL)", weight: 4, do: f.killRouter}, fault{name: "delete a router's pod", weight: 2, do: f.deleteRouter})
	}
	return f
}

// round causes so many faults, or faults for that long if deeds is 0. If it spares members, applications of
// routers may not miss a key, either.
func (f *faults) round(ctx context.Context, deeds int, duration time.Duration, spare bool) error {
	// The context has no deadline: the client's rate limiter would refuse requests that it would send after it.
	ctx, cancel := context.WithCancel(ctx)
	defer f.pending.Wait()
	defer cancel()
	if deeds == 0 {
		defer time.AfterFunc(duration, cancel).Stop()
	}
	for done := 0; ctx.Err() == nil && (deeds == 0 || done < deeds); {
		one, random, rest := f.next()
		if one.kills && spare {
			continue
		}
		if one.kills {
			f.trouble.died(time.Now())
		}
		hit, err := one.do(ctx, random)
		if ctx.Err() != nil {
			return nil // the round ended during the fault
		}
		if err != nil {
			return fmt.Errorf("%s: %w", one.name, err)
		}
		f.count(one.name, hit)
		done++
		select {
		case <-ctx.Done():
		case <-time.After(rest):
		}
	}
	return nil
}

// next draws the same numbers for each fault, even if it doesn't use them.
func (f *faults) next() (fault, uint64, time.Duration) {
	total := 0
	for _, one := range f.all {
		total += one.weight
	}
	pick, random := f.random.IntN(total), f.random.Uint64()
	rest := time.Duration(200+f.random.IntN(1800)) * time.Millisecond
	for _, one := range f.all {
		if pick -= one.weight; pick < 0 {
			return one, random, rest
		}
	}
	panic("unreachable: pick is below the sum of the weights")
}

func (f *faults) count(name, hit string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if hit == "" {
		name += ": no pod is there"
	}
	f.counts[name]++
	f.note("%s %s", name, hit)
}

func (f *faults) print() {
	f.mu.Lock()
	defer f.mu.Unlock()
	fmt.Printf("chaos: %-45s %s\n", "fault", "times")
	for _, one := range f.all {
		times := f.counts[one.name]
		if one.name == drainerKilled || one.name == drainerDeleted {
			times = f.counts[one.name+happened]
		}
		fmt.Printf("chaos: %-45s %d\n", one.name, times)
	}
	fmt.Printf("chaos: %-45s %d\n", "failed drains that a person had to retry", len(f.retried))
}

// otherSize returns a possible size that isn't the present one.
func (f *faults) otherSize(random uint64) int32 {
	size := minSize + int32(random%(maxSize-minSize))
	if size >= f.size {
		size++
	}
	return size
}

func (f *faults) scaleOnce(ctx context.Context, random uint64) (string, error) {
	from := f.size
	f.size = f.otherSize(random)
	return fmt.Sprintf("%d to %d", from, f.size), f.scale(ctx, f.size)
}

func (f *faults) scaleTwice(ctx context.Context, random uint64) (string, error) {
	one, err := f.scaleOnce(ctx, random)
	if err != nil {
		return "", err
	}
	two, err := f.scaleOnce(ctx, random>>16)
	return one + ", " + two, err
}

func (f *faults) hibernate(ctx context.Context, random uint64) (string, error) {
	if err := f.scale(ctx, 0); err != nil {
		return "", err
	}
	rest := time.After(time.Duration(1000+random%3000) * time.Millisecond)
	select {
	case <-rest:
	case <-ctx.Done():
	}
	// The cluster resumes even if the round has ended.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.patience)
	defer cancel()
	return fmt.Sprintf("%d", f.size), f.scale(ctx, f.size)
}

// onNextDrainer does something to the next drainer or mover that runs, a moment after it
// has begun.
func (f *faults) onNextDrainer(ctx context.Context, name string, random uint64, do func(*corev1.Pod) error) (string, error) {
	component := []string{cachev1alpha1.ComponentDrainer, cachev1alpha1.ComponentMove}[random>>32%2]
	f.pending.Go(func() {
		for ctx.Err() == nil {
			pods, _ := f.pods(ctx, component)
			for i := range pods {
				if pids, _ := deployed.ProcessesOf(pods[i].UID, "drainer"); len(pids) == 0 {
					continue
				}
				time.Sleep(time.Duration(random%200) * time.Millisecond)
				if do(&pods[i]) == nil {
					f.count(name+happened, pods[i].Name)
				}
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	return "a " + component + " is waited for", nil
}

func (f *faults) killDrainer(ctx context.Context, random uint64) (string, error) {
	return f.onNextDrainer(ctx, drainerKilled, random, func(pod *corev1.Pod) error {
		return killed(pod, "drainer")
	})
}

func (f *faults) deleteDrainer(ctx context.Context, random uint64) (string, error) {
	return f.onNextDrainer(ctx, drainerDeleted, random, func(pod *corev1.Pod) error { return f.kube.Delete(ctx, pod) })
}

// killed kills the pod's processes of these programs, all at once.
func killed(pod *corev1.Pod, programs ...string) error {
	var all []int
	for _, program := range programs {
		pids, err := deployed.ProcessesOf(pod.UID, program)
		if err != nil {
			return err
		}
		all = append(all, pids...)
	}
	for _, pid := range all {
		if err := deployed.Signal(pid, syscall.SIGKILL); err != nil {
			return err
		}
	}
	return nil
}

// onMember does something to one of the members, which may be leaving.
func (f *faults) onMember(ctx context.Context, random uint64, do func(*corev1.Pod) error) (string, error) {
	return f.onOne(ctx, "member", random, do)
}

func (f *faults) killRouter(ctx context.Context, random uint64) (string, error) {
	return f.onOne(ctx, "router", random, func(pod *corev1.Pod) error { return killed(pod, "drainer") })
}

func (f *faults) deleteRouter(ctx context.Context, random uint64) (string, error) {
	return f.onOne(ctx, "router", random, func(pod *corev1.Pod) error { return f.kube.Delete(ctx, pod) })
}

// onOne does something to one of the pods of that component.
func (f *faults) onOne(ctx context.Context, component string, random uint64, do func(*corev1.Pod) error) (string, error) {
	pods, err := f.pods(ctx, component)
	if err != nil || len(pods) == 0 {
		return "", err
	}
	pod := &pods[random%uint64(len(pods))]
	return pod.Name, client.IgnoreNotFound(do(pod))
}

func (f *faults) killMember(ctx context.Context, random uint64) (string, error) {
	return f.onMember(ctx, random, func(pod *corev1.Pod) error { return killed(pod, "drainer", "memcached") })
}

func (f *faults) killMemcached(ctx context.Context, random uint64) (string, error) {
	return f.onMember(ctx, random, func(pod *corev1.Pod) error { return killed(pod, "memcached") })
}

func (f *faults) deleteMember(ctx context.Context, random uint64) (string, error) {
	return f.onMember(ctx, random, func(pod *corev1.Pod) error { return f.kube.Delete(ctx, pod) })
}

func (f *faults) killContainer(ctx context.Context, random uint64) (string, error) {
	return f.onMember(ctx, random, func(pod *corev1.Pod) error {
		if len(pod.Status.ContainerStatuses) == 0 {
			return nil
		}
		_, id, _ := strings.Cut(pod.Status.ContainerStatuses[0].ContainerID, "://")
		socket := "/run/memcached-operator-cluster/" + pod.Spec.NodeName + "/containerd.sock"
		// The task may have ended by itself.
		_ = exec.CommandContext(ctx, "ctr", "--address", socket, "--namespace", "k8s.io", "tasks", "kill", "--signal", "SIGKILL", id).Run()
		return nil
	})
}

// onOperator does something to the operator.
func (f *faults) onOperator(ctx context.Context, do func(*corev1.Pod) error) (string, error) {
	var pods corev1.PodList
	if err := f.kube.List(ctx, &pods, client.InNamespace(operatorNamespace)); err != nil || len(pods.Items) == 0 {
		return "", err
	}
	pod := &pods.Items[0]
	return pod.Name, client.IgnoreNotFound(do(pod))
}

func (f *faults) killOperator(ctx context.Context, _ uint64) (string, error) {
	return f.onOperator(ctx, func(pod *corev1.Pod) error { return killed(pod, "manager") })
}

func (f *faults) deleteOperator(ctx context.Context, _ uint64) (string, error) {
	return f.onOperator(ctx, func(pod *corev1.Pod) error { return f.kube.Delete(ctx, pod) })
}

// stopKubelet stops a member's kubelet for a moment.
func (f *faults) stopKubelet(ctx context.Context, random uint64) (string, error) {
	stopped := ""
	_, err := f.onMember(ctx, random, func(pod *corev1.Pod) error {
		if pod.Spec.NodeName == "" {
			return nil
		}
		pid, err := deployed.Kubelet(pod.Spec.NodeName)
		if err != nil {
			return err
		}
		if err := deployed.Signal(pid, syscall.SIGSTOP); err != nil {
			return err
		}
		stopped = pod.Spec.NodeName
		f.pending.Go(func() {
			time.Sleep(time.Duration(500+random%3000) * time.Millisecond)
			_ = deployed.Signal(pid, syscall.SIGCONT)
		})
		return nil
	})
	return stopped, err
}

// retryFailed acts as a person does about a failed drain: it retries, and skips if the retry fails, too, as
// for a member that left before it ever answered. check would find that a value of such a volume is missing.
func (f *faults) retryFailed(ctx context.Context, drains []cachev1alpha1.DrainStatus) {
	for _, d := range drains {
		if d.Phase != cachev1alpha1.DrainFailed {
			continue
		}
		claim := &corev1.PersistentVolumeClaim{}
		if err := f.kube.Get(ctx, client.ObjectKey{Namespace: f.namespace, Name: d.Claim}, claim); err != nil ||
			claim.Annotations[cachev1alpha1.AnnotationDrain] != "" {
			continue
		}
		decision := cachev1alpha1.DrainRetry
		if at, retried := f.retried[string(claim.UID)]; retried {
			if d.Since == nil || !d.Since.After(at) {
				continue // status tells of the failure that was retried
			}
			decision = cachev1alpha1.DrainSkip
		}
		patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil,
			`{"metadata":{"annotations":{%q:%q}}}`, cachev1alpha1.AnnotationDrain, decision))
		if f.kube.Patch(ctx, claim, patch) == nil {
			f.retried[string(claim.UID)] = time.Now()
			fmt.Printf("chaos: the drain of %s failed (%s): %s: %s\n", d.Claim, decision, d.Reason, d.Message)
		}
	}
}
