package build

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
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

// meanings returns all meanings that a claim's name can have for these clusters: a member's claim, or an
// aside one.
func meanings(name string, clusters ...string) []string {
	var found []string
	for _, cluster := range clusters {
		if ordinal, ok := ClaimOrdinal(cluster, name); ok {
			found = append(found, fmt.Sprintf("member %d of %s", ordinal, cluster))
		}
		if ordinal, ok := AsideOrdinal(cluster, name); ok {
			found = append(found, fmt.Sprintf("aside %d of %s", ordinal, cluster))
		}
	}
	return found
}

func TestClusterWhoseNameLooksLikeAnAsideClaimHasItsOwnClaims(t *testing.T) {
	for _, cluster := range []string{"cache", "x-1-aside-abcdef", "x-1-aside-01234567", "x-1-aside-0123456", "x-aside", "x-1-aside-abc-12"} {
		for _, ordinal := range []int32{0, 7, 10, 511} {
			for _, name := range []string{ClaimName(cluster, ordinal), AsideName(cluster, ordinal, "uid")} {
				if got, ok := ClaimCluster(name); !ok || got != cluster {
					t.Errorf("%s is of %q, want %s", name, got, cluster)
				}
				if got := meanings(name, cluster, "x", "x-1", "x-1-aside"); len(got) != 1 {
					t.Errorf("%s is %q", name, got)
				}
			}
		}
	}
	for _, name := range []string{"data-x-1-aside-ABCDEF01", "data-x-1-aside-zzzzzzzz", "data-x-1-aside-abc-1234", "data-x-01-aside-01234567", "data-x-1-aside-012345678"} {
		if of, ok := ClaimCluster(name); ok || of != "" || len(meanings(name, "x")) != 0 {
			t.Errorf("%s is a claim of %q", name, of)
		}
	}
}

// Every name has at most one meaning, and names that the operator gives are parsed to the values
// that they were made from.
func FuzzClaimNames(f *testing.F) {
	for _, name := range []string{"data-cache-0", "data-x-1-aside-abcdef-0", "data-x-1-aside-01234567", "data-x-1-aside-01234567-2-aside-89abcdef", "data--1", "data-x--1"} {
		f.Add(name, int32(3))
	}
	f.Fuzz(func(t *testing.T, name string, ordinal int32) {
		var prefixes []string
		for i := range name {
			prefixes = append(prefixes, strings.TrimPrefix(name[:i], "data-"))
		}
		slices.Sort(prefixes)
		got := meanings(name, slices.Compact(prefixes)...)
		switch of, ok := ClaimCluster(name); {
		case len(got) > 1 || ok != (len(got) == 1):
			t.Errorf("%q is %q; its cluster is %q, %v", name, got, of, ok)
		case ok && !strings.HasSuffix(got[0], " of "+of):
			t.Errorf("%q is %s, not of %s", name, got[0], of)
		}
		const maxCluster = 52
		if len(name) > maxCluster || len(validation.IsDNS1035Label(name)) > 0 || ordinal < 0 || ordinal >= cachev1alpha1.MaxSize {
			return
		}
		for _, claim := range []string{ClaimName(name, ordinal), AsideName(name, ordinal, "uid")} {
			if of, ok := ClaimCluster(claim); !ok || of != name {
				t.Errorf("%s is of %q, want %s", claim, of, name)
			}
		}
	})
}

func TestJobNameIsALabelAndTellsClaimsApart(t *testing.T) {
	seen := map[string]string{}
	for _, cluster := range []string{"c", "cache", strings.Repeat("x", 52), strings.Repeat("x", 42) + "-yyyyyyyyy"} {
		for _, ordinal := range []int32{0, 1, 10, 511} {
			for _, uid := range []types.UID{"50d9cc1e-4bd9-4e74-a363-6ee715daf100", "50d9cc1e-4bd9-4e74-a363-6ee715daf101"} {
				uid += types.UID(fmt.Sprintf("%s%d", cluster, ordinal))
				name := DrainName(ClaimName(cluster, ordinal), uid)
				if errs := validation.IsDNS1123Label(name); len(errs) != 0 {
					t.Errorf("%q: %v", name, errs)
				}
				if other, taken := seen[name]; taken {
					t.Errorf("%q is the Job of %s and of %s", name, other, uid)
				}
				seen[name] = string(uid)
				if again := DrainName(ClaimName(cluster, ordinal), uid); again != name {
					t.Errorf("%q, then %q", name, again)
				}
			}
		}
	}
}

func TestServersAreNamedAsClientsAreGivenThem(t *testing.T) {
	c := withStorage().Namespace("shop").Defaulted().Obj()
	c.Spec.ContainerPort = 11300
	want := []string{"cache-0.cache.shop.svc:11300", "cache-1.cache.shop.svc:11300"}
	if diff := cmp.Diff(want, Servers(c, nil, 2)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if n := len(Servers(c, nil, 0)); n != 0 {
		t.Errorf("%d servers of none", n)
	}
}
