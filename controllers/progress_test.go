package controllers

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"example.com/memcached-operator/drainer/contract"
)

func TestALogIsAnybodysInput(t *testing.T) {
	good := contract.Progress{Phase: "Moving", ItemsDone: 2}
	const line = `{"phase":"Moving","itemsDone":2,"bytesDone":0}`
	for name, bad := range map[string]string{
		"a negative number of items":  `{"phase":"Moving","itemsDone":-1}`,
		"a negative number of bytes":  `{"phase":"Moving","bytesTotal":-1}`,
		"more items than there are":   fmt.Sprintf(`{"phase":"Moving","itemsTotal":%d}`, int64(math.MaxInt64)),
		"more bytes than there are":   `{"phase":"Moving","bytesDone":70368744177665}`,
		"a number that is none":       `{"phase":"Moving","itemsDone":1e400}`,
		"time that runs backwards":    `{"phase":"Moving","seconds":-1}`,
		"more time than there is":     `{"phase":"Moving","seconds":1e300}`,
		"no time":                     `{"phase":"Moving","seconds":NaN}`,
		"a phase without an end":      `{"phase":"` + strings.Repeat("x", 100) + `"}`,
		"a line of a mebibyte":        `{"phase":"Moving","message":"` + strings.Repeat("x", 1<<20) + `"}`,
		"a list":                      `[{"phase":"Moving"}]`,
		"nested deeper than anything": strings.Repeat("[", 4000),
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(&good, lastProgress([]byte(line+"\n"+bad+"\n"))); diff != "" {
				t.Errorf("the good line before it counts; -want +got:\n%s", diff)
			}
		})
	}
}

func TestAProgressMessageIsBoundedAndOnOneLine(t *testing.T) {
	message := strings.Repeat("é", 1000) + `\u0000\n\u001b[31m`
	p := lastProgress([]byte(`{"phase":"Moving","message":"` + message + `"}`))
	if p == nil || len(p.Message) > 1<<10 || !utf8.ValidString(p.Message) || strings.ContainsAny(p.Message, "\x00\n\x1b") {
		t.Errorf("got %+v", p)
	}
}

func FuzzProgress(f *testing.F) {
	f.Add([]byte(`{"phase":"Moving","itemsDone":2,"bytesDone":1,"seconds":3.5,"message":"waiting"}`))
	f.Add([]byte("{\"phase\":\"x\"}\n\xff\n{"))
	f.Fuzz(func(t *testing.T, log []byte) {
		p := lastProgress(log)
		if p == nil {
			return
		}
		for _, n := range []int64{p.ItemsDone, p.ItemsTotal, p.BytesDone, p.BytesTotal} {
			if n < 0 || n > maxProgressCount {
				t.Errorf("a count of %d", n)
			}
		}
		if math.IsNaN(p.Seconds) || p.Seconds < 0 || p.Seconds > maxProgressSeconds || len(p.Phase) > maxProgressPhase ||
			len(p.Message) > maxProgressMessage || !utf8.ValidString(p.Message) {
			t.Errorf("%+v", p)
		}
	})
}

func FuzzMemory(f *testing.F) {
	f.Add([]byte("STAT bytes 700\r\nSTAT limit_maxbytes 1024\r\nEND\r\n"))
	f.Add([]byte("STAT bytes -1\r\nSTAT limit_maxbytes 9223372036854775807\r\nEND\r\n"))
	f.Fuzz(func(t *testing.T, answer []byte) {
		memory, err := readMemory(strings.NewReader(string(answer)))
		if err == nil && (memory.Used < 0 || memory.Limit <= 0 || memory.Used > maxMemory || memory.Limit > maxMemory) {
			t.Errorf("%+v", memory)
		}
		if err != nil && len(err.Error()) > 1<<10 {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
	})
}
