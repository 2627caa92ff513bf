package start

import (
	"context"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/volume"
)

// Foretell returns what the kubelet should be told of the member's next start, from
// beside its memcached; nil where nothing. Whether that is too old for the save is the
// one thing not known here.
func Foretell(ctx context.Context, m Member, logf func(string, ...any)) (*contract.ColdStart, error) {
	if !m.Saves() && !volume.Missing(m.path(contract.WarmFile)) {
		awaitClock(ctx, m, logf)
	}
	f, err := Look(m, nil)
	if err != nil {
		return nil, err
	}
	d, err := Decide(f)
	if err != nil {
		return nil, nil // the start itself will say so
	}
	return rounded(d.Warning), nil
}

// AfterCrash returns what the kubelet should be told of a start after memcached, which
// runs now, has crashed; nil where its items could be replayed.
func AfterCrash(m Member) (*contract.ColdStart, error) {
	need := MemoryLimit(m.Command)
	free, _, err := volume.Room(m.Volume, need, m.Saves())
	if err != nil || need <= free {
		return nil, err
	}
	return rounded(&contract.ColdStart{NeedBytes: need, FreeBytes: free}), nil
}

// rounded to whole MiB of room: what else writes to the disk moves it by less, mostly.
func rounded(c *contract.ColdStart) *contract.ColdStart {
	const mib = 1 << 20
	if c != nil {
		c.FreeBytes = c.FreeBytes / mib * mib
	}
	return c
}
