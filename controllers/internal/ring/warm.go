package ring

import (
	"fmt"
	"strings"
)

// A warming copies another cache to where this cluster's clients look. The warming is a move from outside:
// its target names the source and the ring.

const warmPrefix = "warm-"

// WarmTarget names one Job of a warming: the source, as a hash of what the Job is made of, how many Jobs have copied
// it before, and the ring by which items get their owners.
func WarmTarget(source string, jobs int32, r Record) string {
	return warmJobs(source, jobs) + r.Target()
}

// IsWarmOf tells whether the target names this Job of a warming, by whatever ring.
func IsWarmOf(target, source string, jobs int32) bool {
	return strings.HasPrefix(target, warmJobs(source, jobs))
}

func warmJobs(source string, jobs int32) string {
	return fmt.Sprintf("%s%s-%d-", warmPrefix, source, jobs)
}

// IsWarm tells whether the target is a warming's.
func IsWarm(target string) bool { return strings.HasPrefix(target, warmPrefix) }

// IsWarmSource tells whether the source in a receipt is a warming's (Source).
func IsWarmSource(source string) bool {
	_, target, _ := strings.Cut(strings.TrimPrefix(source, movePrefix), "/")
	return strings.HasPrefix(source, movePrefix) && IsWarm(target)
}

// WarmMade is the hash in a warming's target of what its Job was made of; empty if the target is not a
// warming's.
func WarmMade(target string) string {
	rest, is := strings.CutPrefix(target, warmPrefix)
	made, _, _ := strings.Cut(rest, "-")
	if !is {
		return ""
	}
	return made
}
