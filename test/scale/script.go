package main

import (
	"context"
	"fmt"
)

// Names of phases, which tests use.
const (
	atRest     = "at rest"
	scaledDown = "scale-downs"
	resynced   = "resync"
	restarted  = "restart"
)

// scene is one phase of the script.
type scene struct {
	name string
	per  int
	// before runs first, and is not measured.
	before func(context.Context) error
	// restless is set if the manager doesn't come to rest in the phase.
	restless bool
	phase    phase
}

// script returns the phases, in their order.
func (w *world) script() []scene {
	o := w.options
	var scenes []scene
	n := 0
	if o.foreign > 0 {
		scenes = append(scenes, scene{name: fmt.Sprintf("%d foreign", o.foreign), phase: w.createForeign(o.foreign)})
	}
	for _, to := range o.steps {
		scenes = append(scenes, scene{name: fmt.Sprintf("%d clusters", to), per: to - n, phase: w.create(n, to, key, cluster)})
		n = to
	}
	scenes = append(scenes,
		scene{name: atRest, phase: w.rest(o.idle)},
		scene{name: fmt.Sprintf("%d %s", o.scaleDowns, scaledDown), per: o.scaleDowns, phase: w.scaleDown(o.scaleDowns, key)})
	if o.routed > 0 {
		scenes = append(scenes,
			scene{name: fmt.Sprintf("%d routed", o.routed), per: o.routed, phase: w.create(0, o.routed, routedKey, routed)},
			scene{name: fmt.Sprintf("%d routed %s", o.routed, scaledDown), per: o.routed, phase: w.scaleDown(o.routed, routedKey)})
		n += o.routed
	}
	if o.largeFrom > 0 {
		scenes = append(scenes,
			scene{name: fmt.Sprintf("%d members", o.largeFrom), per: o.largeFrom, phase: w.createLarge(o.largeFrom)},
			scene{name: fmt.Sprintf("%d to %d", o.largeFrom, o.largeTo), per: o.largeFrom - o.largeTo,
				phase: w.shrinkLarge(o.largeFrom, o.largeTo)})
		n++
	}
	if o.resync > 0 {
		scenes = append(scenes, scene{name: resynced, before: w.startResyncing(n), restless: true, phase: w.resync(n)})
	}
	scenes = append(scenes, scene{name: restarted, per: n, phase: w.restart(n)})
	return scenes
}

// startResyncing starts a manager that resyncs soon, and waits until it has seen every cluster.
func (w *world) startResyncing(clusters int) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := w.startManager(ctx, "--sync-period="+w.options.resync.String()); err != nil {
			return err
		}
		return w.seen(ctx, float64(clusters))
	}
}
