package volume

import (
	"testing"
	"time"

	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/warmfile"
)

func TestParseManifest(t *testing.T) {
	meta, err := warmfile.ParseMeta([]byte(memcachedtest.Meta))
	if err != nil {
		t.Fatal(err)
	}
	m := Manifest{State: Saved, Arguments: []string{"memcached", "-m", "64"}, BootID: "b", Updated: time.Unix(1, 0).UTC(), Image: meta}
	b, err := m.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseManifest(b)
	if err != nil || got.Image.ProcessStarted != meta.ProcessStarted || got.Latest() != got.Image {
		t.Errorf("ParseManifest = %+v, %v", got, err)
	}
	for name, bad := range map[string]string{
		"empty":            "",
		"another format":   `{"format":2,"state":"Starting"}`,
		"another state":    `{"format":1,"state":"Dancing"}`,
		"no image":         `{"format":1,"state":"Saved"}`,
		"impossible image": `{"format":1,"state":"Saved","image":{"slabPageSize":1}}`,
		"cut short":        string(b[:len(b)/2]),
	} {
		if m, err := ParseManifest([]byte(bad)); err == nil {
			t.Errorf("%s: accepted as %+v", name, m)
		}
	}
}

// FuzzManifest: what ParseManifest accepts has usable images.
func FuzzManifest(f *testing.F) {
	meta, err := warmfile.ParseMeta([]byte(memcachedtest.Meta))
	if err != nil {
		f.Fatal(err)
	}
	meta.Classes = []int{96, 524288}
	m := Manifest{State: Running, Image: meta, Previous: meta}
	b, err := m.Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := ParseManifest(data)
		if err != nil || m.Latest() == nil {
			return
		}
		if err := m.Latest().Check(); err != nil {
			t.Error(err)
		}
	})
}
