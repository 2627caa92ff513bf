package v1alpha1_test

import (
	"fmt"
	"strings"
	"testing"
)

// Quantities are compared by their value. The test sends a spec as a person writes it, because a Go client
// would send the canonical form.
func TestQuantitiesAreReadAsPeopleWriteThem(t *testing.T) {
	server := theAPIServer(t)
	const (
		inMiB     = "memory must be a whole number of MiB"
		itemSize  = "maxItemSize must be a whole number of bytes"
		half      = "at most half of memory"
		chunks    = "maxItemSize must be a multiple of 512Ki"
		rate      = "bytesPerSecond must be a whole number of bytes"
		room      = "resources.limits.memory must be larger than memory"
		stored    = "storage: {}"
		someLimit = "resources: {limits: {memory: %s}}"
		writable  = "ext_path"
	)
	limit := func(memory string) string { return fmt.Sprintf(someLimit, memory) }
	for spec, want := range map[string]string{
		"memory: 1.5Gi":                         "",
		"memory: 0.5Gi":                         "",
		"memory: 0.0625Gi":                      "",
		"memory: 1e9":                           inMiB,
		"memory: 1073741824":                    "",
		`memory: "1073741824"`:                  "",
		"memory: 1073741824000m":                "",
		"memory: 1073741824500m":                inMiB,
		"memory: 1.1Gi":                         inMiB,
		"memory: 1.0001Mi":                      inMiB,
		"memory: 7.5Mi":                         inMiB,
		"memory: 8.5Mi":                         inMiB,
		"memory: 1.5Gi\n" + stored:              "",
		"memory: 0.05Gi\n" + stored:             inMiB,
		"memory: 0.0615234375Gi\n" + stored:     "memory must be 64Mi at least with storage",
		"memory: 0.5Ti\nstorage: {size: 1.5Ti}": "",
		"memory: 1.5Gi\nstorage: {size: 1.5Gi}": "storage.size must be larger than memory",
		"memory: 1.5Gi\nstorage: {size: 1.6Gi}": "",

		"memory: 1Gi\nmaxItemSize: 1.5Mi":   "",
		"memory: 1Gi\nmaxItemSize: 0.5Mi":   "",
		"memory: 1Gi\nmaxItemSize: 1572864": "",
		"memory: 1Gi\nmaxItemSize: 1.6Mi":   itemSize,
		"memory: 1Gi\nmaxItemSize: 1.75Mi":  chunks,
		"memory: 1Gi\nmaxItemSize: 500m":    itemSize,
		"memory: 3Mi\nmaxItemSize: 1.5Mi":   inMiB,
		"memory: 1Gi\nmaxItemSize: 0.5Gi":   "",
		"memory: 1Gi\nmaxItemSize: 0.75Gi":  half,
		"memory: 2Gi\nmaxItemSize: 1Gi":     "",
		// memcached says: Cannot set item size limit higher than 1/2 of memory max. memcached takes no more
		// than a gigabyte.
		"memory: 4Gi\nmaxItemSize: 1.5Gi":  "1Gi at most",
		"memory: 4Gi\nmaxItemSize: 1025Mi": "1Gi at most",

		"drain: {rateLimit: {bytesPerSecond: 1.5Mi}}": "",
		"drain: {rateLimit: {bytesPerSecond: 1.5Gi}}": "",
		"drain: {rateLimit: {bytesPerSecond: 2.5}}":   "bytesPerSecond",
		"drain: {rateLimit: {bytesPerSecond: 0.5Ki}}": rate,
		"drain: {rateLimit: {bytesPerSecond: 1.1Ki}}": rate,

		// The schema of a custom resource has no number with a point beside an integer and a string. Pods take one.
		`resources: {limits: {cpu: "0.5"}}`:         "",
		"resources: {limits: {cpu: 500m}}":          "",
		"resources: {limits: {cpu: 2}}":             "",
		"resources: {limits: {cpu: 0.5}}":           "spec.resources.limits.cpu in body must be of type integer,string",
		"router: {resources: {limits: {cpu: 0.5}}}": "spec.router.resources.limits.cpu in body must be of type integer,string",
		"storage: {size: 1.5}":                      "spec.storage.size in body must be of type integer,string",

		// A member needs more memory than its items.
		"memory: 128Mi\n" + limit("128Mi"):                          room,
		"memory: 128Mi\n" + limit("0.125Gi"):                        room,
		"memory: 128Mi\n" + limit("143.5Mi"):                        room,
		"memory: 128Mi\n" + limit("160Mi"):                          "",
		"memory: 256Mi\nstorage: {}\n" + limit("264Mi"):             room,
		"memory: 256Mi\nstorage: {}\n" + limit("280Mi"):             room,
		"memory: 256Mi\nstorage: {}\n" + limit("0.5Gi"):             "",
		"memory: 256Mi\nstorage: {mode: Mapped}\n" + limit("128Mi"): "",
		"memory: 256Mi\ntls: {secretName: t}\n" + limit("280Mi"):    room,
		"memory: 256Mi\nauth: {secretName: t}\n" + limit("280Mi"):   room,
		"memory: 1.5Gi\nstorage: {}\n" + limit("2Gi"):               "",

		// The container's file system is read-only.
		"extraArgs: [-o, 'ext_path=/tmp/ext:64M']":                     writable,
		"extraArgs: [-o, 'slab_chunk_max=512k,ext_path=ext:64M']":      writable,
		"extraArgs: ['--extended=ext_path=/data/ext:64M']":             writable,
		"extraArgs: [-o, 'ext_path=/dev/shm/ext:64M']":                 "",
		"extraArgs: [-o, 'ext_path=/dev/shm/../ext:64M']":              writable,
		"extraArgs: [-o, 'ext_path=/dev/shm/a:8M,ext_path=/tmp/b:8M']": writable,
	} {
		t.Run(spec, func(t *testing.T) {
			server.wants(t, server.named(t, "cache", inBlocks(routed(spec))), nil, want)
		})
	}
}

