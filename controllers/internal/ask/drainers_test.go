package ask

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"example.com/memcached-operator/drainer/contract"
)

func TestProgressIsTheLogsLastProgressLine(t *testing.T) {
	line := func(n int) string { return fmt.Sprintf(`{"phase":"Adding","itemsDone":%d,"bytesDone":0}`, n) }
	for name, test := range map[string]struct {
		log  string
		want *contract.Progress
	}{
		"none":                     {"", nil},
		"the last":                 {line(1) + "\n" + line(2) + "\n", &contract.Progress{Phase: "Adding", ItemsDone: 2}},
		"a message follows it":     {line(2) + "\nwaiting for cache-1\n", &contract.Progress{Phase: "Adding", ItemsDone: 2}},
		"the last is cut":          {line(1) + "\n" + line(2)[:20], &contract.Progress{Phase: "Adding", ItemsDone: 1}},
		"JSON, but not a progress": {`{"level":"info"}` + "\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, lastProgress([]byte(test.log))); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestALogIsInputOfAnyClient(t *testing.T) {
	good := contract.Progress{Phase: "Adding", ItemsDone: 2}
	const line = `{"phase":"Adding","itemsDone":2,"bytesDone":0}`
	for name, bad := range map[string]string{
		"a negative number of items":  `{"phase":"Adding","itemsDone":-1}`,
		"a negative number of bytes":  `{"phase":"Adding","bytesTotal":-1}`,
		"more items than there are":   fmt.Sprintf(`{"phase":"Adding","itemsTotal":%d}`, int64(math.MaxInt64)),
		"more bytes than there are":   `{"phase":"Adding","bytesDone":70368744177665}`,
		"a number that is none":       `{"phase":"Adding","itemsDone":1e400}`,
		"time that runs backwards":    `{"phase":"Adding","seconds":-1}`,
		"more time than there is":     `{"phase":"Adding","seconds":1e300}`,
		"no time":                     `{"phase":"Adding","seconds":NaN}`,
		"a phase without an end":      `{"phase":"` + strings.Repeat("x", 100) + `"}`,
		"a line of a mebibyte":        `{"phase":"Adding","message":"` + strings.Repeat("x", 1<<20) + `"}`,
		"a list":                      `[{"phase":"Adding"}]`,
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
	p := lastProgress([]byte(`{"phase":"Adding","message":"` + message + `"}`))
	if p == nil || len(p.Message) > 1<<10 || !utf8.ValidString(p.Message) || strings.ContainsAny(p.Message, "\x00\n\x1b") {
		t.Errorf("got %+v", p)
	}
}

func FuzzProgress(f *testing.F) {
	f.Add([]byte(`{"phase":"Adding","itemsDone":2,"bytesDone":1,"seconds":3.5,"message":"waiting"}`))
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

func lastProgress(log []byte) *contract.Progress { return lastLine(log, progressOf) }
