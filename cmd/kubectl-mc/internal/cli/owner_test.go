package cli

import (
	"testing"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// Items on a volume still come to their owner: a key that a person has just deleted there comes back.
func TestAPersonIsWarnedOfItemsThatAreNotAtTheirOwners(t *testing.T) {
	for _, test := range []struct{ moving, draining, want int32 }{{0, 0, 0}, {1, 0, 1}, {0, 1, 1}, {1, 1, 2}} {
		m := &cachev1alpha1.Memcached{}
		m.Status.Moving, m.Status.Draining = test.moving, test.draining
		if got := elsewhere(m); len(got) != int(test.want) {
			t.Errorf("%+v: %q", test, got)
		}
	}
}

func TestAValueDoesNotSteerTheTerminal(t *testing.T) {
	for value, want := range map[string]string{
		"plain\n\ttext\n":         "plain\n\ttext\n",
		"a\x1b]0;title\x07b\r\nc": `a\x1b]0;title\ab\r` + "\nc",
		"":                        "",
	} {
		if got := string(harmless([]byte(value))); got != want {
			t.Errorf("%q is shown as %q, want %q", value, got, want)
		}
	}
}
