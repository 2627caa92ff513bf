package contract

import (
	"fmt"
	"strconv"
	"strings"
)

// A member that has stepped out of the ring for its restart is told to start empty, by an annotation of its pod
// that the kubelet shows in a file. Its supervisor reports at StepPath.

// StepPath is the HTTP path, beside ReadyPath, at which a supervisor reports about the annotation.
const StepPath = "/step"

// Stepped is a supervisor's report, in JSON.
type Stepped struct {
	// Told is the annotation as the supervisor has read it, with the name of the pod, so that no other pod's
	// answer counts.
	Told string `json:"told,omitempty"`
	// Empty is the serial for which memcached has started empty. All that it has was stored since.
	Empty int64 `json:"empty,omitempty"`
}

// MaxStep bounds the annotation, in bytes.
const MaxStep = 128

// StepOut is the annotation: the serial of the ring without the member, and its pod's UID.
func StepOut(serial int64, pod string) string { return fmt.Sprintf("%d/%s", serial, pod) }

// aside ends the annotation of a member that is to be evicted.
const aside = "/aside"

// StepAside is the annotation of a member that is not to be ready either, so that its eviction is allowed.
func StepAside(serial int64, pod string) string { return StepOut(serial, pod) + aside }

// StepsAside tells whether the annotation is that of StepAside.
func StepsAside(text string) bool { return strings.HasSuffix(text, aside) }

// EndAside is the annotation of a member that may be ready again.
func EndAside(text string) string { return strings.TrimSuffix(text, aside) }

// ParseStepOut returns the serial in the annotation; 0 if there is none.
func ParseStepOut(text string) int64 {
	number, _, is := strings.Cut(text, "/")
	serial, err := strconv.ParseInt(number, 10, 64)
	if !is || len(text) > MaxStep || err != nil || serial < 0 {
		return 0
	}
	return serial
}
