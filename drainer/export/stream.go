package export

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/routing"
	"example.com/memcached-operator/drainer/warmfile"
)

const (
	// shipBytes and askKeys are how much is collected before it is sent, or asked for.
	shipBytes = 256 << 10
	askKeys   = 256
	// patience bounds the wait for memcached's answer.
	patience = 30 * time.Second
	// sayEvery is how often a mover is told that a pass without items is still going on.
	sayEvery = 10 * time.Second
)

// Memcached is the memcached whose items are read.
type Memcached struct {
	Dialer  memcache.Dialer
	Address string
	PID     int
	// Path is the file that memcached has mapped, Command the command that it was started with.
	Path    string
	Command []string
}

// stream serves one mover.
type stream struct {
	Memcached
	conn      net.Conn
	patience  time.Duration
	elsewhere func(key []byte) bool
	asked     *memcache.Conn
	unwatch   func() bool
	image     warmfile.Image
	file      *os.File
	reader    *Reader
	survey    survey
	passes    int
	said      time.Time // when the mover was last sent something
	batch     Batch
	request   []byte
	end       End
}

// newStream connects to memcached, and scans its file.
func newStream(ctx context.Context, m Memcached, request *Request, conn net.Conn) (s *stream, err error) {
	s = &stream{Memcached: m, conn: conn, patience: patience}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.elsewhere, err = elsewhere(request); err != nil {
		return s, err
	}
	dialCtx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if s.asked, err = m.Dialer.Dial(dialCtx, m.Address); err != nil {
		return s, err
	}
	s.unwatch = context.AfterFunc(ctx, func() { s.asked.Close() }) // so that a slow memcached is not waited for
	live, err := s.refresh()
	if err != nil {
		return s, err
	}
	if s.file, err = os.Open(m.Path); err != nil {
		return s, err
	}
	if s.reader, err = NewReader(s.file, live); err != nil {
		return s, err
	}
	s.survey, err = s.reader.Survey(ctx, uint32(s.image.Clock-s.image.ProcessStarted), s.elsewhere)
	if request.OldestFirst {
		slices.Reverse(s.survey.order)
	}
	s.batch.Records = make([]byte, FrameHead, shipBytes+2*warmfile.SlabPageSize)
	return s, err
}

// elsewhere tells which keys others own, except the items that each member has of its own.
func elsewhere(request *Request) (func(key []byte) bool, error) {
	var servers []routing.Server
	if n := len(request.Servers); n > MaxServers {
		return nil, fmt.Errorf("%d servers, where %d are the most", n, MaxServers)
	}
	for _, s := range request.Servers {
		servers = append(servers, routing.Server{Name: s.Name, Host: s.Host, Port: s.Port})
	}
	if request.Self < NoServer || request.Self >= len(servers) {
		return nil, fmt.Errorf("server %d of %d is not one of them", request.Self, len(servers))
	}
	owner, err := routing.New(request.Client, servers)
	if err == nil {
		owner, err = routing.WithoutPrefix(request.Client, owner, request.KeyPrefix)
	}
	if err != nil {
		return nil, err
	}
	return func(key []byte) bool {
		return owner.Owner(key) != request.Self && !contract.IsMembersOwn(key)
	}, nil
}

func (s *stream) close() {
	if s.asked != nil {
		s.unwatch()
		s.asked.Close()
	}
	if s.reader != nil {
		s.reader.Close()
	}
	if s.file != nil {
		s.file.Close()
	}
}

// refresh asks memcached for the settings and times that show which items are alive.
func (s *stream) refresh() (*warmfile.Live, error) {
	if err := s.asked.SetDeadline(time.Now().Add(s.patience)); err != nil {
		return nil, err
	}
	if err := s.image.Ask(s.asked, s.PID, s.Path, s.Command); err != nil {
		return nil, err
	}
	return s.image.Live(s.image.Clock)
}

// pass sends all items that others own, and an End.
func (s *stream) pass(ctx context.Context) error {
	s.end, s.said = End{}, time.Now()
	err := s.items(ctx)
	if err != nil {
		s.end.Error, s.end.Complete = err.Error(), false
	}
	end, jsonErr := json.Marshal(s.end)
	if jsonErr != nil {
		return jsonErr
	}
	frame := append(make([]byte, FrameHead, FrameHead+len(end)), end...)
	PutHead(frame, Ended)
	_, sendErr := s.conn.Write(frame)
	return errors.Join(err, sendErr)
}

func (s *stream) items(ctx context.Context) error {
	live, err := s.refresh()
	if err != nil {
		return err
	}
	s.reader.live = live
	s.batch.unread = 0
	before, err := s.moves()
	if err != nil {
		return err
	}
	order := []Band{everything}
	if s.passes++; s.passes == 1 {
		order = s.survey.order
	}
	for _, band := range order {
		if err := s.band(ctx, band); err != nil {
			return err
		}
	}
	after, err := s.moves()
	s.end.Complete = err == nil && len(order) == 1 && before == after && before != moving && s.batch.unread == 0
	return err
}

func (s *stream) band(ctx context.Context, band Band) error {
	for page := range s.reader.Pages() {
		if s.passes == 1 && !band.overlaps(s.survey.pages[page]) {
			continue
		}
		if err := ctx.Err(); err != nil { // before each page, because a member that ends waits for this
			return err
		}
		if err := s.reader.Read(page, band, s.elsewhere, &s.batch); err != nil {
			return err
		}
		if time.Since(s.said) >= sayEvery {
			if err := s.sendItems(make([]byte, FrameHead)); err != nil {
				return err
			}
		}
		if len(s.batch.Records) < shipBytes && len(s.batch.asks) < askKeys {
			continue
		}
		if err := s.ship(); err != nil {
			return err
		}
	}
	return s.ship()
}

