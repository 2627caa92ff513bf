package player

import (
	"context"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/drainer/contract"
)

// lookInterval is how soon the player looks again at something that it doesn't watch.
const lookInterval = 25 * time.Millisecond

func (p *Player) pod(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var pod corev1.Pod
	if err := p.client.Get(ctx, req.NamespacedName, &pod); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	switch {
	case pod.DeletionTimestamp != nil:
		return p.terminate(ctx, &pod, ended)
	case ended:
		return ctrl.Result{}, nil
	case pod.Status.Phase == corev1.PodPending && p.affliction(&pod) != nil:
		return p.afflict(ctx, &pod)
	case pod.Spec.NodeName == "":
		return p.schedule(ctx, &pod)
	case pod.Status.Phase == corev1.PodPending && p.holds(&pod):
		return ctrl.Result{RequeueAfter: lookInterval}, nil
	case pod.Status.Phase == corev1.PodPending:
		return ctrl.Result{}, p.run(ctx, &pod)
	case isDrainer(&pod) && drainerEnded(&pod):
		return ctrl.Result{}, nil // other containers of the pod run on
	case isDrainer(&pod):
		return p.drain(ctx, &pod)
	case isReady(&pod) == contract.StepsAside(pod.Annotations[cachev1alpha1.AnnotationStepOut]):
		return p.warmUp(ctx, &pod)
	}
	return ctrl.Result{}, nil
}

// schedule binds the pod to the node once its volumes can be mounted.
func (p *Player) schedule(ctx context.Context, pod *corev1.Pod) (ctrl.Result, error) {
	for _, name := range claims(pod) {
		for _, reader := range []client.Reader{p.client, p.live} { // what the cache says costs no request
			var claim corev1.PersistentVolumeClaim
			err := reader.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: name}, &claim)
			if client.IgnoreNotFound(err) != nil {
				return ctrl.Result{}, err
			}
			if err != nil || claim.DeletionTimestamp != nil {
				return ctrl.Result{RequeueAfter: lookInterval}, nil
			}
			if claim.Status.Phase != corev1.ClaimBound {
				return ctrl.Result{RequeueAfter: lookInterval}, p.selectNode(ctx, &claim)
			}
			if slices.Contains(claim.Spec.AccessModes, corev1.ReadWriteOncePod) {
				if used, err := p.isUsed(ctx, pod, name); err != nil || used {
					return ctrl.Result{RequeueAfter: lookInterval}, err
				}
			}
		}
		if err := p.noteOtherUsers(ctx, pod, name); err != nil {
			return ctrl.Result{}, err
		}
	}
	binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: p.nodeFor(pod.Namespace)}}
	return ctrl.Result{}, client.IgnoreNotFound(p.client.SubResource("binding").Create(ctx, pod, binding))
}

// noteOtherUsers writes down pods that run on the same volume.
func (p *Player) noteOtherUsers(ctx context.Context, pod *corev1.Pod, claim string) error {
	users, err := p.usersBeside(ctx, pod, claim)
	for _, other := range users {
		p.violated(pod.Namespace, "pod %s starts on claim %s beside pod %s", pod.Name, claim, other)
	}
	return err
}

// isUsed tells whether another pod runs on the claim, which is for one pod at a time (ReadWriteOncePod).
func (p *Player) isUsed(ctx context.Context, pod *corev1.Pod, claim string) (bool, error) {
	users, err := p.usersBeside(ctx, pod, claim)
	return len(users) > 0, err
}

// usersBeside are the names of other pods that run on the claim.
func (p *Player) usersBeside(ctx context.Context, pod *corev1.Pod, claim string) (users []string, err error) {
	var pods corev1.PodList
	if err := p.live.List(ctx, &pods, client.InNamespace(pod.Namespace)); err != nil {
		return nil, err
	}
	for i := range pods.Items {
		other := &pods.Items[i]
		if other.UID != pod.UID && other.Spec.NodeName != "" && other.Status.Phase != corev1.PodSucceeded &&
			other.Status.Phase != corev1.PodFailed && slices.Contains(claims(other), claim) {
			users = append(users, other.Name)
		}
	}
	return users, nil
}

func claims(pod *corev1.Pod) []string {
	var names []string
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			names = append(names, v.PersistentVolumeClaim.ClaimName)
		}
	}
	return names
}

// warmUp makes a member ready that runs, when it may get ready, or not ready if it is told so.
func (p *Player) warmUp(ctx context.Context, pod *corev1.Pod) (ctrl.Result, error) {
	before, ready := pod.DeepCopy(), corev1.ConditionTrue
	switch {
	case isReady(pod):
		ready = corev1.ConditionFalse
	case p.keepsUnready(pod):
		return ctrl.Result{RequeueAfter: lookInterval}, nil
	}
	setReady(pod, ready)
	return ctrl.Result{}, client.IgnoreNotFound(p.client.Status().Patch(ctx, pod, client.MergeFrom(before)))
}

func (p *Player) holds(pod *corev1.Pod) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if isDrainer(pod) {
		return p.stage(pod.Namespace).heldDrainers
	}
	return p.stage(pod.Namespace).held
}

// affliction returns the member's; nil for none.
func (p *Player) affliction(pod *corev1.Pod) func(*corev1.PodStatus) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if isDrainer(pod) {
		return nil
	}
	return p.stage(pod.Namespace).afflicted
}

