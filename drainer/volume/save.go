package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/snapshot"
	"example.com/memcached-operator/drainer/warmfile"
)

// SaveOptions of Save.
type SaveOptions struct {
	// Logf logs a line for people.
	Logf func(string, ...any)
	// Until is when the writer will be killed; zero for never.
	Until time.Time
	// Progress, if not nil, is called once a second with the bytes that are written, and all bytes.
	Progress func(done, all int64)
	// makeRoom makes room if the disk is full, or returns false if it can't; nil if it never can.
	makeRoom func() (bool, error)
}

// CountItems returns how many items begin in a page; false if that is unknown. Tests replace it.
var CountItems = (*warmfile.Reader).ItemsIn

// Pack writes the warm file in dir, which no memcached maps any more, and its metadata
// to a new save at path. The save has reached the disk when Pack returns.
func Pack(ctx context.Context, dir, path string, number int64) error {
	_, err := writeSave(ctx, dir, path, number, SaveOptions{}, 0)
	return err
}

// writeSave is Pack at about rate bytes per second.
func writeSave(ctx context.Context, dir, path string, number int64, o SaveOptions, rate int64) (*snapshot.Written, error) {
	in, header, err := survey(dir, number)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	write := snapshot.Options{Progress: o.Progress, MakeRoom: o.makeRoom}
	if r, err := Open(dir, Options{}); err == nil { // otherwise nothing is known of its items
		defer r.Close()
		write.Count = func(page []byte) (int64, bool) { return CountItems(r, page) }
		if o.long(header, rate) {
			write.Order, err = hottestFirst(r, header)
			if err != nil {
				return nil, err
			}
		}
	}
	return snapshot.Write(ctx, in, path, header, write)
}

// longSave is the duration from which a save begins with the most recently used items, whatever the grace
// period is: a node that is shut down gives less time.
const longSave = 10 * time.Second

// long tells whether the save may be cut short, and logs if it would end too late. The disk may be half as
// fast as the last time.
func (o SaveOptions) long(h *snapshot.Header, rate int64) bool {
	size, err := h.SaveBytes()
	if err != nil || rate <= 0 {
		return false
	}
	takes, left := time.Duration(float64(size)/float64(rate)*float64(time.Second)), time.Until(o.Until)
	if o.Until.IsZero() || takes < left/2 {
		return takes >= longSave
	}
	o.Logf("the save of %d MiB takes about %v at %d MiB/s, and %v are left: the most recently used items are saved first",
		Mebibytes(size), takes.Round(time.Second), rate>>20, left.Round(time.Second))
	return true
}