// ship sends the batch, unless clients have flushed memcached meanwhile, and then memcached's answers for the
// rest.
func (s *stream) ship() error {
	if s.batch.Items > 0 {
		flushed, err := s.flushed()
		if err != nil {
			return err
		}
		if flushed {
			s.batch.rewind(mark{records: FrameHead, keys: len(s.batch.keys), asks: len(s.batch.asks)})
			s.batch.unread++
		}
	}
	if err := s.send(); err != nil {
		return err
	}
	return s.ask()
}

// flushed tells whether clients have flushed memcached since it was last asked.
func (s *stream) flushed() (bool, error) {
	if err := s.asked.SetDeadline(time.Now().Add(s.patience)); err != nil {
		return false, err
	}
	settings, err := s.asked.Stats("settings")
	if err != nil {
		return false, err
	}
	oldest, err := strconv.ParseInt(settings["oldest"], 10, 64)
	if err != nil {
		return false, fmt.Errorf("%w to stats settings: oldest=%q", memcache.ErrProtocol, settings["oldest"])
	}
	now := s.image.Clock + time.Now().Unix() - s.image.NodeClock
	live, flushed := s.reader.live.Newer(oldest, now)
	s.reader.live = live
	return flushed, nil
}

// send sends the records.
func (s *stream) send() error {
	if s.batch.Items == 0 {
		return nil
	}
	s.end.Items += int64(s.batch.Items)
	err := s.sendItems(s.batch.Records)
	s.batch.Records, s.batch.Items = s.batch.Records[:FrameHead], 0
	return err
}

func (s *stream) sendItems(frame []byte) error {
	PutHead(frame, Items)
	_, err := s.conn.Write(frame)
	s.said = time.Now()
	return err
}

// ask asks memcached for the items that could not be read, and sends them.
func (s *stream) ask() error {
	asks, keys := s.batch.asks, s.batch.keys
	for len(asks) > 0 {
		n, from := min(len(asks), askKeys), 0
		if done := len(s.batch.asks) - len(asks); done > 0 {
			from = s.batch.asks[done-1].end
		}
		if err := s.askFor(asks[:n], keys, from); err != nil {
			return err
		}
		asks = asks[n:]
	}
	s.batch.asks, s.batch.keys = s.batch.asks[:0], keys[:0]
	return s.send()
}

// askFor asks for keys, the first of which begins at from.
func (s *stream) askFor(asks []ask, keys []byte, from int) error {
	if err := s.asked.SetDeadline(time.Time{}); err != nil {
		return err
	}
	s.request = s.request[:0]
	var err error
	readable := asks[:0:0]
	starts := make([]int, 0, len(asks))
	for _, a := range asks {
		if s.request, err = memcache.AppendFetch(s.request, keys[from:a.end]); err == nil {
			readable, starts = append(readable, a), append(starts, from)
		} else {
			s.batch.unread++ // the text protocol can't carry the key; the next pass may read the item
		}
		from = a.end
	}
	asked := time.Now().Unix()
	sent := make(chan error, 1)
	go func() { sent <- s.asked.Send(s.request) }()
	for i, a := range readable {
		// The deadline is for each answer: between two answers, frames are sent as fast as the mover takes
		// them.
		var v *memcache.Value
		if err = s.asked.SetReadDeadline(time.Now().Add(s.patience)); err == nil {
			v, err = s.asked.Fetched()
			s.end.Asked++
		}
		if err == nil && v != nil {
			err = s.answered(keys[starts[i]:a.end], a.expireAt, asked, v)
		}
		if err != nil {
			s.asked.Close()
			return errors.Join(err, <-sent)
		}
	}
	return <-sent
}

// answered adds memcached's own answer to a request of that time.
func (s *stream) answered(key []byte, expireAt, asked int64, v *memcache.Value) error {
	now := s.image.Clock + asked - s.image.NodeClock
	it := item.Item{Key: key, Value: v.Data, Flags: v.Flags, CAS: v.CAS, BinaryKey: v.BinaryKey,
		ExpireAt: v.ExpireAt(expireAt, now), LastAccess: now - v.Idle}
	if v.Outdated() {
		it.State = item.Invalidated
	}
	s.batch.Records = AppendItem(s.batch.Records, &it)
	s.batch.Items++
	if len(s.batch.Records) < shipBytes {
		return nil
	}
	return s.send()
}

// moves reads the counters of memcached's slab mover, which moves items to other places. moves returns
// "moving" while the mover works, or if that is unknown.
func (s *stream) moves() (string, error) {
	if !s.image.SlabReassign {
		return "", nil
	}
	if err := s.asked.SetDeadline(time.Now().Add(s.patience)); err != nil {
		return "", err
	}
	stats, err := s.asked.Stats("")
	if err != nil {
		return "", err
	}
	rescues, moved := stats["slab_reassign_rescues"], stats["slabs_moved"]
	if stats["slab_reassign_running"] != "0" || rescues == "" || moved == "" {
		return moving, nil
	}
	return rescues + " " + moved, nil
}

const moving = "moving"
