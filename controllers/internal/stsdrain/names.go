package stsdrain

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// ClaimName has the parts of a claim's name: the volumeClaimTemplate and the ordinal. Aside: the claim takes
// over a volume of that member.
type ClaimName struct {
	Template string
	Ordinal  int32
	Aside    bool
}

// PodName is the name of a member's pod.
func PodName(set string, ordinal int32) string { return fmt.Sprintf("%s-%d", set, ordinal) }

// PodOrdinal is the inverse of PodName; false for any other name.
func PodOrdinal(set, pod string) (int32, bool) {
	digits, is := strings.CutPrefix(pod, set+"-")
	if !is {
		return 0, false
	}
	return ordinalOf(digits)
}

// ClaimNameOf is the name of a member's claim, as the StatefulSet's controller names it.
func ClaimNameOf(set, template string, ordinal int32) string {
	return fmt.Sprintf("%s-%s-%d", template, set, ordinal)
}

// infix stands between a claim's name and the hash of its UID.
const infix = "-aside-"

// AsideName is the name of the claim that takes over the volume of a claim. The name depends on the claim's
// UID, so a later claim of the same name has another aside name.
func AsideName(claim string, uid types.UID) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(uid))
	return fmt.Sprintf("%s%s%08x", claim, infix, h.Sum32())
}

// ParseClaimName is the inverse of ClaimNameOf and of AsideName; false for any other name. Claims of another StatefulSet,
// whose name ends in this one's, are parsed, too: they have a template that this one lacks.
func ParseClaimName(set, claim string) (c ClaimName, is bool) {
	if i := strings.LastIndex(claim, infix); i >= 0 && isHash(claim[i+len(infix):]) {
		claim, c.Aside = claim[:i], true
	}
	i := strings.LastIndexByte(claim, '-')
	if i < 0 {
		return ClaimName{}, false
	}
	if c.Ordinal, is = ordinalOf(claim[i+1:]); !is {
		return ClaimName{}, false
	}
	c.Template, is = strings.CutSuffix(claim[:i], "-"+set)
	if !is || c.Template == "" {
		return ClaimName{}, false
	}
	return c, true
}

func ordinalOf(digits string) (int32, bool) {
	n, err := strconv.ParseInt(digits, 10, 32)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != digits {
		return 0, false
	}
	return int32(n), true
}

func isHash(s string) bool {
	const digits = 8
	return len(s) == digits && strings.Trim(s, "0123456789abcdef") == ""
}
