package memcachedtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// ClockAhead returns an environment variable for a memcached whose node's clock is ahead by d, or behind if d
// is negative. The variable has no effect on Go programs, which ask the kernel.
func ClockAhead(tb testing.TB, d time.Duration) string {
	tb.Helper()
	dir := tb.TempDir()
	source, library := filepath.Join(dir, "clock.c"), filepath.Join(dir, "clock.so")
	code := fmt.Sprintf(`#define _GNU_SOURCE
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
int gettimeofday(struct timeval *restrict t, void *restrict zone) {
	int r = syscall(SYS_gettimeofday, t, zone);
	t->tv_sec += %d;
	return r;
}
time_t time(time_t *to) {
	struct timeval t;
	gettimeofday(&t, 0);
	if (to) *to = t.tv_sec;
	return t.tv_sec;
}
`, int64(d/time.Second))
	if err := os.WriteFile(source, []byte(code), 0o600); err != nil {
		tb.Fatal(err)
	}
	if out, err := exec.CommandContext(tb.Context(), Program(tb, "gcc"), "-shared", "-fPIC", "-o", library, source).CombinedOutput(); err != nil {
		tb.Fatalf("%v\n%s", err, out)
	}
	return "LD_PRELOAD=" + library
}
