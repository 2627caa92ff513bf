package start

import (
	"context"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/volume"
)

// NextWarning returns the termination message about the member's next start, nil for none. NextWarning runs where
// memcached is not installed, so it can't know whether memcached is too old for the save.
func NextWarning(ctx context.Context, m Member, logf func(string, ...any)) (*contract.ColdStart, error) {
	if !m.Saves() && !volume.Missing(m.path(contract.WarmFile)) {
		awaitClock(ctx, m, logf)
	}
	f, err := Look(ctx, m, nil)
	if err != nil {
		return nil, err
	}
	warning := &contract.ColdStart{}
	if d, err := Decide(f); err == nil && d.Warning != nil { // the start itself reports the error
		warning = rounded(d.Warning)
	}
	if m.Saves() {
		warning.BytesPerSecond = volume.SaveRate(m.Volume)
	}
	if *warning == (contract.ColdStart{}) {
		return nil, nil
	}
	return warning, nil
}

// AfterCrash returns the termination message for a crash of the memcached that runs now; nil if its items
// could be replayed.
func AfterCrash(m Member) (*contract.ColdStart, error) {
	need := MemoryLimit(m.Command)
	if !m.Saves() {
		need = keptBeside(m.Command)
	}
	free, _, err := volume.Room(m.Volume, need, m.Saves())
	if err != nil || need <= free {
		return nil, err
	}
	return rounded(&contract.ColdStart{NeedBytes: need, FreeBytes: free}), nil
}

// rounded rounds to whole MiB of room, because other writes to the disk usually change it by less.
func rounded(c *contract.ColdStart) *contract.ColdStart {
	const mib = 1 << 20
	if c != nil {
		c.FreeBytes = c.FreeBytes / mib * mib
	}
	return c
}
