package contract_test

import (
	"testing"

	"example.com/memcached-operator/drainer/contract"
)

func TestNoUserIsAdmittedWithAnothersPassword(t *testing.T) {
	t.Parallel()
	logins := []contract.Login{{User: "ann", Password: "secret"}, {User: "bob", Password: "other"}}
	for _, c := range []struct {
		user, password string
		want           bool
	}{{"ann", "secret", true}, {"bob", "other", true}, {"ann", "other", false}, {"", "", false}, {"ann", "", false}, {"bob", "secret", false}} {
		if got := contract.Admits(logins, c.user+" "+c.password); got != c.want {
			t.Errorf("%s, %s: %t", c.user, c.password, got)
		}
	}
	if contract.Admits(nil, "ann secret") {
		t.Error("there are no logins, and one is admitted")
	}
}
