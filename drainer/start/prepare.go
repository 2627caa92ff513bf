package start

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/pace"
	"example.com/memcached-operator/drainer/volume"
	"example.com/memcached-operator/drainer/warmfile"
)

// Prepare decides how the member starts, and does everything that comes before memcached's own start. Prepare
// returns the first manifest, which is on the disk. When ctx ends, Prepare returns soon. Only a save of the file in
// memory continues, because that file is lost with the pod.
func Prepare(ctx context.Context, m Member, ask Ask, o volume.SaveOptions) (*volume.Manifest, error) {
	awaitClock(ctx, m, o.Logf)
	d, err := decideAndDo(ctx, m, ask, o)
	if err != nil {
		return nil, fmt.Errorf("prepare the volume: %w", err)
	}
	if d.Reason != "" {
		o.Logf("%s", d.Reason)
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	manifest := firstManifest(m, d)
	if err := volume.WriteManifest(m.Dir(), manifest); err != nil {
		return nil, fmt.Errorf("write the manifest: %w", err)
	}
	return manifest, nil
}

// decideAndDo carries a decision out. If the save turns out to be damaged, decideAndDo decides again.
func decideAndDo(ctx context.Context, m Member, ask Ask, o volume.SaveOptions) (*Decision, error) {
	for _, dir := range []string{m.Dir(), m.Volume} {
		if err := volume.Sweep(dir); err != nil {
			return nil, err
		}
	}
	f, err := Look(ctx, m, ask)
	if err != nil {
		return nil, err
	}
	for {
		d, err := Decide(f)
		if err != nil {
			return nil, err
		}
		err = f.carryOut(ctx, m, d, o)
		if errors.Is(err, errLessRoom) {
			continue
		}
		var damage *damagedSave
		if !errors.As(err, &damage) {
			return d, err
		}
		if warmfile.IsReason(damage, warmfile.ReasonSaveIncomplete) {
			f.Save.Incomplete = fmt.Errorf("its save is damaged: %s", contract.OneLine(damage)) // the other pages are right
		} else {
			f.Save.Unreadable = damage.error
		}
	}
}

// errLessRoom means that the file system doesn't give unused pages back. Facts.Free has been set to the
// actual room.
var errLessRoom = errors.New("the volume has less room than it seemed to have")

// damagedSave means that a save looked sound, but a page of it is damaged.
type damagedSave struct{ error }

func (d *damagedSave) Unwrap() error { return d.error }

// carryOut does the steps of a decision.
func (f *Facts) carryOut(ctx context.Context, m Member, d *Decision, o volume.SaveOptions) error {
	for _, step := range d.Steps {
		if err := f.do(ctx, m, d, step, o); err != nil {
			return err
		}
	}
	return nil
}

func (f *Facts) do(ctx context.Context, m Member, d *Decision, step Step, o volume.SaveOptions) error {
	switch step {
	case LoadSave:
		return load(ctx, m, o.Logf)
	case SetClock:
		o.Logf("memcached's clock was not this node's when it saved: it resumes with the time that it had then")
		return volume.Redate(m.Dir(), f.Now.Unix())
	case SaveFile:
		_, err := volume.Save(context.WithoutCancel(ctx), m.Memory, m.Volume, o)
		return err
	case MakeRoom:
		lacking, err := volume.MakeRoom(m.Volume, f.Need, f.Saves, o.Logf)
		if err == nil && lacking > 0 {
			f.Free = f.Need - lacking
			return errLessRoom
		}
		return err
	case Keep, KeepAsFailed:
		if err := volume.Keep(m.Volume, d.Number, step == KeepAsFailed); err != nil {
			return fmt.Errorf("keep the warm file for a replay: %w", err)
		}
		return nil
	case GiveUpNewest:
		return volume.GiveUp(f.Kept[0])
	case DropFile:
		return volume.DropWarmFile(m.Dir())
	case DropForeign:
		return volume.DropWarmFile(m.Volume)
	case DropForeignManifest:
		return volume.DropManifest(m.Volume)
	case DropSave:
		return volume.DropSave(m.Volume)
	case DropNote:
		return volume.DropNote(m.Volume)
	case DropAll:
		return volume.DropAll(m.Volume)
	}
	return fmt.Errorf("no such step: %q", step)
}

func load(ctx context.Context, m Member, logf func(string, ...any)) error {
	begun := time.Now()
	logs, done := contract.LogWork(contract.WorkLoading, logf), atomic.Int64{}
	err := volume.Unpack(ctx, m.Volume, m.Memory, func(n, total int64) { logs(done.Add(n), total) })
	switch {
	case unrecoverable(err):
		return &damagedSave{err}
	case err != nil:
		return fmt.Errorf("load the save: %w", err)
	}
	logf("the save is loaded after %v", time.Since(begun).Round(time.Millisecond))
	return nil
}

// SaveMemory saves the file in memory, unless a save has all of it, for a member that ends before it has started
// memcached. SaveMemory tells whether there was something to save.
func SaveMemory(m Member, o volume.SaveOptions) (bool, error) {
	f, err := Look(context.Background(), m, nil)
	if err != nil || !f.Saves || !f.File.Exists || f.covered() || f.NotSavable != nil || f.File.Unused || Undescribed(f.refusal(&f.File)) {
		return false, err
	}
	_, err = volume.Save(context.Background(), m.Memory, m.Volume, o)
	return true, err
}

// firstManifest returns the manifest that is written before memcached starts. Its state says that from now on the
// warm file can't be trusted after this boot of the node. An old manifest would be wrong: its Saved for a file
// that changes, all of it for a new file.
func firstManifest(m Member, d *Decision) *volume.Manifest {
	first := &volume.Manifest{State: volume.Starting, Arguments: m.Command, BootID: volume.BootID(), Fresh: d.Fresh(), Note: d.Reason}
	if first.Fresh {
		return first
	}
	if old, err := volume.ReadManifest(m.Dir()); err == nil {
		first.Previous = old.Latest()
	}
	if meta, err := volume.ReadMeta(m.Dir()); err == nil {
		first.Previous = withCount(meta, first.Previous)
	}
	return first
}

// withCount adds to the .meta the manifest's knowledge of the same save.
func withCount(meta, known *warmfile.Image) *warmfile.Image {
	if known != nil && known.StopTime == meta.StopTime {
		meta.Version, meta.Items, meta.ItemsExact = known.Version, known.Items, known.ItemsExact
		meta.Complete(known)
	}
	return meta
}

// maxClockWait bounds the wait for the clock to pass the last save.
const maxClockWait = 5 * time.Second

// awaitClock waits until the clock is past the second of the last save: memcached rejects its own save if no
// time has passed since.
func awaitClock(ctx context.Context, m Member, logf func(string, ...any)) {
	meta, err := volume.ReadMeta(m.Dir())
	if err != nil {
		meta, err = volume.ReadMeta(m.Volume)
	}
	if err != nil {
		return
	}
	wait := time.Until(time.Unix(meta.StopTime+1, 0))
	if wait <= 0 {
		return
	}
	if wait > maxClockWait {
		logf("the last save is %v in the future by this node's clock", wait.Round(time.Second))
		return
	}
	_ = pace.Sleep(ctx, wait)
}
