package status

import (
	"cmp"
	"fmt"
	"slices"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/claims"
)

// advice lists changes that a person may want to make although nothing is wrong now, and problems that have
// passed. Each reason occurs once.
func advice(in *Input, s *cachev1alpha1.MemcachedStatus) []cachev1alpha1.Advice {
	if in.Cluster.Spec.Storage == nil || deleting(in) {
		return nil
	}
	var list []cachev1alpha1.Advice
	for _, a := range []*cachev1alpha1.Advice{keysElsewhere(in, s), shortOfMemory(in, s), noReplay(in), startedCold(in, s), notFilled(in)} {
		if a != nil {
			list = append(list, *a)
		}
	}
	return inOrder(list)
}

// inOrder sorts by reason, so that the order doesn't depend on which advice came first.
func inOrder(list []cachev1alpha1.Advice) []cachev1alpha1.Advice {
	slices.SortFunc(list, func(a, b cachev1alpha1.Advice) int { return cmp.Compare(a.Reason, b.Reason) })
	return list
}

func advise(reason, format string, args ...any) *cachev1alpha1.Advice {
	return &cachev1alpha1.Advice{Reason: reason, Message: claims.BoundMessage(fmt.Sprintf(format, args...))}
}

// said is the first advice of one of these reasons; nil if there is none.
func said(list []cachev1alpha1.Advice, reasons ...string) *cachev1alpha1.Advice {
	i := slices.IndexFunc(list, func(a cachev1alpha1.Advice) bool { return slices.Contains(reasons, a.Reason) })
	if i < 0 {
		return nil
	}
	return &list[i]
}

// NewAdvice is the advice that the status before did not have, or had in other words.
func NewAdvice(before, after []cachev1alpha1.Advice) []cachev1alpha1.Advice {
	return slices.DeleteFunc(slices.Clone(after), func(a cachev1alpha1.Advice) bool { return slices.Contains(before, a) })
}
