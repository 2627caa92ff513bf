package kube

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

func TestOfALongLogTheNewestLinesStay(t *testing.T) {
	var log strings.Builder
	const lines = 1000
	for i := range lines {
		fmt.Fprintf(&log, "2030-01-02T03:%02d:%02d.5Z line %04d\n", i/60, i%60, i)
	}
	got, err := newest(strings.NewReader(log.String()), "cache-0/memcached", "memcached", 100*len("line 0000"))
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 101 || got[100].Text != "line 0999" || got[1].Text != "line 0900" || got[1].Program != "memcached" {
		t.Fatalf("%d lines, from %+v to %+v", len(got), got[0], got[len(got)-1])
	}
	if !got[0].Cut || !strings.Contains(got[0].Text, "900 older lines") || !got[0].At.Equal(got[1].At) {
		t.Errorf("the first line doesn't say that the log is cut: %+v", got[0])
	}
	if whole, err := newest(strings.NewReader(log.String()), "cache-0/memcached", "memcached", mostLog); err != nil || len(whole) != lines || whole[0].Cut {
		t.Errorf("of a short log: %d lines, %v", len(whole), err)
	}
	long := "2030-01-02T03:04:05Z " + strings.Repeat("a", 3*longestLine) + "\n2030-01-02T03:04:06Z next\n"
	if got, err := newest(strings.NewReader(long), "cache-0/memcached", "memcached", mostLog); err != nil || len(got) != 2 || got[1].Text != "next" {
		t.Errorf("after a line that is too long: %d lines, %v", len(got), err)
	}
	broken := errors.New("the connection is lost")
	got, err = newest(io.MultiReader(strings.NewReader(log.String()), failing{broken}), "cache-0/memcached", "memcached", mostLog)
	if !errors.Is(err, broken) || len(got) != lines {
		t.Errorf("of a log that breaks off: %d lines, %v", len(got), err)
	}
}

type failing struct{ error }

func (f failing) Read([]byte) (int, error) { return 0, f.error }
