package move_test

import (
	"testing"

	"example.com/memcached-operator/drainer/cli"
	"example.com/memcached-operator/drainer/internal/drainertest"
)

func TestMain(m *testing.M) {
	drainertest.AnswerNames()
	drainertest.Main(m, cli.Main)
}
