//go:build linux

package member_test

import (
	"testing"

	"example.com/memcached-operator/drainer/cli"
	"example.com/memcached-operator/drainer/internal/drainertest"
)

func TestMain(m *testing.M) { drainertest.Main(m, cli.Main, stepIn) }
