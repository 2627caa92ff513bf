package stsdrain

import "testing"

func TestANameTellsTheTemplateAndTheOrdinal(t *testing.T) {
	for name, want := range map[string]ClaimName{
		ClaimNameOf("queue", "data", 0):                                   {"data", 0, false},
		ClaimNameOf("queue", "data-queue-1", 12):                          {"data-queue-1", 12, false},
		ClaimNameOf("queue", "d", 2147483647):                             {"d", 2147483647, false},
		AsideName(ClaimNameOf("queue", "data", 3), "uid"):                 {"data", 3, true},
		AsideName(ClaimNameOf("queue", "x-aside-01234567", 3), "uid"):     {"x-aside-01234567", 3, true},
		ClaimNameOf("queue", "x-aside-01234567", 3):                       {"x-aside-01234567", 3, false},
		AsideName(ClaimNameOf("queue", "data-queue-1-aside", 3), "other"): {"data-queue-1-aside", 3, true},
	} {
		if got, is := ParseClaimName("queue", name); !is || got != want {
			t.Errorf("%s: got %+v, %v, want %+v", name, got, is, want)
		}
	}
	// A StatefulSet may have such a name.
	if got, is := ParseClaimName("a-1-aside-01234567", ClaimNameOf("a-1-aside-01234567", "data", 2)); !is || got != (ClaimName{"data", 2, false}) {
		t.Errorf("got %+v, %v", got, is)
	}
	if got, is := PodOrdinal("queue", PodName("queue", 7)); !is || got != 7 {
		t.Errorf("got %d, %v", got, is)
	}
}

func TestOtherNamesAreNoMembers(t *testing.T) {
	for _, name := range []string{
		"", "-", "queue-1", "-queue-1", "data-queue", "data-queue-", "data-queue-01", "data-queue--1", "data-queue-2147483648", "data-queue-1-2",
		"data-aqueue-1", "data-queue-1-aside-0123456", "data-queue-1-aside-0123456x", "data-queue-x-aside-01234567",
	} {
		if c, is := ParseClaimName("queue", name); is {
			t.Errorf("%s: %+v", name, c)
		}
	}
	for _, name := range []string{"queue", "queue-", "queue-x", "queue-01", "other-1", "queue-1-1"} {
		if n, is := PodOrdinal("queue", name); is {
			t.Errorf("%s: %d", name, n)
		}
	}
}

// A claim that was deleted and made again has another claim beside it.
func TestAnAsideNameIsOfOneClaim(t *testing.T) {
	if a, b := AsideName("data-queue-1", "first"), AsideName("data-queue-1", "second"); a == b {
		t.Errorf("both are %s", a)
	}
}
