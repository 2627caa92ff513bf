// Package player does what a control plane without a kubelet lacks: it schedules pods to one node, makes
// members run and drainers do what a script says, ends pods that are deleted, and provisions volumes.
//
// Like a kubelet, the player starts no pod before each of its claims is bound and not being deleted. The
// player notes events that no kubelet could allow (two users of one volume): see Violations.
package player

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// NodeName is the one node's.
	NodeName = "node-a"
	// StorageClass is the default class. Its volumes are deleted with their claims, and may grow.
	StorageClass = "player"
	// FixedClass is another class, whose volumes may not grow.
	FixedClass = "player-fixed"
	// LateClass is another class, whose volumes are made when a pod that uses them gets a node.
	LateClass = "player-late"

	provisioner = "player.example.com/volumes"
)

// Player plays for a whole cluster, each namespace by its own script.
type Player struct {
	client client.Client
	live   client.Reader

	mu         sync.Mutex
	stages     map[string]*stage
	violations map[string][]string

	// addresses counts the addresses that pods were given.
	addresses atomic.Uint32
}

// stage is how the pods of one namespace behave.
type stage struct {
	script Script
	// lingering is set if members don't end when they are terminated.
	lingering bool
	// unready is set if members run, and don't get ready.
	unready bool
	// held is set if members have a node, and don't start; heldDrainers if drainers don't.
	held, heldDrainers bool
	// node gets the pods; NodeName if it is empty.
	node string
	// afflicted sets the status of members that get no node; nil for none.
	afflicted func(*corev1.PodStatus)
	// fixed is set if volumes don't grow although they are asked to.
	fixed bool
}

// Start plays until the context ends.
func Start(ctx context.Context, config *rest.Config) (*Player, error) {
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:     clientgoscheme.Scheme,
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: controllerOptions(),
	})
	if err != nil {
		return nil, fmt.Errorf("set up the player: %w", err)
	}
	p := &Player{
		client:     mgr.GetClient(),
		live:       mgr.GetAPIReader(),
		stages:     map[string]*stage{},
		violations: map[string][]string{},
	}
	parts := map[client.Object]reconcile.Func{
		&corev1.Pod{}:                   p.pod,
		&corev1.PersistentVolumeClaim{}: p.claim,
		&corev1.PersistentVolume{}:      p.volume,
	}
	for object, play := range parts {
		err := ctrl.NewControllerManagedBy(mgr).For(object).
			WithOptions(controller.Options{MaxConcurrentReconciles: 8}).Complete(play)
		if err != nil {
			return nil, fmt.Errorf("set up the player of %T: %w", object, err)
		}
	}
	if err := createScenery(ctx, config); err != nil {
		return nil, err
	}
	go func() { _ = mgr.Start(ctx) }()
	return p, nil
}

// createScenery makes the node and the storage class.
func createScenery(ctx context.Context, config *rest.Config) error {
	c, err := client.New(config, client.Options{})
	if err != nil {
		return err
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: NodeName}}
	class := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{
			Name:        StorageClass,
			Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"},
		},
		Provisioner:          provisioner,
		ReclaimPolicy:        ptr.To(corev1.PersistentVolumeReclaimDelete),
		VolumeBindingMode:    ptr.To(storagev1.VolumeBindingImmediate),
		AllowVolumeExpansion: ptr.To(true),
	}
	fixed := class.DeepCopy()
	fixed.Name, fixed.Annotations, fixed.AllowVolumeExpansion = FixedClass, nil, nil
	late := class.DeepCopy()
	late.Name, late.Annotations, late.VolumeBindingMode = LateClass, nil, ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)
	for _, o := range []client.Object{node, class, fixed, late} {
		if err := c.Create(ctx, o); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create %T %s: %w", o, o.GetName(), err)
		}
	}
	return nil
}

// stage returns that of the namespace; p.mu is held.
func (p *Player) stage(namespace string) *stage {
	s, ok := p.stages[namespace]
	if !ok {
		s = &stage{script: Succeed(100)}
		p.stages[namespace] = s
	}
	return s
}

// direct changes how the pods of the namespace behave.
func (p *Player) direct(namespace string, change func(*stage)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(p.stage(namespace))
}

// Play sets the script of the namespace's drainers. Drainers that run get it, too, so a script can let them
// wait for another one.
func (p *Player) Play(namespace string, s Script) {
	p.direct(namespace, func(st *stage) { st.script = s })
}

// Linger keeps terminated members of the namespace from ending, or lets them end.
func (p *Player) Linger(namespace string, on bool) {
	p.direct(namespace, func(st *stage) { st.lingering = on })
}

// Unready keeps members that start from now on from getting ready, or lets them get ready.
func (p *Player) Unready(namespace string, on bool) {
	p.direct(namespace, func(st *stage) { st.unready = on })
}

// Hold keeps members that have a node from starting, or lets them start.
func (p *Player) Hold(namespace string, on bool) {
	p.direct(namespace, func(st *stage) { st.held = on })
}

// PutOn puts pods that have no node yet on this one.
func (p *Player) PutOn(namespace, node string) {
	p.direct(namespace, func(st *stage) { st.node = node })
}

func (p *Player) nodeFor(namespace string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return cmp.Or(p.stage(namespace).node, NodeName)
}

// HoldDrainers keeps drainers that have a node from starting, or lets them start.
func (p *Player) HoldDrainers(namespace string, on bool) {
	p.direct(namespace, func(st *stage) { st.heldDrainers = on })
}

// Afflict gives members that don't run yet this status instead, again and again; nil
// lets them run.
func (p *Player) Afflict(namespace string, how func(*corev1.PodStatus)) {
	p.direct(namespace, func(st *stage) { st.afflicted = how })
}

// Fix keeps the namespace's volumes from growing, or lets them grow.
func (p *Player) Fix(namespace string, on bool) {
	p.direct(namespace, func(st *stage) { st.fixed = on })
}

// Violations returns the events in the namespace that no kubelet could have allowed.
func (p *Player) Violations(namespace string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.violations[namespace])
}

func (p *Player) violated(namespace, format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.violations[namespace] = append(p.violations[namespace], fmt.Sprintf(format, args...))
}
