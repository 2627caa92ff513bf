package cli_test

import (
	"os"
	"strconv"
	"syscall"
	"testing"

	"example.com/memcached-operator/drainer/cli"
	"example.com/memcached-operator/drainer/internal/drainertest"
)

func TestMain(m *testing.M) { drainertest.Main(m, cli.Main, limitFiles) }

// filesVariable of a drainer's environment is how many files it may have open.
const filesVariable = "DRAINER_TEST_FILES"

func limitFiles() {
	n, err := strconv.ParseUint(os.Getenv(filesVariable), 10, 64)
	if err != nil {
		return
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: n, Max: n}); err != nil {
		panic(err)
	}
}
