package ask

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/memcached-operator/controllers/internal/forecast"
	"example.com/memcached-operator/test/wait"
)

// answering serves one connection with this answer to all questions, and keeps the connection open.
func answering(t *testing.T, answer string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		connection, err := listener.Accept()
		if err != nil {
			return
		}
		t.Cleanup(func() { _ = connection.Close() })
		const questions = "stats\r\nstats slabs\r\nstats items\r\n"
		asked := make([]byte, len(questions))
		if _, err := io.ReadFull(connection, asked); err == nil && string(asked) == questions {
			_, _ = connection.Write([]byte(answer))
		}
	}()
	return listener.Addr().String()
}

func TestMemoryIsReadFromAMembersStatistics(t *testing.T) {
	const (
		good  = "STAT pid 1\r\nSTAT version 1.6.18\r\nSTAT curr_items 3\r\nSTAT bytes 700\r\nSTAT limit_maxbytes 1024\r\nEND\r\n"
		slabs = "STAT 2:chunk_size 120\r\nSTAT 2:chunks_per_page 8738\r\nSTAT 2:total_pages 1\r\nSTAT 2:used_chunks 3\r\nSTAT active_slabs 1\r\nEND\r\n"
		items = "STAT items:2:number 3\r\nSTAT items:2:mem_requested 300\r\nEND\r\n"
	)
	bytes := forecast.Holds{Items: 3, Bytes: 700, Limit: 1024}
	classes := bytes
	classes.Classes = map[int64]forecast.Class{120: {PerPage: 8738, Pages: 1, Chunks: 3, Items: 3, Bytes: 300}}
	many := &strings.Builder{}
	for i := range 64 {
		fmt.Fprintf(many, "STAT %d:chunk_size %d\r\nSTAT %d:chunks_per_page 1\r\n", i, 1+i, i)
	}
	for name, test := range map[string]struct {
		answer string
		want   forecast.Holds
		err    string
	}{
		"memcached's":               {good + slabs + items, classes, ""},
		"it has no item":            {good + "STAT active_slabs 0\r\nSTAT total_malloced 0\r\nEND\r\nEND\r\n", bytes, ""},
		"classes are refused":       {good + "CLIENT_ERROR unknown\r\nERROR\r\n", bytes, ""},
		"their items are refused":   {good + slabs + "ERROR\r\n", bytes, ""},
		"more classes than it has":  {good + many.String() + "END\r\n" + items, bytes, ""},
		"cut":                       {strings.TrimSuffix(good, "END\r\n"), forecast.Holds{}, "timeout"},
		"its classes are cut":       {good + strings.TrimSuffix(slabs, "END\r\n"), forecast.Holds{}, "timeout"},
		"no memcached's":            {"HTTP/1.1 400 Bad Request\r\n", forecast.Holds{}, "no statistics of memcached"},
		"no numbers":                {strings.Replace(good, "700", "many", 1), forecast.Holds{}, "no statistics of memcached"},
		"less than nothing":         {strings.Replace(good, "700", "-1", 1), forecast.Holds{}, "is not its number"},
		"more than there is":        {strings.Replace(good, "1024", "9223372036854775807", 1), forecast.Holds{}, "is not its number"},
		"it may hold nothing":       {strings.Replace(good, "1024", "0", 1), forecast.Holds{}, "no statistics of memcached"},
		"what it holds is missing":  {"STAT limit_maxbytes 1024\r\nEND\r\n", forecast.Holds{}, "no statistics of memcached"},
		"statistics without end":    {strings.Repeat("STAT pid 1\r\n", 1<<20), forecast.Holds{}, "more than 262144 bytes"},
		"classes without end":       {good + strings.Repeat("STAT 2:chunk_size 120\r\n", 1<<20), forecast.Holds{}, "more than 262144 bytes"},
		"a line without end":        {strings.Repeat("x", 1<<20), forecast.Holds{}, "token too long"},
		"it wants to know who asks": {"CLIENT_ERROR unauthenticated\r\n", forecast.Holds{}, "no statistics of memcached"},
	} {
		patience := wait.Long
		if test.err == "timeout" {
			patience = 300 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		got, err := MemoryFromStats(ctx, answering(t, test.answer))
		cancel()
		if diff := cmp.Diff(test.want, got); diff != "" || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s: %v, -want +got:\n%s", name, err, diff)
		}
	}
}

func TestAMemberHasAMomentToAnswer(t *testing.T) {
	since, holds := time.Unix(1000, 0), forecast.Holds{Bytes: 7, Limit: 10, Classes: map[int64]forecast.Class{96: {Pages: 1}}}
	for name, test := range map[string]struct {
		sample sample[forecast.Holds]
		after  time.Duration
		want   Answer
	}{
		"not yet":             {sample[forecast.Holds]{Since: since}, memoryPatience / 2, Answer{Wait: memoryPatience / 2}},
		"too late":            {sample[forecast.Holds]{Since: since}, memoryPatience, Answer{Err: "no answer within 2s"}},
		"it says":             {sample[forecast.Holds]{Since: since, Known: true, Value: holds}, 0, Answer{Holds: holds}},
		"it can't":            {sample[forecast.Holds]{Since: since, Known: true, Err: "refused"}, 0, Answer{Err: "refused"}},
		"it says, long after": {sample[forecast.Holds]{Since: since, Known: true, Value: holds}, time.Hour, Answer{Holds: holds}},
	} {
		if diff := cmp.Diff(test.want, answerOf(test.sample, since.Add(test.after))); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}

func FuzzMemory(f *testing.F) {
	f.Add([]byte("STAT curr_items 1\r\nSTAT bytes 700\r\nSTAT limit_maxbytes 1024\r\nEND\r\nSTAT 1:chunk_size 96\r\nSTAT 1:chunks_per_page 10922\r\nEND\r\nEND\r\n"))
	f.Add([]byte("STAT bytes -1\r\nSTAT limit_maxbytes 9223372036854775807\r\nEND\r\n"))
	f.Fuzz(func(t *testing.T, answer []byte) {
		memory, err := readMemory(strings.NewReader(string(answer)))
		if err == nil && (memory.Bytes < 0 || memory.Limit <= 0 || memory.Bytes > maxMemory || memory.Limit > maxMemory || len(memory.Classes) > 63) {
			t.Errorf("%+v", memory)
		}
		if err != nil && len(err.Error()) > 1<<10 {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
	})
}