// hottestFirst returns the used pages, the most recently used first.
func hottestFirst(r *warmfile.Reader, h *snapshot.Header) ([]int32, error) {
	pages := h.UsedPages()
	used := make([]uint32, h.Size/int64(h.PageSize))
	for _, page := range pages {
		var err error
		if used[page], err = r.LastUse(int64(page) * int64(h.PageSize)); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(pages, func(a, b int32) int { return cmp.Compare(used[b], used[a]) })
	return pages, nil
}

// PackedSize returns the size of the save of the warm file in dir, in bytes.
func PackedSize(dir string) (int64, error) {
	in, header, err := survey(dir, 1)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	return header.SaveBytes()
}

// Save saves the warm file in memory to the volume at dir; Save returns nil if there is no file. The earlier
// save is outdated. If there is no room for both, the earlier save is removed: before the new save, if the
// file system shows in time that there is no room, or when a write finds the disk or a quota full. A
// *RoomError means that there is too little room. After another error, or if the process is killed, the
// written part of the new save may be usable; see openSave.
func Save(ctx context.Context, memory, dir string, o SaveOptions) (*snapshot.Written, error) {
	if Missing(filepath.Join(memory, contract.WarmFile)) {
		return nil, nil
	}
	need, err := PackedSize(memory)
	if err == nil {
		err = SyncMarks(dir, o.Logf)
	}
	if err != nil {
		return nil, err
	}
	rate := cmp.Or(SaveRate(dir), contract.SlowSave)
	last, err := LastNumber(dir)
	if err != nil {
		return nil, err
	}
	lacking, err := MakeRoom(dir, need, true, o.Logf)
	if err != nil {
		return nil, err
	}
	if lacking > 0 {
		return nil, &RoomError{need, lacking}
	}
	path := filepath.Join(dir, newSave)
	o.makeRoom = func() (bool, error) { return dropOutdated(dir, o.Logf) }
	written, err := writeSave(ctx, memory, path, last+1, o, rate)
	for snapshot.IsFull(err) { // the disk may refuse blocks later that it had accepted
		if more, dropErr := o.makeRoom(); dropErr != nil || !more {
			err = errors.Join(err, dropErr)
			break
		}
		written, err = writeSave(ctx, memory, path, last+1, o, rate)
	}
	if err != nil {
		return nil, errors.Join(err, dropWorthless(path))
	}
	if err := replace(path, filepath.Join(dir, contract.SaveFile)); err != nil {
		return nil, err
	}
	return written, errors.Join(Sync(dir), noteSaved(dir))
}

// dropWorthless removes a save that was cut short before it had a page.
func dropWorthless(path string) error {
	s, err := snapshot.Open(path)
	if err == nil {
		missing, all := s.Lacks()
		if err := s.Close(); err != nil || missing < all {
			return err
		}
	}
	return os.Remove(path)
}

// survey opens the warm file in dir, and returns the header of its save.
func survey(dir string, number int64) (*os.File, *snapshot.Header, error) {
	in, err := os.Open(filepath.Join(dir, contract.WarmFile))
	if err != nil {
		return nil, nil, err
	}
	header, err := snapshot.Survey(in, number)
	if err == nil {
		err = describe(header, dir)
	}
	if err != nil {
		return nil, nil, errors.Join(err, in.Close())
	}
	return in, header, nil
}

// describe copies the metadata of the warm file in dir into the header of its save.
func describe(h *snapshot.Header, dir string) error {
	for name, keep := range map[string]func(b []byte){
		contract.Manifest: func(b []byte) { h.Manifest = b },
		contract.MetaFile: func(b []byte) { h.Meta = string(b) },
	} {
		b, err := readSmall(filepath.Join(dir, name))
		switch {
		case err == nil:
			keep(b)
		case !errors.Is(err, os.ErrNotExist) && !errors.Is(err, warmfile.ErrUnrecoverable):
			return err
		}
	}
	return nil
}

// Unpack restores the warm file of the save in dir to the directory to, with its .meta and its manifest, and
// checks each page. The warm file gets its name last: without that name, no file is there. progress is called with
// the number of bytes that were read, and with that of the pages that the save has.
func Unpack(ctx context.Context, dir, to string, progress func(n, total int64)) error {
	s, err := openSave(dir)
	if err != nil {
		return err
	}
	defer s.Close()
	path, unfinished := filepath.Join(to, contract.WarmFile), filepath.Join(to, newWarmFile)
	out, err := os.OpenFile(unfinished, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o700)
	if err != nil {
		return err
	}
	err = errors.Join(s.Expand(ctx, out, func(n int64) { progress(n, s.Used()) }), out.Close())
	manifest, manifestErr := counted(s)
	err = errors.Join(err, manifestErr)
	for name, data := range map[string][]byte{contract.Manifest: manifest, contract.MetaFile: []byte(s.Meta)} {
		if err == nil && len(data) > 0 {
			err = os.WriteFile(filepath.Join(to, name), data, 0o644)
		}
	}
	if err == nil {
		err = os.Rename(unfinished, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(unfinished))
	}
	return nil
}

// counted returns the manifest of a save, with the number of items in the save.
func counted(s *snapshot.Save) ([]byte, error) {
	items, known := s.Items()
	m, err := ParseManifest(s.Manifest)
	if !known || err != nil || m.State != Saved {
		return s.Manifest, nil
	}
	m.Image.Items, m.Image.ItemsExact = items, true
	b, err := m.Marshal()
	if err != nil {
		return nil, fmt.Errorf("the manifest in the save: %w", err)
	}
	return b, nil
}
