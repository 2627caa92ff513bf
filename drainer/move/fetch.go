package move

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/pace"
)

const (
	// partItems and partBytes bound one part, parts bounds the parts in memory.
	partItems = 2048
	partBytes = 2 << 20
	parts     = 2 // one is read while the other is yielded
)

// fetcher reads the items of a list from one memcached. A fetcher reads ahead, in parts whose memory is reused.
type fetcher struct {
	// Ask calls do with a connection to memcached, and repeats it until it succeeds.
	Ask func(ctx context.Context, do func(*memcache.Conn) error) error
	// Behind returns how many seconds memcached's clock is behind ours.
	Behind func() int64
	// Limit bounds the moved items: a part is at most what a second allows, so that the items don't become
	// outdated.
	Limit pace.Limit
}

// Items yields memcached's items for the entries, each valid until the next one, with the times of
// memcached's own clock. An item whose CAS is 0 no longer exists, or its key can't be asked for, which
// memcache.HasTextForm tells. An error is the last thing yielded.
func (f *fetcher) Items(ctx context.Context, entries iter.Seq2[*Entry, error]) iter.Seq2[*item.Item, error] {
	return func(yield func(*item.Item, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		free, full := make(chan *listPart, parts), make(chan *listPart)
		for range parts {
			free <- &listPart{}
		}
		var failed error
		var reading sync.WaitGroup
		reading.Go(func() {
			defer close(full)
			failed = f.read(ctx, entries, free, full)
		})
		defer reading.Wait()
		defer cancel()
		for p := range full {
			for i := range p.items {
				if !yield(&p.items[i], nil) {
					return
				}
			}
			free <- p
		}
		if failed != nil {
			yield(nil, failed)
		}
	}
}

// read fills parts.
func (f *fetcher) read(ctx context.Context, entries iter.Seq2[*Entry, error], free <-chan *listPart, full chan<- *listPart) error {
	mostItems, mostBytes := int64(partItems), int64(partBytes)
	if f.Limit.Items > 0 {
		mostItems = min(mostItems, f.Limit.Items)
	}
	if f.Limit.Bytes > 0 {
		mostBytes = min(mostBytes, f.Limit.Bytes)
	}
	var p *listPart
	flush := func() error {
		if p == nil {
			return nil
		}
		if err := f.fetch(ctx, p); err != nil {
			return err
		}
		select {
		case full <- p:
			p = nil
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for e, err := range entries {
		if err != nil {
			return err
		}
		if p == nil {
			select {
			case p = <-free:
				p.reset()
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if p.add(e); int64(len(p.listed)) >= mostItems || p.size >= mostBytes {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

// listPart is a part of a list, with memcached's items.
type listPart struct {
	listed  []listed
	keys    []byte // of listed, one after the other
	size    int64  // of the items, as far as the list has it
	request []byte
	asked   int64 // when it was asked for, in Unix seconds
	items   []item.Item
	values  []byte // of items, one after the other
	ends    []int  // the ends of the values
}

// listed is an entry of a list. Its key is in the part's keys.
type listed struct {
	expireAt, lastAccess int64
	keyEnd               int
	hasTextForm          bool
}

// reset makes the part empty, and frees the memory of a value that was larger than a part.
func (p *listPart) reset() {
	p.listed, p.keys, p.size = p.listed[:0], p.keys[:0], 0
	if cap(p.values) > 2*partBytes {
		p.values = nil
	}
}

func (p *listPart) add(e *Entry) {
	p.keys = append(p.keys, e.Key...)
	p.listed = append(p.listed, listed{e.ExpireAt, e.LastAccess, len(p.keys), memcache.HasTextForm(e.Key)})
	p.size += e.Size
}

// fetch asks memcached for a part of the list.
func (f *fetcher) fetch(ctx context.Context, p *listPart) error {
	return f.Ask(ctx, func(c *memcache.Conn) error {
		p.ask()
		p.asked = time.Now().Unix()
		// Memcached answers before it has read all requests, so writing and reading go on at the same time.
		sent := make(chan error, 1)
		go func() { sent <- c.Send(p.request) }()
		err := p.take(c, f.Behind)
		if err != nil {
			c.Close()
		}
		return errors.Join(err, <-sent)
	})
}

// ask writes the requests, except for keys that can't be asked for.
func (p *listPart) ask() {
	p.request, p.items = p.request[:0], p.items[:0]
	from := 0
	for i := range p.listed {
		e := &p.listed[i]
		key := p.keys[from:e.keyEnd:e.keyEnd]
		from = e.keyEnd
		p.items = append(p.items, item.Item{Key: key, LastAccess: e.lastAccess})
		if e.hasTextForm {
			p.request, _ = memcache.AppendFetch(p.request, key)
		}
	}
}

// take reads the answers.
func (p *listPart) take(c *memcache.Conn, behind func() int64) (err error) {
	p.values, p.ends = p.values[:0], p.ends[:0]
	var v memcache.Value
	for i := range p.items {
		if e := &p.listed[i]; e.hasTextForm {
			found := false
			if p.values, found, err = c.AppendFetched(&v, p.values); err != nil {
				return err
			}
			setFetched(&p.items[i], &v, found, e, p.asked, time.Now().Unix(), behind())
		}
		p.ends = append(p.ends, len(p.values))
	}
	from := 0
	for i, end := range p.ends {
		p.items[i].Value = p.values[from:end:end]
		from = end
	}
	return nil
}

// setFetched records memcached's answer. The last access counts from the request, since the answer may be read much
// later, and an item must not seem to be used after a flush.
func setFetched(it *item.Item, v *memcache.Value, found bool, listed *listed, asked, now, behind int64) {
	its := now - behind // its clock
	if !found {
		const exact = 2 // it was asked for in whole seconds
		it.State = item.Invalidated
		if listed.expireAt != 0 && listed.expireAt <= its+exact {
			it.State = item.Expired
		}
		return
	}
	it.Flags, it.CAS, it.BinaryKey = v.Flags, v.CAS, v.BinaryKey
	it.ExpireAt = v.ExpireAt(listed.expireAt, its)
	it.LastAccess = asked - v.Idle // it may have been stored after it was listed
	if v.Outdated() {
		it.State = item.Invalidated
	}
}
