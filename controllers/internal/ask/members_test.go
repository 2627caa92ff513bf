package ask

import (
	"bufio"
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"example.com/memcached-operator/test/wait"
)

// answering serves one connection with this answer, and keeps the connection open.
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
		if line, err := bufio.NewReader(connection).ReadString('\n'); err == nil && line == "stats\r\n" {
			_, _ = connection.Write([]byte(answer))
		}
	}()
	return listener.Addr().String()
}

func TestMemoryIsReadFromAMembersStatistics(t *testing.T) {
	const good = "STAT pid 1\r\nSTAT version 1.6.18\r\nSTAT bytes 700\r\nSTAT limit_maxbytes 1024\r\nEND\r\n"
	for name, test := range map[string]struct {
		answer string
		want   Memory
		err    string
	}{
		"memcached's":               {good, Memory{700, 1024}, ""},
		"cut":                       {strings.TrimSuffix(good, "END\r\n"), Memory{}, "timeout"},
		"no memcached's":            {"HTTP/1.1 400 Bad Request\r\n", Memory{}, "no statistics of memcached"},
		"no numbers":                {"STAT bytes many\r\nEND\r\n", Memory{}, "no statistics of memcached"},
		"less than nothing":         {"STAT bytes -1\r\nSTAT limit_maxbytes 1024\r\nEND\r\n", Memory{}, "is not a number of bytes"},
		"more than there is":        {"STAT bytes 1\r\nSTAT limit_maxbytes 9223372036854775807\r\nEND\r\n", Memory{}, "is not a number of bytes"},
		"what it holds is missing":  {"STAT limit_maxbytes 1024\r\nEND\r\n", Memory{}, "no statistics of memcached"},
		"statistics without end":    {strings.Repeat("STAT pid 1\r\n", 1<<20), Memory{}, "more than 65536 bytes"},
		"a line without end":        {strings.Repeat("x", 1<<20), Memory{}, "token too long"},
		"it wants to know who asks": {"CLIENT_ERROR unauthenticated\r\n", Memory{}, "no statistics of memcached"},
	} {
		patience := wait.Long
		if test.err == "timeout" {
			patience = 300 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		got, err := MemoryFromStats(ctx, answering(t, test.answer))
		cancel()
		if got != test.want || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
}

func TestAMemberHasAMomentToAnswer(t *testing.T) {
	since := time.Unix(1000, 0)
	for name, test := range map[string]struct {
		sample sample[Memory]
		after  time.Duration
		want   Answer
	}{
		"not yet":             {sample[Memory]{Since: since}, memoryPatience / 2, Answer{Wait: memoryPatience / 2}},
		"too late":            {sample[Memory]{Since: since}, memoryPatience, Answer{Err: "no answer within 2s"}},
		"it says":             {sample[Memory]{Since: since, Known: true, Value: Memory{7, 10}}, 0, Answer{Memory: Memory{7, 10}}},
		"it can't":            {sample[Memory]{Since: since, Known: true, Err: "refused"}, 0, Answer{Err: "refused"}},
		"it says, long after": {sample[Memory]{Since: since, Known: true, Value: Memory{7, 10}}, time.Hour, Answer{Memory: Memory{7, 10}}},
	} {
		if got := answerOf(test.sample, since.Add(test.after)); got != test.want {
			t.Errorf("%s: got %+v, want %+v", name, got, test.want)
		}
	}
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