func (p *Player) afflict(ctx context.Context, pod *corev1.Pod) (ctrl.Result, error) {
	before := pod.DeepCopy()
	if how := p.affliction(pod); how != nil {
		how(&pod.Status)
	}
	if equality.Semantic.DeepEqual(before.Status, pod.Status) {
		return ctrl.Result{RequeueAfter: lookInterval}, nil
	}
	err := p.client.Status().Patch(ctx, pod, client.MergeFrom(before))
	return ctrl.Result{RequeueAfter: lookInterval}, client.IgnoreNotFound(err)
}

func (p *Player) keepsUnready(pod *corev1.Pod) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !isDrainer(pod) && p.stage(pod.Namespace).unready
}

func isReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func setReady(pod *corev1.Pod, status corev1.ConditionStatus) {
	for _, kind := range []corev1.PodConditionType{corev1.ContainersReady, corev1.PodReady} {
		setCondition(pod, corev1.PodCondition{Type: kind, Status: status, LastTransitionTime: metav1.Now()})
	}
}

// run makes a scheduled pod run. A member is ready at once if it may get ready.
func (p *Player) run(ctx context.Context, pod *corev1.Pod) error {
	before := pod.DeepCopy()
	pod.Status.Phase = corev1.PodRunning
	pod.Status.StartTime = ptr.To(metav1.Now())
	address := p.address()
	pod.Status.PodIP, pod.Status.PodIPs = address, []corev1.PodIP{{IP: address}}
	for _, kind := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized} {
		setCondition(pod, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()})
	}
	setReady(pod, corev1.ConditionTrue)
	if p.keepsUnready(pod) {
		setReady(pod, corev1.ConditionFalse)
	}
	pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses = nil, nil
	for _, c := range pod.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, Ready: true, Started: ptr.To(true),
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
		})
	}
	return client.IgnoreNotFound(p.client.Status().Patch(ctx, pod, client.MergeFrom(before)))
}

// address returns one that no other pod has had.
func (p *Player) address() string {
	n := p.addresses.Add(1)
	return netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}).String()
}

// endDrainer ends the pod's drainer. Injected containers run on.
func (p *Player) endDrainer(ctx context.Context, pod *corev1.Pod, exitCode int32, message string) error {
	if len(pod.Spec.Containers) == 1 {
		return p.end(ctx, pod, exitCode, message)
	}
	before := pod.DeepCopy()
	for i := range pod.Status.ContainerStatuses {
		if c := &pod.Status.ContainerStatuses[i]; c.Name == drainer {
			c.Ready, c.Started = false, ptr.To(false)
			c.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				ExitCode: exitCode, Message: message, StartedAt: ptr.Deref(pod.Status.StartTime, metav1.Now()), FinishedAt: metav1.Now(),
			}}
		}
	}
	setReady(pod, corev1.ConditionFalse)
	return client.IgnoreNotFound(p.client.Status().Patch(ctx, pod, client.MergeFrom(before)))
}

func drainerEnded(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		return c.Name == drainer && c.State.Terminated != nil
	})
}

// drainer is the name of the container that a script plays.
const drainer = "drainer"

// end ends the pod's containers.
func (p *Player) end(ctx context.Context, pod *corev1.Pod, exitCode int32, message string) error {
	before := pod.DeepCopy()
	started := ptr.Deref(pod.Status.StartTime, metav1.Now())
	pod.Status.Phase = corev1.PodFailed
	if exitCode == 0 {
		pod.Status.Phase = corev1.PodSucceeded
	}
	setCondition(pod, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "PodCompleted", LastTransitionTime: metav1.Now()})
	pod.Status.ContainerStatuses = nil
	for _, c := range pod.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, Started: ptr.To(false),
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				ExitCode: exitCode, Message: message, StartedAt: started, FinishedAt: metav1.Now(),
			}},
		})
	}
	if err := p.client.Status().Patch(ctx, pod, client.MergeFrom(before)); err != nil {
		return client.IgnoreNotFound(err)
	}
	return nil
}

// terminate ends the pod's containers, then lets the pod go.
func (p *Player) terminate(ctx context.Context, pod *corev1.Pod, ended bool) (ctrl.Result, error) {
	if !isDrainer(pod) && p.lingers(pod.Namespace) {
		return ctrl.Result{RequeueAfter: lookInterval}, nil
	}
	if !ended {
		const sigterm = 143
		return ctrl.Result{}, p.end(ctx, pod, sigterm, "")
	}
	if ptr.Deref(pod.DeletionGracePeriodSeconds, 0) == 0 {
		return ctrl.Result{}, nil // a finalizer holds it
	}
	return ctrl.Result{}, p.remove(ctx, pod)
}

func (p *Player) remove(ctx context.Context, pod *corev1.Pod) error {
	return client.IgnoreNotFound(p.client.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID}))
}

func (p *Player) lingers(namespace string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stage(namespace).lingering
}

func setCondition(pod *corev1.Pod, c corev1.PodCondition) {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == c.Type {
			pod.Status.Conditions[i] = c
			return
		}
	}
	pod.Status.Conditions = append(pod.Status.Conditions, c)
}
