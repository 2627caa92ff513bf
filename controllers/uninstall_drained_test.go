package controllers

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/drainer/contract"
)

// Without a receipt for exactly this claim the volume is kept.
func TestOnlyAReceiptForExactlyThisClaimCountsAsADrain(t *testing.T) {
	good := contract.Receipt{Version: 1, Source: "uid-2", Complete: true, Found: 10, Outcomes: contract.Outcomes{Added: 10}}
	other, short := good, good
	other.Source, short.Found = "uid-1", 11
	text := func(r contract.Receipt) string {
		b, err := r.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for what, test := range map[string]struct {
		annotation string
		want       bool
	}{
		"its own":               {text(good), true},
		"of another claim":      {text(other), false},
		"it does not add up":    {text(short), false},
		"anything":              {"yes", false},
		"empty":                 {"", false},
		"half of its own":       {text(good)[:20], false},
		"of its own, and words": {text(good) + "x", false},
	} {
		claim := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			UID: "uid-2", Annotations: map[string]string{cachev1alpha1.AnnotationReceipt: test.annotation},
		}}
		if got := drained([]metav1.PartialObjectMetadata{claim})["uid-2"]; got != test.want {
			t.Errorf("%s: it counts as drained: %v", what, got)
		}
	}
}
