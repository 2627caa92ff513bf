package e2e

import (
	"fmt"
	"slices"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"example.com/memcached-operator/test/internal/deployed"
)

// stopKubelet stops the kubelet of the pod's node until resume is called, at the end of the test at the latest.
func (f *fixture) stopKubelet(pod *corev1.Pod) (resume func()) {
	f.Helper()
	pid, err := deployed.Kubelet(pod.Spec.NodeName)
	f.must(err)
	f.must(syscall.Kill(pid, syscall.SIGSTOP))
	resume = func() { _ = syscall.Kill(pid, syscall.SIGCONT) }
	f.Cleanup(resume)
	return resume
}

// crash kills the member's processes with SIGKILL: the supervisor and memcached at once, so that neither can
// save.
func (f *fixture) crash(pod *corev1.Pod) {
	f.Helper()
	pids := f.processesOf(pod, "memcached")
	if len(pids) == 0 {
		f.Fatalf("found no memcached process of pod %s", pod.Name)
	}
	f.signal(syscall.SIGKILL, append(f.processesOf(pod, "drainer"), pids...)...)
	f.eventually("the processes are gone", func() bool {
		left := f.processesOf(pod, "memcached") // or the processes of the next container
		return !slices.ContainsFunc(pids, func(pid int) bool { return slices.Contains(left, pid) })
	})
}

func (f *fixture) signal(sig syscall.Signal, pids ...int) {
	f.Helper()
	for _, pid := range pids {
		f.must(deployed.Signal(pid, sig))
	}
}

// processOf finds the pod's only process of that program.
func (f *fixture) processOf(pod *corev1.Pod, program string) int {
	f.Helper()
	pids := f.processesOf(pod, program)
	if len(pids) != 1 {
		f.Fatalf("pod %s has %d processes %s, want one", pod.Name, len(pids), program)
	}
	return pids[0]
}

func (f *fixture) processesOf(pod *corev1.Pod, program string) []int {
	f.Helper()
	pids, err := deployed.ProcessesOf(pod.UID, program)
	f.must(err)
	return pids
}

// volumeOf returns the folder on this machine that is the claim's volume.
func (f *fixture) volumeOf(claim *corev1.PersistentVolumeClaim) string {
	f.Helper()
	var volume corev1.PersistentVolume
	f.must(kube.Get(f.ctx, client.ObjectKey{Name: claim.Spec.VolumeName}, &volume))
	if volume.Spec.Local == nil {
		f.Fatal(fmt.Errorf("volume %s is not a local one", volume.Name))
	}
	return volume.Spec.Local.Path
}
