package routing

// jump is Lamping and Veach, "A Fast, Minimal Memory, Consistent Hash Algorithm" (2014), figure 1. jump maps
// a 64-bit hash to one of n buckets so that adding bucket n moves only what bucket n gets.
func jump(hash uint64, n int) int {
	var b, j int64 = -1, 0
	for j < int64(n) {
		b = j
		hash = hash*2862933555777941757 + 1
		j = int64(float64(b+1) * (float64(1<<31) / float64((hash>>33)+1)))
	}
	return int(b)
}
