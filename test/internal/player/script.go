package player

import (
	"context"
	"encoding/json"
	"strings"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/drainer/contract"
)

// Drainer is a drainer's pod, for a script.
type Drainer struct {
	Pod string
	// Claim is the one that it mounts. ReadOnly is set if it mounts it read-only.
	Claim    string
	ReadOnly bool
	// Source is the member that a mover asks.
	Source string
	// From is the other cache, or the directory of claims, that is copied. Counts is set if that is only counted.
	From   string
	Counts bool
	// SourceID and Servers are from its arguments.
	SourceID string
	Servers  []string
}

// Script returns the next act of a drainer that runs.
type Script func(d Drainer) Act

// Act is an act of a drainer.
type Act struct {
	// Wait lets the drainer run on. The script is asked again soon.
	Wait bool
	// Vanish loses the pod with its node.
	Vanish bool
	// ExitCode and Message are those of the drainer's end, without Wait and Vanish.
	ExitCode int32
	Message  string
}

// Succeed ends with a receipt for n items, all of them added.
func Succeed(n int64) Script {
	return func(d Drainer) Act { return Act{Message: Message(Receipt(d, n))} }
}

// Fail ends with the exit code and a receipt that gives the reason.
func Fail(exitCode int32, reason, message string) Script {
	return func(d Drainer) Act {
		r := contract.Receipt{Version: 1, Source: d.SourceID, Reason: reason, Message: message, ExitCode: int(exitCode)}
		return Act{ExitCode: exitCode, Message: Message(r)}
	}
}

// Hang runs until another script is set.
func Hang(Drainer) Act { return Act{Wait: true} }

// Vanish loses each drainer's pod with its node.
func Vanish(Drainer) Act { return Act{Vanish: true} }

// Receipt returns one that adds up, for n items.
func Receipt(d Drainer, n int64) contract.Receipt {
	r := contract.Receipt{
		Version: 1, Source: d.SourceID, Complete: true, Clean: true,
		Found: n, Outcomes: contract.Outcomes{Added: n}, Bytes: 100 * n,
	}
	switch {
	case d.Counts:
		r = contract.Receipt{Version: 1, Source: d.SourceID, Complete: true}
		for range d.Servers {
			r.Demand = append(r.Demand, n)
		}
	case d.From != "":
		r.Passes = 1
	}
	return r
}

// Message renders a receipt as a termination message.
func Message(r contract.Receipt) string {
	b, err := json.Marshal(r)
	if err != nil {
		panic(err) // numbers and strings can always be marshalled
	}
	return string(b)
}

// isDrainer tells whether the pod is a drainer's or a mover's, and no member's.
func isDrainer(pod *corev1.Pod) bool {
	component := pod.Labels[cachev1alpha1.LabelComponent]
	return component == cachev1alpha1.ComponentDrainer || component == cachev1alpha1.ComponentMove
}

func (p *Player) drain(ctx context.Context, pod *corev1.Pod) (ctrl.Result, error) {
	if waits(pod) {
		return ctrl.Result{RequeueAfter: lookInterval}, nil
	}
	p.mu.Lock()
	script := p.stage(pod.Namespace).script
	p.mu.Unlock()
	switch act := script(drainerOf(pod)); {
	case act.Wait:
		return ctrl.Result{RequeueAfter: lookInterval}, nil
	case act.Vanish:
		return ctrl.Result{}, p.remove(ctx, pod)
	default:
		return ctrl.Result{}, p.endDrainer(ctx, pod, act.ExitCode, act.Message)
	}
}

// waits tells whether a mover is prepared, and was not told to begin.
func waits(pod *corev1.Pod) bool {
	for _, arg := range commandOf(pod) {
		if when, waits := strings.CutPrefix(arg, "--"+contract.FlagBeginWhen+"="); waits {
			return strings.TrimSuffix(pod.Annotations[cachev1alpha1.AnnotationBegin], contract.BeginLeases) != when
		}
	}
	return false
}

// commandOf returns the command of the pod's drainer.
func commandOf(pod *corev1.Pod) []string {
	for _, c := range pod.Spec.Containers {
		if c.Name == drainer {
			return c.Command
		}
	}
	return nil
}

func drainerOf(pod *corev1.Pod) Drainer {
	d := Drainer{Pod: pod.Name}
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			d.Claim, d.ReadOnly = v.PersistentVolumeClaim.ClaimName, v.PersistentVolumeClaim.ReadOnly
		}
	}
	for _, arg := range commandOf(pod) {
		if source, ok := strings.CutPrefix(arg, "--"+contract.FlagSource+"="); ok {
			d.Source = source
		}
		if from, ok := strings.CutPrefix(arg, "--"+contract.FlagFrom+"="); ok {
			d.From = from
		}
		d.Counts = d.Counts || arg == "--"+contract.FlagCount
		if id, ok := strings.CutPrefix(arg, "--"+contract.FlagSourceID+"="); ok {
			d.SourceID = id
		}
		if server, ok := strings.CutPrefix(arg, "--"+contract.FlagServer+"="); ok {
			d.Servers = append(d.Servers, server)
		}
	}
	return d
}
