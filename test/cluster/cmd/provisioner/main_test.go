package main

import "testing"

func TestOnlyVolumesAreRemoved(t *testing.T) {
	p := provisioner{root: "/var/lib/volumes"}
	for path, want := range map[string]bool{
		"/var/lib/volumes/node-1/pvc-1":           true,
		"/var/lib/volumes":                        false,
		"/var/lib/volumes/node-1":                 false,
		"/var/lib/volumes/node-1/..":              false,
		"/var/lib/volumes/node-1/pvc-1/data":      false,
		"/var/lib/volumes/../other":               false,
		"/var/lib/volumes/../../../etc/passwd":    false,
		"/etc":                                    false,
		"/var/lib/volumes-2/node-1/pvc-1":         false,
		"/var/lib/volumes/node-1/x/../../n/pvc-1": true,
	} {
		if _, err := p.directory(path); (err == nil) != want {
			t.Errorf("%s: want allowed %v, got %v", path, want, err)
		}
	}
}
