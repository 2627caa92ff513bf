package build

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/controllers/internal/ring"
)

func TestListShrinksAtOnceAndGrowsWhenAllThatItLacksAreReady(t *testing.T) {
	for name, test := range map[string]struct {
		before, target int32
		ready          []int32
		want           int32
	}{
		"at birth, nobody ready":            {0, 3, nil, 0},
		"at birth, some ready":              {0, 3, []int32{0, 1}, 0},
		"at birth, all ready":               {0, 3, []int32{0, 1, 2}, 3},
		"as wanted":                         {3, 3, []int32{0, 1, 2}, 3},
		"a listed member restarts":          {3, 3, []int32{0, 2}, 3},
		"all listed members restart":        {3, 3, nil, 3},
		"one leaves":                        {3, 2, []int32{0, 1, 2}, 2},
		"one leaves, those that stay don't": {3, 2, nil, 2},
		"hibernation":                       {3, 0, []int32{0, 1, 2}, 0},
		"two come, one is ready":            {3, 5, []int32{0, 1, 2, 3}, 3},
		"two come, the later one is ready":  {3, 5, []int32{0, 1, 2, 4}, 3},
		"two come, both are ready":          {3, 5, []int32{0, 1, 2, 3, 4}, 5},
		"two come while one restarts":       {3, 5, []int32{0, 2, 3, 4}, 5},
	} {
		t.Run(name, func(t *testing.T) {
			got := Listed(test.before, test.target, func(i int32) bool { return slices.Contains(test.ready, i) })
			if got != test.want {
				t.Errorf("%d servers, want %d", got, test.want)
			}
		})
	}
}

func TestConfigMapHasOneListInEachForm(t *testing.T) {
	c := withStorage().Defaulted().Obj()
	want := []string{
		"cache-0.cache.shop.svc:11211", "cache-1.cache.shop.svc:11211", "cache-2.cache.shop.svc:11211",
		"cache-3.cache.shop.svc:11211", "cache-4.cache.shop.svc:11211", "cache-5.cache.shop.svc:11211",
		"cache-6.cache.shop.svc:11211", "cache-7.cache.shop.svc:11211", "cache-8.cache.shop.svc:11211",
		"cache-9.cache.shop.svc:11211", "cache-10.cache.shop.svc:11211",
	}
	list := ServersConfigMap(c, ListedServers(c, 11), ring.Record{})
	if *list.Name != "cache-servers" {
		t.Errorf("name %s", *list.Name)
	}
	if diff := cmp.Diff(want, strings.Split(strings.TrimSuffix(list.Data[ServersKey], "\n"), "\n")); diff != "" {
		t.Errorf("%s: -want +got:\n%s", ServersKey, diff)
	}
	var array []string
	if err := json.Unmarshal([]byte(list.Data[ServersJSONKey]), &array); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, array); diff != "" {
		t.Errorf("%s: -want +got:\n%s", ServersJSONKey, diff)
	}
	if diff := cmp.Diff(want, strings.Split(list.Data[ServersEnvKey], ",")); diff != "" {
		t.Errorf("%s: -want +got:\n%s", ServersEnvKey, diff)
	}
}

func TestEmptyListIsEmptyInEachForm(t *testing.T) {
	c := withStorage().Defaulted().Obj()
	want := map[string]string{ServersKey: "", ServersJSONKey: "[]", ServersEnvKey: ""}
	if diff := cmp.Diff(want, ServersConfigMap(c, ListedServers(c, 0), ring.Record{}).Data); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestMembersWithoutNamesAreListedAsTheirService(t *testing.T) {
	c := apitest.MakeMemcached("cache").Namespace("shop").Defaulted().Obj()
	if diff := cmp.Diff([]string{"cache.shop.svc:11211"}, ListedServers(c, 3)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
