package ring_test

import (
	"testing"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/ring"
)

func TestLastRingIsNoneThatIsTooFarAway(t *testing.T) {
	const far = ring.MaxSerialStep + 1
	for name, test := range map[string]struct {
		serials []int64
		want    int64
	}{
		"none":                        {nil, 0},
		"one":                         {[]int64{7}, 7},
		"the highest":                 {[]int64{7, 0, 9, 8}, 9},
		"one that is too far":         {[]int64{7, far + 7}, 7},
		"only one, too far":           {[]int64{far}, 0},
		"one that is far, but not so": {[]int64{ring.MaxSerialStep}, ring.MaxSerialStep},
		"each in reach of the next":   {[]int64{3 * ring.MaxSerialStep, ring.MaxSerialStep, 2 * ring.MaxSerialStep}, 3 * ring.MaxSerialStep},
	} {
		if got := ring.LastSerial(test.serials...); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}

// Not even 512 members and a record get near the highest serial.
func TestRingsNeverRunOut(t *testing.T) {
	var serials []int64
	for i := range int64(cachev1alpha1.MaxSize) + 1 {
		serials = append(serials, (i+1)*ring.MaxSerialStep)
	}
	if last := ring.LastSerial(serials...); last != serials[cachev1alpha1.MaxSize] || last > ring.MaxSerial/2 {
		t.Errorf("the last is %d", last)
	}
}
