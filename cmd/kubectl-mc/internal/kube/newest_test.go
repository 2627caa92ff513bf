package kube

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestOfALongLogTheNewestLinesStay(t *testing.T) {
	n := newest{most: 100 * len("line 0000")}
	began := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for i := range 1000 {
		n.add(Line{At: began.Add(time.Duration(i) * time.Second), From: "cache-0/memcached", Text: fmt.Sprintf("line %04d", i), Program: "memcached"})
		if i == 99 && (len(n.all()) != 100 || n.all()[0].Cut) {
			t.Fatalf("a short log has %d lines: %+v", len(n.all()), n.all()[0])
		}
	}
	got := n.all()
	if len(got) != 101 || got[100].Text != "line 0999" || got[1].Text != "line 0900" {
		t.Fatalf("%d lines, from %+v to %+v", len(got), got[0], got[len(got)-1])
	}
	if !got[0].Cut || !strings.Contains(got[0].Text, "900 older lines") || !got[0].At.Equal(got[1].At) || got[0].From != got[1].From {
		t.Errorf("the first line doesn't say that the log is cut: %+v", got[0])
	}
}
