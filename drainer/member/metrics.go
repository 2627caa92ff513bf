package member

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/listen"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/volume"
)

// The supervisor serves memcached's metrics by plain HTTP and without a login, even if memcached has TLS and
// logins, because metrics are only numbers. For all scrapes that wait, the supervisor asks memcached once, on
// the connection of its pulse, which was there before there were clients. So a memcached at its limit of
// connections is measured, too, and a scrape costs no handshake.

// scrapePatience is how long a scrape waits for memcached: less than Prometheus' usual patience, 10 seconds, so that
// Prometheus learns of a memcached that doesn't answer.
const scrapePatience = 3 * time.Second

// question is a request for all statistics, closed without an answer if there is none. The channel needs room
// for one answer, which may come late.
type question chan *statistics

// statistics asks for all of memcached's statistics.
func (p *pulse) statistics(ctx context.Context) (*statistics, error) {
	q := make(question, 1)
	select {
	case p.questions <- q:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case all := <-q:
		if all == nil {
			return nil, errors.New("memcached's connection is lost")
		}
		return all, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func askStatistics(conn *memcache.Conn) (all *statistics, err error) {
	all = &statistics{}
	for _, of := range []struct {
		arg    string
		answer *map[string]string
	}{{"", &all.general}, {"settings", &all.settings}, {"items", &all.items}, {"slabs", &all.slabs}} {
		if *of.answer, err = conn.Stats(of.arg); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// serveMetrics serves metrics until ctx ends.
func (s *supervisor) serveMetrics(ctx context.Context) {
	save := s.lastSave()
	mux := http.NewServeMux()
	mux.Handle("GET "+contract.MetricsPath, listen.Metrics(func(to chan<- prometheus.Metric) {
		s.collect(ctx, to)
		save.collect(to)
	}))
	s.serveHTTP(ctx, s.MetricsPort, "a scrape of the metrics", mux)
}

// collect asks memcached, and sends its statistics, and how it has started.
func (s *supervisor) collect(ctx context.Context, to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(ctx, scrapePatience)
	defer cancel()
	all, err := s.pulse.statistics(ctx)
	if err != nil {
		memcachedUp.send(to, 0)
	} else {
		memcachedUp.send(to, 1)
		all.collect(to)
	}
	started.send(to, 1, s.howStarted())
}

// The ways in which a member has started, in the metrics.
const (
	startedWarm     = "warm"     // memcached had its items at once
	startedReplayed = "replayed" // memcached began empty, and got items of earlier files after that
	startedCold     = "cold"     // nothing came back
)

func (s *supervisor) howStarted() string {
	switch {
	case s.pending:
		return startedReplayed
	case s.manifest == nil || s.manifest.Fresh || s.manifest.isRejected():
		return startedCold
	}
	return startedWarm
}

// resumed is the save that this memcached has resumed from; all is 0 if there was none.
type resumed struct {
	made, items, bytesPerSecond int64
	counted                     bool
}

// lastSave returns the save that memcached resumes from, and is called as memcached starts.
func (s *supervisor) lastSave() (last resumed) {
	if s.manifest == nil || s.manifest.Fresh || s.manifest.Previous == nil {
		return last
	}
	before := s.manifest.Previous
	last = resumed{made: before.StopTime, items: before.Items, counted: before.ItemsExact}
	if s.Saves() {
		last.bytesPerSecond = volume.SaveRate(s.Volume)
	}
	return last
}

func (s resumed) collect(to chan<- prometheus.Metric) {
	if s.made == 0 {
		return // it ended without one
	}
	saveMade.send(to, float64(s.made))
	if s.counted {
		saveItems.send(to, float64(s.items))
	}
	if s.bytesPerSecond > 0 {
		saveRate.send(to, float64(s.bytesPerSecond))
	}
}

// The supervisor's metrics, beside memcached's own.
var (
	started   = gauge("member_start", "1, with how this memcached has started: warm, replayed or cold.", "how")
	saveMade  = gauge("member_last_save_timestamp_seconds", "When the save was made from which this memcached has resumed.")
	saveItems = gauge("member_last_save_items", "Items in that save.")
	saveRate  = gauge("member_last_save_bytes_per_second", "How fast that save, or the last one that took long enough to tell, was written to the volume.")
)
