package status_test

import (
	"strings"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/ringchange"
	"example.com/memcached-operator/drainer/router/status"
	"example.com/memcached-operator/drainer/routing"
	"example.com/memcached-operator/drainer/wire"
)

var members = []routing.Server{{Host: "a", Port: 1}, {Host: "b", Port: 1}}

// loop returns a loop that serves; for each member, "" means connected, and another text why it isn't.
func loop(why ...string) status.Loop {
	l := status.Loop{Serves: true, Connections: map[string]status.Connection{}}
	for i, w := range why {
		l.Connections[members[i].Address()] = status.Connection{Why: w}
	}
	return l
}

func boards(loops ...status.Loop) (all status.Boards) {
	for _, l := range loops {
		b := &status.Board{}
		b.Update(func(own *status.Loop) { *own = l })
		all = append(all, b)
	}
	return all
}

func TestARouterIsReadyWhenAllMembersWereTriedAndOneIsConnected(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		loops []status.Loop
		want  bool
	}{
		"all are connected":             {[]status.Loop{loop("", ""), loop("", "")}, true},
		"one is dead":                   {[]status.Loop{loop("", "refused"), loop("", "refused")}, true},
		"all are dead":                  {[]status.Loop{loop("refused", "refused")}, false},
		"a loop has not tried one":      {[]status.Loop{loop("", ""), loop("", status.Untried)}, false},
		"a loop does not know one":      {[]status.Loop{loop("", ""), loop("")}, false},
		"a loop has no table":           {[]status.Loop{loop("", ""), {Connections: loop("", "").Connections}}, false},
		"no loop has published a thing": {[]status.Loop{{}}, false},
	} {
		if err := boards(c.loops...).Ready(members); (err == nil) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestATableIsAcknowledgedByTheLastLoop(t *testing.T) {
	t.Parallel()
	at := func(number int64, why string) status.Loop {
		return status.Loop{Acknowledged: number, WaitsFor: why}
	}
	number, why := boards(at(3, ""), at(1, "two requests"), at(2, "one request")).Acknowledged(3)
	if number != 1 || why != "two requests" {
		t.Errorf("%d, %q", number, why)
	}
	if number, why := boards(at(3, ""), at(3, "")).Acknowledged(3); number != 3 || why != "" {
		t.Errorf("%d, %q", number, why)
	}
}

func TestStatisticsAreOfAllStates(t *testing.T) {
	t.Parallel()
	s := status.Statistics{Began: time.Now(), Version: "VERSION 1.6.38\r\n", Connected: 2, Accepted: 3, Threads: 4}
	for _, state := range []ringchange.State{ringchange.Stable, ringchange.Move} {
		s.Counts.Count(state, wire.Get, wire.Value, 10, 1)
		s.Counts.Count(state, wire.MetaGet, wire.Miss, 10, 1)
	}
	got := s.Answer()
	for _, line := range []string{"version 1.6.38", "curr_connections 2", "total_connections 3", "threads 4",
		"cmd_get 4", "get_hits 2", "get_misses 2", "bytes_written 40"} {
		if !strings.Contains(got, "STAT "+line+"\r\n") {
			t.Errorf("%q is not in %q", line, got)
		}
	}
	if !strings.HasSuffix(got, "\r\nEND\r\n") {
		t.Errorf("it ends with %q", got)
	}
}

func TestAMembersTrafficIsThatOfAllLoops(t *testing.T) {
	t.Parallel()
	one, other := loop("", "refused"), loop("", "")
	one.Connections[members[0].Address()] = status.Connection{Traffic: status.Traffic{Sent: 1}}
	other.Connections[members[0].Address()] = status.Connection{Traffic: status.Traffic{Sent: 2}}
	got := boards(one, other).Members(members)
	if len(got) != 2 || got[0].Traffic.Sent != 3 || got[0].Connections != 2 || got[1].Connections != 1 {
		t.Errorf("%+v", got)
	}
}
