package drainertest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/warmfile"
)

// longer is how many seconds Age adds to the time that a memcached has run.
const longer = 24 * 3600

var minutesAgo = regexp.MustCompile(`used:(\d+)minutes-ago`)

// AgedKey returns one of the keys of the items that Age makes that old.
func AgedKey(minutes, i int) string { return fmt.Sprintf("used:%dminutes-ago:%05d", minutes, i) }

// MinutesOf returns the minutes of a key of AgedKey.
func MinutesOf(t *testing.T, key []byte) int {
	t.Helper()
	found := minutesAgo.FindSubmatch(key)
	if found == nil {
		t.Fatalf("key %q", key)
	}
	minutes, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return minutes
}

// Age restarts memcached with a file in which every item was last used when its key says.
func Age(t *testing.T, m *memcachedtest.Mapped) {
	t.Helper()
	m.Save()
	meta, now := m.Path+".meta", uint32(0)
	edit(t, meta, func(text []byte) []byte {
		return regexp.MustCompile(`(?m)^K(current_time|process_started) (\d+)$`).ReplaceAllFunc(text, func(line []byte) []byte {
			name, number, _ := bytes.Cut(line, []byte(" "))
			n, err := strconv.ParseInt(string(number), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			if string(name) == "Kcurrent_time" {
				now = uint32(n + longer)
				return fmt.Appendf(nil, "%s %d", name, now)
			}
			return fmt.Appendf(nil, "%s %d", name, n-longer)
		})
	})
	edit(t, m.Path, func(file []byte) []byte {
		for _, at := range minutesAgo.FindAllIndex(file, -1) {
			minutes := MinutesOf(t, file[at[0]:at[1]])
			binary.LittleEndian.PutUint32(file[at[0]-warmfile.HeadBytes+warmfile.WordTimes:], now-uint32(minutes)*60)
		}
		return file
	})
	time.Sleep(1100 * time.Millisecond) // it only restarts warm in a later second
	m.Restart()
}

// edit changes a file in place.
func edit(t *testing.T, path string, change func([]byte) []byte) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, change(text), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
