package memcache

import "testing"

// CountReads counts the files of Secrets that are read until the test's end.
func CountReads(t *testing.T) (reads func() int) {
	before, n := readFile, 0
	readFile = func(path string) ([]byte, error) {
		n++
		return before(path)
	}
	t.Cleanup(func() { readFile = before })
	return func() int { return n }
}
