package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/test/internal/app"
	"example.com/memcached-operator/test/internal/deployed"
	"example.com/memcached-operator/test/tier"
)

// A member that crashes around its scale-down is drained all the same. If it is killed before it can save, its
// items are on the volume only in mode Mapped. One of these tests stops the kubelet, and runs by itself.

func TestAMemberThatWasKilledIsDrainedAllTheSame(t *testing.T) {
	tier.Second(t, "TestJourneyOfMappedMembers")
	f, objects := filled(t, mapped(3))

	resume := f.stopKubelet(f.pod(2))
	f.crash(f.pod(2))
	f.scale(2)
	f.leaves(2)
	resume()

	f.expectDrained(2, objects)
	f.expectReceipt(true)
}

func TestAMemberThatIsKilledWhileItSavesIsDrained(t *testing.T) {
	tier.Second(t, "TestJourneyOfMappedMembers")
	t.Parallel()
	f, objects := filled(t, mapped(3))
	pod := f.pod(2)
	// memcached never saves, because it is stopped before the signal.
	f.signal(syscall.SIGSTOP, f.processOf(pod, "memcached"))

	f.scale(2)
	f.leaves(2)
	f.crash(pod)

	f.expectDrained(2, objects)
	f.expectReceipt(true)
}

func TestAMemberThatIsKilledRightAfterItSavedIsDrained(t *testing.T) {
	tier.Second(t, "TestJourneyOfMappedMembers")
	t.Parallel()
	f, objects := filled(t, mapped(3))
	pod, meta := f.pod(2), filepath.Join(f.volumeOf(f.claim(2)), contract.WarmFile+".meta")

	f.scale(2)
	f.eventually("memcached has saved", func() bool {
		_, err := os.Stat(meta)
		return err == nil || f.pod(2) == nil
	})
	f.signal(syscall.SIGKILL, append(f.processesOf(pod, "drainer"), f.processesOf(pod, "memcached")...)...)

	f.expectDrained(2, objects)
	f.expectReceipt(false)
}

func TestAMemberWhoseMemcachedIsKilledRightBeforeIsDrained(t *testing.T) {
	tier.Second(t, "TestJourneyOfMappedMembers")
	t.Parallel()
	f, objects := filled(t, persistent(3))

	f.signal(syscall.SIGKILL, f.processOf(f.pod(2), "memcached"))
	f.scale(2) // its container is about to start again, with the file and a generation

	f.expectDrained(2, objects)
	f.expectAnyReceipt()
}

func TestAMemberThatIsOutOfMemoryIsDrained(t *testing.T) {
	tier.Second(t, "TestJourneyOfMappedMembers")
	t.Parallel()
	spec := mapped(3) // the kernel may kill the supervisor, too
	spec.Resources.Limits = limit320Mi
	f, objects := filled(t, spec)

	f.exhaust(f.pod(2))
	f.scale(2)

	f.expectDrained(2, objects)
	f.expectAnyReceipt()
}

func TestASurvivorThatIsKilledDuringTheDrainLosesNothing(t *testing.T) {
	tier.Second(t, "TestJourneyOfClientsThatFollow")
	t.Parallel()
	f, objects := filled(t, persistent(3))

	f.scale(2)
	f.eventually("there is a drainer", func() bool { return len(f.drainers()) > 0 || f.claim(2) == nil })
	f.crash(f.pod(0))

	f.expectDrained(2, objects)
	f.expectAnyReceipt()
}

// The member is killed by a person, or by the kernel for its memory. Its files in memory outlive the container.
func TestAMemberThatCrashesComesBackWarm(t *testing.T) {
	tier.Second(t, "TestJourneyOfMappedMembers")
	t.Parallel()
	spec := persistent(3)
	spec.Resources.Limits = limit320Mi
	f, objects := filled(t, spec)

	f.crash(f.pod(1))
	f.exhaust(f.pod(2))
	f.restarted(1)
	f.restarted(2)
	// The supervisor replays the old file after live traffic.
	f.eventually("every object is there again", func() bool {
		report, err := f.app(3).Check(f.ctx, objects)
		return err == nil && report.Found == int64(len(objects))
	})
	f.expectAll(3, objects)
}

// restarted waits until the member's container has restarted, and is ready.
func (f *fixture) restarted(ordinal int) {
	f.Helper()
	f.eventually(fmt.Sprintf("member %d was started again", ordinal), func() bool {
		pod := f.pod(ordinal)
		return pod != nil && len(pod.Status.ContainerStatuses) > 0 && pod.Status.ContainerStatuses[0].RestartCount > 0 && ready(pod)
	})
}

