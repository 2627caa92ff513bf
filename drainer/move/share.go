package move

import (
	"context"
	"iter"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/pace"
)

// share has the items of a pass that one goroutine reads, and hands to their owners' writers.
type share struct {
	*Engine
	feeders []*memcache.Feeder // of the writers, in their order
	pace    *pace.Pace
	counts
}

// counts counts items, as the receipt does.
type counts struct{ found, expired, invalidated int64 }

func (c *counts) add(o *counts) {
	c.found += o.found
	c.expired += o.expired
	c.invalidated += o.invalidated
}

// read hands over the items in the band.
func (s *share) read(ctx context.Context, items iter.Seq2[*item.Item, error], in func(*item.Item) bool) (err error) {
	defer item.Faults(&err)()
	for it, err := range items {
		if err != nil {
			return err
		}
		if !in(it) || contract.IsMembersOwn(it.Key) {
			continue
		}
		s.found++
		switch {
		case it.State == item.Expired || it.State == item.Live && s.expiresSoon(it):
			s.expired++
			s.skipped.Add(1)
		case it.State == item.Invalidated:
			s.invalidated++
			s.skipped.Add(1)
		default:
			if err := s.add(ctx, it); err != nil {
				return err
			}
		}
	}
	for i, f := range s.feeders {
		if s.Lost != nil && s.Lost[i] {
			continue
		}
		if err := f.Send(); err != nil {
			return s.withServer(i, err)
		}
	}
	return nil
}

// add hands a live item to its owner's writer, at the allowed pace.
func (s *share) add(ctx context.Context, it *item.Item) error {
	if s.Limit != (pace.Limit{}) { // without a limit, reading the clock would cost a quarter of an item's time
		if ahead := s.pace.Next(time.Now(), it.Size()); ahead > 0 {
			if err := s.pause(ctx, ahead); err != nil {
				return err
			}
		}
	}
	i := s.Owner.Owner(it.Key)
	if err := s.feeders[i].Add(it); err != nil {
		return s.withServer(i, err)
	}
	return nil
}
