package volume

import (
	"testing"
	"time"

	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/warmfile"
)

func TestAManifestIsParsedOrRefused(t *testing.T) {
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

// Manifests that ParseManifest accepts have usable images.
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

// The manifest and the save's copy of it have the build of memcached that wrote the file. For an earlier
// manifest, it follows from the version.
func TestTheBuildIsRecorded(t *testing.T) {
	m := startMember(t, memcachedtest.FewPages()...)
	settings, err := m.Dial().Stats("settings")
	if err != nil {
		t.Fatal(err)
	}
	want := item.FlagsBytes(settings)
	m.crash()
	for _, dir := range []string{m.dir, pack(t, m.dir)} {
		if got, err := ReadManifest(dir); err != nil || got.Image.FlagsBytes != want || want == 0 {
			t.Errorf("%+v, %v; want %d", got, err, want)
		}
	}
	for version, want := range map[string]int{"1.6.18": item.SmallFlags, "1.6.21_1": item.SmallFlags, "1.6.22": 0, "1.6.45": 0, "": 0, "2.0.0": 0} {
		edit(t, m.dir, func(m *Manifest) { m.Image.FlagsBytes, m.Image.Version = 0, version })
		if got, err := ReadManifest(m.dir); err != nil || got.Image.FlagsBytes != want {
			t.Errorf("%q: %+v, %v; want %d", version, got, err, want)
		}
	}
}
