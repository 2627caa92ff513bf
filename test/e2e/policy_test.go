package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/test/internal/deployed"
)

const (
	memcachedPort = 11211
	metricsPort   = 9150
)

// open lets the role shop into the cluster, the role prometheus to its metrics, and no other pod.
func open(spec *cachev1alpha1.MemcachedSpec) {
	is := func(role string) networkingv1.NetworkPolicyPeer {
		return networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"role": role}}}
	}
	spec.Metrics = &cachev1alpha1.MetricsSpec{}
	// This test runs on the machine. Its requests to a Service's address come from a node's address.
	machine := networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: "10.88.0.0/24"}}
	spec.NetworkPolicy = &cachev1alpha1.NetworkPolicySpec{
		Clients: []networkingv1.NetworkPolicyPeer{is("shop"), machine}, Monitoring: []networkingv1.NetworkPolicyPeer{is("prometheus")},
	}
}

// letsInOnlyWhoIsNamed enforces the policy of an open cluster, and checks it by a pod that has each role in
// turn.
func (f *fixture) letsInOnlyWhoIsNamed(members int) {
	f.Helper()
	pod := f.bystander("stranger")
	if member := f.pod(1); !f.reaches(pod, member, memcachedPort) || !f.reaches(pod, member, metricsPort) {
		f.Fatal("without a policy in force, a pod does not reach a member")
	}
	f.enforcePolicies()
	for _, c := range []struct {
		role               string
		memcached, metrics bool
	}{
		{"stranger", false, false}, {"shop", true, false}, {"prometheus", false, true},
	} {
		f.must(kube.Patch(f.ctx, pod, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"labels":{"role":%q}}}`, c.role))))
		for ordinal := range members {
			member := f.pod(ordinal)
			f.eventually(fmt.Sprintf("a %s is let into member %d by the policy", c.role, ordinal), func() bool {
				return f.reaches(pod, member, memcachedPort) == c.memcached && f.reaches(pod, member, metricsPort) == c.metrics
			})
		}
	}
}

// watchMovers watches movers. The result returns the receipts of those that have ended since, by pod.
func (f *fixture) watchMovers() func() map[string]contract.Receipt {
	f.Helper()
	pods, err := kube.(client.WithWatch).Watch(f.ctx, &corev1.PodList{}, client.InNamespace(f.namespace),
		client.MatchingLabels{cachev1alpha1.LabelComponent: cachev1alpha1.ComponentMove})
	f.must(err)
	f.Cleanup(pods.Stop)
	var mu sync.Mutex
	ended := map[string]contract.Receipt{}
	go func() {
		for event := range pods.ResultChan() {
			pod, is := event.Object.(*corev1.Pod)
			if !is {
				continue
			}
			for _, c := range pod.Status.ContainerStatuses {
				var r contract.Receipt
				if c.State.Terminated != nil && json.Unmarshal([]byte(c.State.Terminated.Message), &r) == nil {
					mu.Lock()
					ended[pod.Name] = r
					mu.Unlock()
				}
			}
		}
	}()
	return func() map[string]contract.Receipt {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(ended)
	}
}

// expectStreamed expects that the members' supervisors have streamed all moved items: no mover was kept from
// them, and asked memcached instead.
func (f *fixture) expectStreamed(movers map[string]contract.Receipt) {
	f.Helper()
	added := int64(0)
	for name, r := range movers {
		if added += r.Added; r.Complete && r.Reader != contract.ReaderStream {
			f.Errorf("mover %s has read by %s, not from the supervisor's stream: %+v", name, r.Reader, r)
		}
	}
	if added == 0 {
		f.Errorf("no mover has moved anything: %+v", movers)
	}
}

// bystander is a pod that does nothing, with a label, in the namespace.
func (f *fixture) bystander(role string, changes ...func(*corev1.PodSpec)) *corev1.Pod {
	f.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: role, Labels: map[string]string{"role": role}},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: ptr.To[int64](0),
			Containers: []corev1.Container{{Name: "pause", Image: "example.com/pause:dev", SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			}}},
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](65532), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
		},
	}
	for _, change := range changes {
		change(&pod.Spec)
	}
	f.must(kube.Create(f.ctx, pod))
	f.eventually("pod "+role+" runs", func() bool {
		f.must(kube.Get(f.ctx, f.key(role), pod))
		return ready(pod)
	})
	return pod
}

// reaches tells whether the policy lets a bystander in.
func (f *fixture) reaches(from, to *corev1.Pod, port int) bool {
	f.Helper()
	inside := f.processesOf(from, "pause")
	if len(inside) == 0 {
		f.Fatalf("pod %s has no process", from.Name)
	}
	// A client that isn't let in is refused at once.
	return exec.CommandContext(f.ctx, "nsenter", "--target", fmt.Sprint(inside[0]), "--net", "--",
		"bash", "-c", `exec 3<>/dev/tcp/$0/$1`, to.Status.PodIP, fmt.Sprint(port)).Run() == nil
}

// enforcePolicies does, for this namespace and until the test ends, what these nodes' network plugin doesn't:
// the kernel filters packets that the nodes forward to pods, by the present NetworkPolicies. enforcePolicies
// understands only the parts of the operator's policies.
func (f *fixture) enforcePolicies() {
	f.Helper()
	ctx, cancel := context.WithCancel(f.ctx)
	changes, err := kube.(client.WithWatch).Watch(ctx, &corev1.PodList{}, client.InNamespace(f.namespace))
	f.must(err)
	f.Cleanup(changes.Stop)
	done := make(chan struct{})
	go func() {
		defer close(done)
		last := ""
		for ctx.Err() == nil {
			rules, err := f.filter(ctx)
			if err == nil && rules != last {
				err = onNodes(ctx, rules)
				last = rules
			}
			if err != nil && ctx.Err() == nil {
				f.Errorf("enforce the NetworkPolicies: %v", err)
				return
			}
			select {
			case <-changes.ResultChan(): // at once, before a new pod's packets could be refused
			case <-time.After(time.Second): // changes of the policies, and of the operator's namespace, aren't watched
			}
		}
	}()
	f.Cleanup(func() {
		cancel()
		<-done
		if err := onNodes(context.Background(), f.noFilter()); err != nil {
			f.Errorf("stop enforcing: %v", err)
		}
	})
}

// onNodes loads rules into nftables in the network of each node.
func onNodes(ctx context.Context, rules string) error {
	for _, name := range []string{stays, goes} {
		if _, err := nft(ctx, name, rules); err != nil {
			return err
		}
	}
	return nil
}

// nft runs commands of nftables in the network of a node.
func nft(ctx context.Context, name, commands string) (string, error) {
	pid, err := deployed.Kubelet(name)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "nsenter", "--target", fmt.Sprint(pid), "--net", "--", "nft", "--file", "-")
	cmd.Stdin = strings.NewReader(commands)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("nft on %s: %w: %s", name, err, out)
	}
	return string(out), nil
}

func (f *fixture) noFilter() string {
	return fmt.Sprintf("table inet %[1]s {}\ndelete table inet %[1]s\n", f.namespace)
}

// filter returns the namespace's policies as rules, which replace the earlier ones.
func (f *fixture) filter(ctx context.Context) (string, error) {
	var policies networkingv1.NetworkPolicyList
	if err := kube.List(ctx, &policies, client.InNamespace(f.namespace)); err != nil {
		return "", err
	}
	var pods corev1.PodList
	if err := kube.List(ctx, &pods, client.InNamespace(f.namespace)); err != nil {
		return "", err
	}
	slices.SortFunc(pods.Items, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	var accepted, refused strings.Builder
	for i := range policies.Items {
		policy := &policies.Items[i]
		selected, err := addresses(&policy.Spec.PodSelector, pods.Items)
		if err != nil {
			return "", err
		}
		for _, rule := range policy.Spec.Ingress {
			from, err := sources(ctx, rule.From, pods.Items)
			if err != nil {
				return "", err
			}
			for address, pod := range selected {
				for _, port := range rule.Ports {
					if n := portOf(pod, port.Port); n != 0 && len(from) > 0 {
						fmt.Fprintf(&accepted, "ip daddr %s ip saddr { %s } tcp dport %d accept\n", address, strings.Join(from, ", "), n)
					}
				}
			}
		}
		for address := range selected {
			fmt.Fprintf(&refused, "ip daddr %s reject\n", address)
		}
	}
	return f.noFilter() + fmt.Sprintf("table inet %s {\nchain forward {\ntype filter hook forward priority 10\nct state established,related accept\n%s%s}\n}\n",
		f.namespace, sorted(accepted.String()), sorted(refused.String())), nil
}

// addresses returns those of the pods that a selector selects.
func addresses(selector *metav1.LabelSelector, pods []corev1.Pod) (map[string]*corev1.Pod, error) {
	matching, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return nil, err
	}
	selected := map[string]*corev1.Pod{}
	for i := range pods {
		if pods[i].Status.PodIP != "" && pods[i].Status.Phase != corev1.PodSucceeded && pods[i].Status.Phase != corev1.PodFailed &&
			matching.Matches(labels.Set(pods[i].Labels)) {
			selected[pods[i].Status.PodIP] = &pods[i]
		}
	}
	return selected, nil
}

// sources returns the addresses of peers. The operator's namespace is known by its name.
func sources(ctx context.Context, peers []networkingv1.NetworkPolicyPeer, pods []corev1.Pod) ([]string, error) {
	var all []string
	for _, peer := range peers {
		if peer.IPBlock != nil {
			all = append(all, peer.IPBlock.CIDR)
			continue
		}
		if peer.NamespaceSelector != nil && peer.PodSelector == nil && len(peer.NamespaceSelector.MatchLabels) == 1 {
			var theirs corev1.PodList
			if err := kube.List(ctx, &theirs, client.InNamespace(peer.NamespaceSelector.MatchLabels[corev1.LabelMetadataName])); err != nil {
				return nil, err
			}
			for i := range theirs.Items {
				if ip := theirs.Items[i].Status.PodIP; ip != "" {
					all = append(all, ip)
				}
			}
			continue
		}
		if peer.NamespaceSelector != nil || peer.PodSelector == nil {
			return nil, fmt.Errorf("peers of other namespaces are not understood: %+v", peer)
		}
		selected, err := addresses(peer.PodSelector, pods)
		if err != nil {
			return nil, err
		}
		for address := range selected {
			all = append(all, address)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// portOf returns the pod's port, by its number or its name; 0 if it has none of the name.
func portOf(pod *corev1.Pod, port *intstr.IntOrString) int32 {
	if port.Type == intstr.Int {
		return port.IntVal
	}
	for _, container := range pod.Spec.Containers {
		for _, p := range container.Ports {
			if p.Name == port.StrVal {
				return p.ContainerPort
			}
		}
	}
	return 0
}

func sorted(lines string) string {
	all := slices.Sorted(strings.Lines(lines))
	return strings.Join(all, "")
}
