package build

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/controllers/internal/ring"
)

func TestConfigMapHasOneListInEachForm(t *testing.T) {
	c := withStorage().Defaulted().Obj()
	want := []string{
		"cache-0.cache.shop.svc:11211", "cache-1.cache.shop.svc:11211", "cache-2.cache.shop.svc:11211",
		"cache-3.cache.shop.svc:11211", "cache-4.cache.shop.svc:11211", "cache-5.cache.shop.svc:11211",
		"cache-6.cache.shop.svc:11211", "cache-7.cache.shop.svc:11211", "cache-8.cache.shop.svc:11211",
		"cache-9.cache.shop.svc:11211", "cache-10.cache.shop.svc:11211",
	}
	list := ServersConfigMap(c, Servers(c, nil, 11), ring.Record{})
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
	if diff := cmp.Diff(want, ServersConfigMap(c, Servers(c, nil, 0), ring.Record{}).Data); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestMembersWithoutNamesAreListedByTheirPlaces(t *testing.T) {
	c := apitest.MakeMemcached("cache").Namespace("shop").Defaulted().Obj()
	if diff := cmp.Diff([]string{"cache-0.cache-list.shop.svc:11211", "cache-1.cache-list.shop.svc:11211"}, Servers(c, nil, 2)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
