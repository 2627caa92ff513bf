package build

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/drainer/contract"
)

// An application that gets only this Secret finds the members and logs in. This Secret has only
// those values of the other Secrets that are for clients.
func TestBindingHasWhatAnApplicationNeeds(t *testing.T) {
	c := secured("None").Storage("128Mi").Defaulted().Obj()
	c.Spec.Binding = &cachev1alpha1.BindingSpec{SecretName: "cache-binding"}
	servers := Servers(c, nil, 2)
	want := map[string]string{
		"type":             "memcached",
		"provider":         "memcached-operator",
		"host":             "cache-0.cache.shop.svc",
		"port":             "11211",
		"servers":          "cache-0.cache.shop.svc:11211\ncache-1.cache.shop.svc:11211\n",
		"servers.json":     `["cache-0.cache.shop.svc:11211","cache-1.cache.shop.svc:11211"]`,
		"MEMCACHE_SERVERS": "cache-0.cache.shop.svc:11211,cache-1.cache.shop.svc:11211",
	}
	got := func(login *contract.Login, authorities []byte) map[string]string {
		secret := Binding(c, servers, login, authorities)
		if *secret.Name != "cache-binding" || *secret.Namespace != "shop" || *secret.Type != "servicebinding.io/memcached" ||
			len(secret.OwnerReferences) != 1 || !*secret.OwnerReferences[0].Controller {
			t.Errorf("%+v", secret.ObjectMetaApplyConfiguration)
		}
		data := map[string]string{}
		for key, value := range secret.Data {
			data[key] = string(value)
		}
		return data
	}
	if diff := cmp.Diff(want, got(nil, nil)); diff != "" {
		t.Errorf("without TLS and logins: -want +got:\n%s", diff)
	}
	want["username"], want["password"], want["ca.crt"] = "shop", "secret", "PEM"
	if diff := cmp.Diff(want, got(&contract.Login{User: "shop", Password: "secret"}, []byte("PEM"))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	c.Spec.Storage = nil
	data := got(nil, nil)
	if data["host"] != "cache-0.cache.shop.svc" || !strings.HasPrefix(data["servers"], "cache-0.") {
		t.Errorf("without storage: %v", data)
	}
}
