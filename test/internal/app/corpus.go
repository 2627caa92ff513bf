package app

import (
	"context"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Object is one thing to cache.
type Object struct {
	Key   string
	Value []byte
	// Flags are the client's. All 32 bits are used.
	Flags uint32
	// TTL is counted from when the object is stored; 0 never expires.
	TTL time.Duration
	// Expires is when the object expires, in Unix seconds. Expires is set when the object is stored.
	Expires int64
}

// ttls are given to the objects in turn: none, an hour, a day, and one that is longer than memcached's limit
// for relative times.
var ttls = []time.Duration{0, time.Hour, 24 * time.Hour, 40 * 24 * time.Hour}

const maxKey = 250

// GoSource returns the folder of the Go distribution's sources.
func GoSource(ctx context.Context) (string, error) {
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("find the Go distribution: %w", err)
	}
	return filepath.Join(strings.TrimSpace(string(root)), "src"), nil
}

// Load returns an object for each file under dir, with its path as the key. left counts the files that don't
// fit an item of maxItem bytes (key, value and header).
func Load(dir string, maxItem int) (objects []Object, left int, err error) {
	return LoadEach(dir, maxItem, 1)
}

// LoadEach returns an object for each n-th file.
func LoadEach(dir string, maxItem, n int) (objects []Object, left int, err error) {
	const header = 64 // memcached's item header, with CAS and flags
	files := 0
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		if files++; files%n != 0 {
			return nil
		}
		key, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		value, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if len(key) > maxKey || len(key)+len(value)+header > maxItem {
			left++
			return nil
		}
		objects = append(objects, Object{
			Key:   key,
			Value: value,
			Flags: crc32.ChecksumIEEE([]byte(key)),
			TTL:   ttls[len(objects)%len(ttls)],
		})
		return nil
	})
	if err != nil {
		return nil, 0, fmt.Errorf("read the objects to cache: %w", err)
	}
	return objects, left, nil
}
