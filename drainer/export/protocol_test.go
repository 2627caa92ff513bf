package export

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/test/wait"
)

var examples = []item.Item{
	{Key: []byte("k"), Value: []byte("value"), CAS: 7, Flags: 1 << 40, ExpireAt: 1e9, LastAccess: -1},
	{Key: bytes.Repeat([]byte{0xff}, 250), Value: []byte{}, BinaryKey: true, State: item.Invalidated},
}

// The items follow one another.
func TestItemsAreReadAsTheyAreWritten(t *testing.T) {
	var b []byte
	for i := range examples {
		b = AppendItem(b, &examples[i])
	}
	for i := range examples {
		var got item.Item
		var err error
		if b, err = NextItem(b, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(examples[i], got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
	if len(b) > 0 {
		t.Errorf("%d bytes are left", len(b))
	}
}

// Any input is an item in the format of Append, or an error.
func FuzzNext(f *testing.F) {
	for i := range examples {
		f.Add(AppendItem(nil, &examples[i]))
	}
	f.Add(bytes.Repeat([]byte{0xff}, 100))
	f.Fuzz(func(t *testing.T, b []byte) {
		var it item.Item
		rest, err := NextItem(b, &it)
		if err != nil {
			return
		}
		if len(it.Key) == 0 || len(it.Key) > 250 || it.State > item.Invalidated {
			t.Errorf("%+v", it)
		}
		again := AppendItem(nil, &it)
		read := bytes.Clone(b[:len(b)-len(rest)])
		copy(read[6:8], []byte{0, 0}) // unused
		if !bytes.Equal(again, read) {
			t.Errorf("%x is written as %x", read, again)
		}
	})
}

// A supervisor sends arbitrary bytes. The mover ends, and yields only possible items.
func FuzzStream(f *testing.F) {
	frame := func(kind byte, b []byte) []byte {
		b = append(make([]byte, FrameHead), b...)
		PutHead(b, kind)
		return b
	}
	f.Add([]byte(OK + "{}\r\n"))
	f.Add(append([]byte(OK+`{"expected":-5}`+"\r\n"), frame(Items, AppendItem(nil, &examples[0]))...))
	f.Add(append([]byte(OK+"{}\r\n"), frame(Ended, []byte(`{"complete":true}`))...))
	f.Add(append([]byte(OK+"{}\r\n"), frame(Ended, []byte(`{`))...))
	f.Add(append([]byte(OK+"{}\r\n"), Items, 0xff, 0xff, 0xff, 0x3f))
	f.Add([]byte("SERVER_ERROR no\r\n"))
	f.Fuzz(func(t *testing.T, answer []byte) {
		address := says(t, answer)
		s, err := Open(t.Context(), memcache.Dialer{}, address, &Request{}, wait.Long)
		if err != nil {
			return
		}
		defer s.Close()
		if s.Expected < 0 {
			t.Errorf("%d are expected", s.Expected)
		}
		ended := false
		for it, err := range s.Items() {
			if ended || err == nil && len(it.Key) == 0 {
				t.Errorf("%+v, %v", it, err)
			}
			ended = err != nil
		}
	})
}

// says accepts one connection, and sends the answer whatever it is asked: bytes, with pauses in between.
func says(t *testing.T, answer ...any) (address string) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", filepath.Join(t.TempDir(), "socket"))
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer listener.Close()
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		for _, part := range answer {
			switch part := part.(type) {
			case []byte:
				_, _ = conn.Write(part)
			case time.Duration:
				time.Sleep(part)
			}
		}
		_ = conn.(*net.UnixConn).CloseWrite()
		_ = conn.SetReadDeadline(wait.Deadline())
		for b := make([]byte, 1<<10); err == nil; {
			_, err = conn.Read(b)
		}
	}()
	return listener.Addr().String()
}

// The head of a frame may have any size in it.
func TestAFrameTakesMemoryWhenItComes(t *testing.T) {
	head := []byte{Items, 0, 0, 0, 0}
	binary.LittleEndian.PutUint32(head[1:], maxFrame)
	address := says(t, append([]byte(OK+"{}\r\n"), head...))
	s, err := Open(t.Context(), memcache.Dialer{}, address, &Request{}, wait.Long)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, err := range s.Items() {
		if err == nil {
			t.Error("it yields an item")
		}
	}
	runtime.ReadMemStats(&after)
	if taken := after.TotalAlloc - before.TotalAlloc; taken > 16<<20 {
		t.Errorf("%d bytes", taken)
	}
}

// A slow supervisor scans the file for longer than it may be silent later. In a pass without items it reports
// that it goes on.
func TestASupervisorThatIsSlow(t *testing.T) {
	wait.AtSomeSpeed(t, 150*time.Millisecond, func(rest time.Duration) error { return slowSupervisor(t, rest) })
}

// slowSupervisor pauses for three quarters of the time that it may be silent.
func slowSupervisor(t *testing.T, rest time.Duration) error {
	t.Helper()
	silence := rest / 3 * 4
	nothing, end := make([]byte, FrameHead), append(make([]byte, FrameHead), `{"complete":true}`...)
	PutHead(nothing, Items)
	PutHead(end, Ended)
	address := says(t, 2*rest, []byte(OK+"{}\r\n"), rest, nothing, rest, end)
	s, err := Open(t.Context(), memcache.Dialer{}, address, &Request{}, silence)
	if err != nil {
		return err
	}
	defer s.Close()
	for it, err := range s.Items() {
		return fmt.Errorf("%+v, %w", it, err)
	}
	if !s.Complete {
		return fmt.Errorf("%+v", s.End)
	}
	return nil
}

// A large frame is read as a whole.
func TestALargeFrame(t *testing.T) {
	it := item.Item{Key: []byte("k"), Value: bytes.Repeat([]byte("large "), 1<<20)}
	frame := AppendItem(make([]byte, FrameHead), &it)
	PutHead(frame, Items)
	end := append(make([]byte, FrameHead), `{"items":1,"complete":true}`...)
	PutHead(end, Ended)
	s, err := Open(t.Context(), memcache.Dialer{}, says(t, bytes.Join([][]byte{[]byte(OK + "{}\r\n"), frame, end}, nil)), &Request{}, wait.Long)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	n := 0
	for got, err := range s.Items() {
		if n++; err != nil || !bytes.Equal(got.Value, it.Value) {
			t.Errorf("%v", err)
		}
	}
	if n != 1 || !s.Complete {
		t.Errorf("%d items, %+v", n, s.End)
	}
}
