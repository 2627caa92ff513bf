package process

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func testDir(t *testing.T) Dir {
	t.Helper()
	return Dir{Pids: t.TempDir(), Logs: t.TempDir()}
}

func startSleep(t *testing.T, dir Dir) *Process {
	t.Helper()
	process, err := dir.Start(Spec{Name: "sleeper", Args: []string{"sleep", "60"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = End(context.Background(), 0, process.ID) })
	return process
}

func TestStartedProcessIsRecordedAndEnded(t *testing.T) {
	dir := testDir(t)
	process := startSleep(t, dir)
	recorded := dir.Recorded()["sleeper"]
	if recorded != process.ID || !recorded.Alive() {
		t.Fatalf("want the pid file to name %v, got %v", process.ID, recorded)
	}
	if err := End(t.Context(), 5*time.Second, recorded); err != nil {
		t.Fatal(err)
	}
	if recorded.Alive() {
		t.Error("still alive after End")
	}
}

func TestReusedPidIsNotKilled(t *testing.T) {
	process := startSleep(t, testDir(t))
	for name, other := range map[string]ID{
		"started at another time": {PID: process.PID, Start: process.Start + 1, Boot: process.Boot},
		"of another boot":         {PID: process.PID, Start: process.Start, Boot: "earlier"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := End(t.Context(), 0, other); err != nil {
				t.Errorf("a process that is gone is ended: %v", err)
			}
			if !process.Alive() {
				t.Error("a process with the same pid was killed")
			}
		})
	}
}

func TestProgramDoesNotKeepItsCallersFilesOpen(t *testing.T) {
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	// Like a file that a shell hands down, this one is not close-on-exec.
	inherited, err := dupWithoutCloseOnExec(writer)
	if err != nil {
		t.Fatal(err)
	}
	process := startSleep(t, testDir(t))
	_ = writer.Close()
	_ = inherited.Close()
	if _, err := reader.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("want the end of the pipe, because %d doesn't have it open; got %v", process.PID, err)
	}
}

func TestParseIDRefusesWhatIsNoPidFile(t *testing.T) {
	for _, text := range []string{"", "12", "0 5 boot", "1 5 boot", "-3 5 boot", "x 5 boot", "12 x boot", "12 5 boot more"} {
		if id, err := ParseID(text); err == nil {
			t.Errorf("%q: want an error, got %v", text, id)
		}
	}
	want := ID{PID: 12, Start: 5, Boot: "boot"}
	if got, err := ParseID(want.String()); err != nil || got != want {
		t.Errorf("want %v back, got %v, %v", want, got, err)
	}
}

func TestParseStatWithParenthesesInTheName(t *testing.T) {
	stat := "42 (a) R (b) S 1 " + strings.Repeat("0 ", 17) + "12345 0 0"
	state, start, err := parseStat(stat)
	if err != nil || state != "S" || start != 12345 {
		t.Errorf("want S 12345, got %s %d %v", state, start, err)
	}
}

func TestTheLastLinesOfALogAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte("a\nb\nc\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for n, want := range map[int]string{1: "c", 2: "b\nc", 9: "a\nb\nc"} {
		if got := LastLines(path, n); got != want {
			t.Errorf("%d lines: want %q, got %q", n, want, got)
		}
	}
}
