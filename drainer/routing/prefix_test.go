package routing

import "testing"

func TestPrefixIsNotHashed(t *testing.T) {
	for _, client := range prefixless {
		bare, err := New(client, members(7))
		if err != nil {
			t.Fatal(err)
		}
		owner, err := WithoutPrefix(client, bare, "shop:")
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"a", "user:1", "other"} {
			if owner.Owner([]byte("shop:"+key)) != bare.Owner([]byte(key)) {
				t.Errorf("%s hashes the prefix of %s", client, key)
			}
			if owner.Owner([]byte(key)) != bare.Owner([]byte(key)) {
				t.Errorf("%s: a key without the prefix isn't hashed whole", client)
			}
		}
	}
}

func TestPrefixIsRefusedWhereItIsHashed(t *testing.T) {
	if _, err := WithoutPrefix("gomemcache", only{}, "shop:"); err == nil {
		t.Error("no error")
	}
	if _, err := WithoutPrefix("gomemcache", only{}, ""); err != nil {
		t.Error(err)
	}
}
