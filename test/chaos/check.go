package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	meta "example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/routing"
	"example.com/memcached-operator/test/internal/deployed"
	"example.com/memcached-operator/test/invariants"
)

// check looks for everything that was acknowledged, while the load goes on. check waits, within bounds,
// because a crashed member's items are replayed after live traffic.
func check(ctx context.Context, w *world, l *load) error {
	ctx, cancel := context.WithTimeout(ctx, w.patience)
	defer cancel()
	if err := l.verdict(); err != nil {
		return err
	}
	entries := l.entries()
	drains, err := w.pastDrains(ctx)
	if err != nil {
		return err
	}
	left, err := w.located(ctx, l, entries, drains)
	if err != nil {
		return err
	}
	total, seen := len(entries), 0
	hot := map[string]*hot{}
	for _, h := range l.hot {
		hot[h.key] = h
	}
	err = deployed.Until(ctx, "everything is there that was acknowledged", func() error {
		now, err := l.views.read(ctx)
		if err != nil {
			return err
		}
		n, err := findKeys(now, left)
		seen += n
		return errors.Join(err, findHotKeys(l, hot), noEvictions(ctx, now))
	})
	if err = errors.Join(err, l.verdict()); err != nil {
		return err
	}
	w.trouble.rested(time.Now())
	for _, h := range l.hot {
		h.rested(time.Now())
	}
	fmt.Printf("chaos: all %d keys are there (%d where clients look at this size) after %d drains, and the last value of each of %d keys that are overwritten\n",
		total, seen, len(drains), hotKeys)
	return nil
}

// verdict is an error if an answer was wrong.
func (l *load) verdict() error {
	wrong := l.judged()
	if len(wrong) == 0 {
		return nil
	}
	return fmt.Errorf("%d wrong answers:\n%s", len(wrong), strings.Join(wrong[:min(len(wrong), 20)], "\n"))
}

// pastDrain is a drain that has ended: the items of a volume went to the volumes of the survivors.
type pastDrain struct {
	from  string
	owner routing.Owner
	to    []string
}

// pastDrains returns the drains so far, in the order of the API server's events.
func (w *world) pastDrains(ctx context.Context) ([]pastDrain, error) {
	if err := w.recorder.CaughtUp(ctx, w.namespace); err != nil {
		return nil, err
	}
	steps, err := w.recorder.Steps(w.namespace, clusterName)
	if err != nil {
		return nil, err
	}
	var drains []pastDrain
	servers, volumes := map[string][]string{}, map[string][]string{} // by the claim that is drained
	for _, step := range steps {
		for _, job := range step.Before.Jobs {
			if servers[job.ClaimUID] = job.Servers; job.Unfinished { // when it has ended, the next members may leave
				volumes[job.ClaimUID] = members(step.Before, len(job.Servers))
			}
		}
		for _, claim := range step.Before.Claims {
			if claim.Receipt == nil || !claim.HasFinalizer || holds(step.After, claim.UID) {
				continue
			}
			owner, err := ring(servers[claim.UID])
			if err != nil {
				return nil, fmt.Errorf("the drain of claim %s: %w", claim.Name, err)
			}
			drains = append(drains, pastDrain{claim.Volume, owner, volumes[claim.UID]})
		}
	}
	return drains, nil
}

// holds tells whether the claim exists, with its finalizer.
func holds(s *invariants.State, uid string) bool {
	for _, c := range s.Claims {
		if c.UID == uid {
			return c.HasFinalizer
		}
	}
	return false
}

// members are the volumes of the first size members.
func members(s *invariants.State, size int) []string {
	volumes := make([]string, size)
	for _, c := range s.Claims {
		if c.Ordinal >= 0 && int(c.Ordinal) < size && !c.Leaving {
			volumes[c.Ordinal] = c.Volume
		}
	}
	return volumes
}

// located returns the volume that each key must be on: its owner's, or, with moves Off, the one to which drains
// have taken it.
func (w *world) located(ctx context.Context, l *load, entries []entry, drains []pastDrain) (map[string]string, error) {
	if w.moves == cachev1alpha1.MovesOff {
		return followed(entries, drains)
	}
	now, err := l.views.read(ctx)
	if err != nil {
		return nil, err
	}
	where := make(map[string]string, len(entries))
	for _, e := range entries {
		m := now.route(e.key)
		if m == nil {
			return nil, fmt.Errorf("the owner of key %s has no address", e.key)
		}
		where[e.key] = m.volume
	}
	return where, nil
}

// followed follows each key from the member that acknowledged it through the later drains.
func followed(entries []entry, drains []pastDrain) (map[string]string, error) {
	where := make(map[string]string, len(entries))
	for _, e := range entries {
		volume := e.volume
		for _, m := range drains {
			if m.from == volume {
				volume = m.to[m.owner.Owner([]byte(e.key))]
			}
		}
		if volume == "" {
			return nil, fmt.Errorf("key %s was drained to a member that did not exist", e.key)
		}
		where[e.key] = volume
	}
	return where, nil
}

// batch is how many keys are asked for at once.
const batch = 500

// findKeys removes from left each key that its member has, and counts those keys that this member owns now. The
// error names the missing keys.
func findKeys(now *view, left map[string]string) (owned int, err error) {
	byVolume := map[string]*member{}
	for _, m := range now.members {
		if m == nil {
			return 0, errors.New("a member has no address")
		}
		byVolume[m.volume] = m
	}
	asked := map[*member][]string{}
	for key, volume := range left {
		m := byVolume[volume]
		if m == nil {
			return owned, fmt.Errorf("%s is on volume %s, which is not a member's", key, volume)
		}
		asked[m] = append(asked[m], key)
	}
	for m, keys := range asked {
		for ; len(keys) > 0; keys = keys[min(batch, len(keys)):] {
			found, err := m.client.GetMulti(keys[:min(batch, len(keys))])
			if err != nil {
				return owned, err
			}
			for key, item := range found {
				if !bytes.Equal(item.Value, valueOf(key)) {
					return owned, fmt.Errorf("%s: member %d has %d bytes that were never stored", key, m.ordinal, len(item.Value))
				}
				delete(left, key)
				if now.route(key) == m {
					owned++
				}
			}
		}
	}
	if len(left) == 0 {
		return owned, nil
	}
	var examples []string
	for key := range maps.Keys(left) {
		if examples = append(examples, fmt.Sprintf("%s (member %d)", key, byVolume[left[key]].ordinal)); len(examples) == 10 {
			break
		}
	}
	return owned, fmt.Errorf("%d keys are missing: %s", len(left), strings.Join(examples, ", "))
}

// findHotKeys removes from left each key that is there, or may be gone. verdict tells whether the value is
// right.
func findHotKeys(l *load, left map[string]*hot) error {
	for key, h := range left {
		if l.readHot(h) == nil {
			delete(left, key)
		}
	}
	if len(left) > 0 {
		return fmt.Errorf("%d of the keys that are overwritten are missing", len(left))
	}
	return nil
}

// noEvictions fails if a member was full, because that would explain missing keys.
func noEvictions(ctx context.Context, now *view) error {
	for _, m := range now.members {
		conn, err := meta.Dial(ctx, m.address)
		if err != nil {
			return err
		}
		stats, err := conn.Stats("")
		_ = conn.Close()
		if err != nil {
			return err
		}
		if n := stats["evictions"]; n != "0" {
			return fmt.Errorf("member %d has evicted %s items: the load is too much for it", m.ordinal, n)
		}
	}
	return nil
}
