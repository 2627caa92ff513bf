package move

import (
	"context"
	"fmt"
	"io"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/routing"
)

// Replay adds the items of a source to the member at address, after live traffic: the
// member is its own only survivor. silence is how long it may not answer.
func Replay(ctx context.Context, source item.Source, d memcache.Dialer, address string, silence time.Duration, log io.Writer) (contract.Receipt, error) {
	server, err := routing.ParseServer(address)
	if err != nil {
		return contract.Receipt{}, fmt.Errorf("replay: %w", err)
	}
	e := Engine{Source: source, Owner: itself{}, Servers: []routing.Server{server}, Dialer: d, UnreachableTimeout: silence, Log: log}
	return e.Run(ctx), nil
}

// itself owns every key.
type itself struct{}

func (itself) Owner([]byte) int { return 0 }