// replaced waits until the member has another pod, which is ready.
func (f *fixture) replaced(before *corev1.Pod) {
	f.Helper()
	pod := &corev1.Pod{}
	f.eventually("the member is back", func() bool {
		err := kube.Get(f.ctx, client.ObjectKeyFromObject(before), pod)
		f.must(client.IgnoreNotFound(err))
		return err == nil && pod.UID != before.UID && ready(pod)
	})
}

var limit320Mi = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("320Mi")}

// filled makes a cluster that has every object.
func filled(t *testing.T, spec cachev1alpha1.MemcachedSpec) (*fixture, []app.Object) {
	t.Helper()
	f := setup(t, spec)
	objects := f.objects()
	f.fill(int(*spec.Size), objects)
	return f, objects
}

// mapped is the spec of a cluster whose items are on the volume at any time.
func mapped(size int32) cachev1alpha1.MemcachedSpec {
	spec := persistent(size)
	spec.Storage.Mode = cachev1alpha1.StorageMapped
	return spec
}

// leaves waits until the StatefulSet has deleted the member's pod.
func (f *fixture) leaves(ordinal int) {
	f.Helper()
	f.eventually(fmt.Sprintf("the StatefulSet let pod %d go", ordinal), func() bool {
		pod := f.pod(ordinal)
		return pod == nil || pod.DeletionTimestamp != nil
	})
}

// left waits until the member's pod is gone: then its save is on the volume.
func (f *fixture) left(ordinal int) {
	f.Helper()
	f.eventually(fmt.Sprintf("pod %d is gone", ordinal), func() bool { return f.pod(ordinal) == nil })
}

// expectDrained waits until the departed member is drained, and until every object is there: a survivor that
// crashed replays its objects after live traffic.
func (f *fixture) expectDrained(left int, objects []app.Object) {
	f.Helper()
	f.eventually(fmt.Sprintf("claim %d is gone", left), func() bool { return f.claim(left) == nil })
	f.settled(int32(left))
	f.expectAllSoon(left, objects)
}

func (f *fixture) expectAllSoon(size int, objects []app.Object) {
	f.Helper()
	f.eventually("every object is there", func() bool {
		report, err := f.app(size).Check(f.ctx, objects)
		return err == nil && report.Found == int64(len(objects))
	})
	f.expectAll(size, objects)
}

// drainers returns the pods that drain a volume.
func (f *fixture) drainers() []corev1.Pod {
	f.Helper()
	var found []corev1.Pod
	for _, pod := range f.pods() {
		if pod.Labels["app.kubernetes.io/component"] == "drainer" {
			found = append(found, pod)
		}
	}
	return found
}

// exhaust fills the memory of the pod's container until the kernel's OOM killer
// has ended its memcached.
func (f *fixture) exhaust(pod *corev1.Pod) {
	f.Helper()
	pid := f.processOf(pod, "memcached")
	group := f.memoryGroup(pid)
	before := f.oomKills(group)
	// With this score, the kernel kills memcached before the other processes of the group.
	f.must(os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte("1000"), 0))
	hog := exec.CommandContext(f.ctx, "sh", "-c", `echo $$ >"$0/cgroup.procs" && head -c 1G /dev/zero | tail -c 1G`, group)
	hog.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var output bytes.Buffer
	hog.Stderr = &output
	f.must(hog.Start())
	defer func() {
		_ = syscall.Kill(-hog.Process.Pid, syscall.SIGKILL)
		_ = hog.Wait()
	}()
	f.eventually("memcached was killed", func() bool { return !deployed.Alive(pid) })
	if after := f.oomKills(group); after <= before && after >= 0 {
		f.Fatalf("memcached ended, but not by the OOM killer, which has killed %d; %s", after, output.String())
	}
}

// memoryGroup returns the directory of the control group, of version 1 or 2, that limits the process's memory.
func (f *fixture) memoryGroup(pid int) string {
	f.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	f.must(err)
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		for _, root := range map[string][]string{"memory": {"/sys/fs/cgroup/memory"}, "": {"/sys/fs/cgroup"}}[fields[1]] {
			group := filepath.Join(root, fields[2])
			if _, err := os.Stat(filepath.Join(group, "cgroup.procs")); err == nil {
				return group
			}
		}
	}
	f.Fatalf("process %d is in no memory group: %s", pid, text)
	return ""
}

// oomKills returns how many processes of the group the kernel has killed; -1 if the group is gone.
func (f *fixture) oomKills(group string) int {
	f.Helper()
	for _, name := range []string{"memory.oom_control", "memory.events"} {
		text, err := os.ReadFile(filepath.Join(group, name))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			var kills int
			if n, _ := fmt.Sscanf(line, "oom_kill %d", &kills); n == 1 {
				return kills
			}
		}
	}
	return -1
}
