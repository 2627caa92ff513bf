package harness

import (
	"slices"
	"time"
)

// Times are how long requests took.
type Times []time.Duration

// Percentile is the time that so many percent of the requests did not exceed, by the nearest rank; 0 if there
// was none.
func (t Times) Percentile(percent int) time.Duration {
	if len(t) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(t))
	rank := (len(sorted)*percent + 99) / 100
	return sorted[max(rank, 1)-1]
}

// Median of some values; 0 if there are none.
func Median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// Micros is a time in microseconds.
func Micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
