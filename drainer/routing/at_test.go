package routing

import "testing"

// A server that is dialled at another port keeps its name, in each way in which clients name servers.
func TestAServerDialledAtAnotherPortKeepsItsName(t *testing.T) {
	for name, test := range map[string]struct{ client, server, want string }{
		"no name":                   {"dalli", "a:11300", "a:11300=a:11211"},
		"a name without a port":     {"dalli", "shard=a:11300", "shard:11300=a:11211"},
		"a name that ends in one":   {"dalli", "shard:1=a:11300", "shard:1=a:11211"},
		"twemproxy's alias":         {"twemproxy", "shard=a:11300", "shard=a:11211"},
		"twemproxy, without one":    {"twemproxy", "a:11300", "a:11300=a:11211"},
		"the port that it has":      {"dalli", "shard=a:11211", "shard=a:11211"},
		"back at the port it calls": {"dalli", "a:11211=a:11300", "a:11211"},
	} {
		s, err := ParseServer(test.server)
		if err != nil {
			t.Fatal(err)
		}
		moved := s.At(test.client, 11211)
		if got := moved.Text(); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
		if again, err := ParseServer(moved.Text()); err != nil || again != moved || again.Called(test.client) != s.Called(test.client) {
			t.Errorf("%s: %s is read as %+v, %v", name, moved.Text(), again, err)
		}
	}
}
