package build

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"example.com/memcached-operator/api/v1alpha1/apitest"
)

func TestOrdinalsParseOnlyFromTheClustersOwnNames(t *testing.T) {
	type result struct {
		Ordinal int32
		OK      bool
	}
	for name, want := range map[string]result{
		"data-cache-0":           {0, true},
		"data-cache-511":         {511, true},
		"data-cache-01":          {},
		"data-cache-+1":          {},
		"data-cache--1":          {},
		"data-cache-":            {},
		"data-cache":             {},
		"data-cache-one":         {},
		"data-cache-1-2":         {}, // the second claim of a cluster named cache-1
		"data-other-1":           {},
		"cache-1":                {},
		"data-cache-2147483648":  {},
		"data-cache-99999999999": {},
	} {
		var got result
		got.Ordinal, got.OK = ClaimOrdinal("cache", name)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("ClaimOrdinal(%q): -want +got:\n%s", name, diff)
		}
		got.Ordinal, got.OK = PodOrdinal("cache", strings.TrimPrefix(name, "data-"))
		if strings.HasPrefix(name, "data-") && got != want {
			t.Errorf("PodOrdinal(%q): %v, want %v", name, got, want)
		}
	}
}

func TestNamesRoundTripForEveryClusterName(t *testing.T) {
	for _, cluster := range []string{"c", "cache", "cache-1", "a-0-b", strings.Repeat("x", 52)} {
		for _, ordinal := range []int32{0, 1, 9, 10, 511} {
			if got, ok := ClaimOrdinal(cluster, ClaimName(cluster, ordinal)); !ok || got != ordinal {
				t.Errorf("claim %s %d: got %d %v", cluster, ordinal, got, ok)
			}
			if got, ok := PodOrdinal(cluster, PodName(cluster, ordinal)); !ok || got != ordinal {
				t.Errorf("pod %s %d: got %d %v", cluster, ordinal, got, ok)
			}
		}
	}
}

func TestAsideNameTellsItsOrdinalAndIsNoMembers(t *testing.T) {
	for _, cluster := range []string{"c", "cache", "cache-1", "a-aside-0", strings.Repeat("x", 52)} {
		for _, ordinal := range []int32{0, 10, 511} {
			name := AsideName(cluster, ordinal, "50d9cc1e-4bd9-4e74-a363-6ee715daf100")
			if got, ok := AsideOrdinal(cluster, name); !ok || got != ordinal {
				t.Errorf("%s: got %d %v", name, got, ok)
			}
			if _, ok := ClaimOrdinal(cluster, name); ok {
				t.Errorf("%s is a member's", name)
			}
			if other := AsideName(cluster, ordinal, "50d9cc1e-4bd9-4e74-a363-6ee715daf101"); other == name {
				t.Errorf("two claims have %s", name)
			}
			if _, ok := AsideOrdinal(cluster, ClaimName(cluster, ordinal)); ok {
				t.Errorf("a member's claim is an aside one: %s", ClaimName(cluster, ordinal))
			}
		}
	}
}

func TestJobNameIsALabelAndTellsClaimsApart(t *testing.T) {
	seen := map[string]string{}
	for _, cluster := range []string{"c", "cache", strings.Repeat("x", 52), strings.Repeat("x", 42) + "-yyyyyyyyy"} {
		for _, ordinal := range []int32{0, 1, 10, 511} {
			for _, uid := range []types.UID{"50d9cc1e-4bd9-4e74-a363-6ee715daf100", "50d9cc1e-4bd9-4e74-a363-6ee715daf101"} {
				uid += types.UID(fmt.Sprintf("%s%d", cluster, ordinal))
				name := JobName(ClaimName(cluster, ordinal), uid)
				if errs := validation.IsDNS1123Label(name); len(errs) != 0 {
					t.Errorf("%q: %v", name, errs)
				}
				if other, taken := seen[name]; taken {
					t.Errorf("%q is the Job of %s and of %s", name, other, uid)
				}
				seen[name] = string(uid)
				if again := JobName(ClaimName(cluster, ordinal), uid); again != name {
					t.Errorf("%q, then %q", name, again)
				}
			}
		}
	}
}

func TestServersAreNamedAsClientsAreGivenThem(t *testing.T) {
	c := apitest.MakeMemcached("cache").Namespace("shop").Defaulted().Obj()
	c.Spec.ContainerPort = 11300
	want := []string{"cache-0.cache.shop.svc:11300", "cache-1.cache.shop.svc:11300"}
	if diff := cmp.Diff(want, Servers(c, 2)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if n := len(Servers(c, 0)); n != 0 {
		t.Errorf("%d servers of none", n)
	}
}
