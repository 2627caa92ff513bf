package volume

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/snapshot"
)

// Pack writes the warm file in dir, which no memcached maps any more, and its metadata
// to a new save at path. The save has reached the disk when Pack returns.
func Pack(ctx context.Context, dir, path string, number int64) error {
	in, header, err := survey(dir, number)
	if err != nil {
		return err
	}
	defer in.Close()
	return snapshot.Write(ctx, in, path, header)
}

// PackedSize is what the save of the warm file in dir takes, in bytes.
func PackedSize(dir string) (int64, error) {
	in, header, err := survey(dir, 1)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	return header.SaveBytes()
}

// Save saves the warm file in memory to the volume at dir. The earlier save is
// outdated; it is removed first if there is no room for both. A *RoomError says that
// there is too little room.
func Save(ctx context.Context, memory, dir string, logf func(string, ...any)) error {
	if Missing(filepath.Join(memory, contract.WarmFile)) {
		return nil
	}
	need, err := PackedSize(memory)
	if err != nil {
		return err
	}
	lacking, err := MakeRoom(dir, need, true, logf)
	if err != nil {
		return err
	}
	if lacking > 0 {
		return &RoomError{need, lacking}
	}
	last, err := LastNumber(dir)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, newSave)
	if err := Pack(ctx, memory, path, last+1); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	if err := os.Rename(path, filepath.Join(dir, contract.SaveFile)); err != nil {
		return err
	}
	return Sync(dir)
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
		case !errors.Is(err, os.ErrNotExist):
			return err
		}
	}
	return nil
}

// Unpack restores the warm file of the save in dir to the directory to, with its .meta
// and its manifest, and checks each page. The warm file gets its name last: without it,
// nothing is there. done, which may be nil, is called with the number of bytes that
// were read.
func Unpack(ctx context.Context, dir, to string, done func(n int64)) error {
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
	err = errors.Join(s.Expand(ctx, out, done), out.Close())
	for name, data := range map[string][]byte{contract.Manifest: s.Manifest, contract.MetaFile: []byte(s.Meta)} {
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