// Changes are compared as quantities, too.
func TestChangesOfQuantitiesAreReadAsPeopleWriteThem(t *testing.T) {
	server := theAPIServer(t)
	const shrinks = "storage.size can't shrink"
	for name, c := range map[string]struct{ before, after, want string }{
		"the size is named, large enough":     {"memory: 1.5Gi\nstorage: {}", "memory: 1.5Gi\nstorage: {size: 3.5Gi}", ""},
		"the size is named, too small":        {"memory: 1.5Gi\nstorage: {}", "memory: 1.5Gi\nstorage: {size: 1.6Gi}", shrinks},
		"the size is left out":                {"memory: 1.5Gi\nstorage: {size: 2.5Gi}", "memory: 1.5Gi\nstorage: {}", ""},
		"a larger size is left out":           {"memory: 1.5Gi\nstorage: {size: 4.5Gi}", "memory: 1.5Gi\nstorage: {}", shrinks},
		"memory grows with a size of its own": {"memory: 0.5Gi\nstorage: {}", "memory: 1.5Gi\nstorage: {size: 1.6Gi}", ""},
		"nothing changes":                     {"memory: 1.5Gi\nstorage: {size: 2.5Gi}", "memory: 1.5Gi\nstorage: {size: 2.5Gi}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			server.wants(t, server.named(t, "cache", inBlocks(routed(c.after))), server.named(t, "cache", inBlocks(routed(c.before))), c.want)
		})
	}
}

// inBlocks puts the lines of a spec below it.
func inBlocks(lines string) string { return "\n  " + strings.ReplaceAll(lines, "\n", "\n  ") }

// routed adds routers to a spec with storage, because such a spec must say how applications find their items.
func routed(spec string) string {
	if !strings.Contains(spec, "storage:") {
		return spec
	}
	return spec + "\nrouter: {}"
}
