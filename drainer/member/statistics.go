package member

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// memcached's statistics have the names, labels and types that Prometheus' own memcached_exporter gives them, so
// that dashboards and alerts for it work, even where another type would suit a value better. There is no series for
// what a memcached doesn't count.
//
// Source: github.com/prometheus/memcached_exporter, pkg/exporter/exporter.go.

// statistics are memcached's answers to stats, stats settings, stats items and stats slabs.
type statistics struct {
	general, settings, items, slabs map[string]string
}

// metric is one of Prometheus' metrics.
type metric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

// described are all metrics.
var described []*prometheus.Desc

// MetricDescs returns the descriptions of all metrics of a member, which alerts and dashboards ask for.
func MetricDescs() []*prometheus.Desc { return described }

func describe(kind prometheus.ValueType, name, help string, labels []string) metric {
	desc := prometheus.NewDesc("memcached_"+name, help, labels, nil)
	described = append(described, desc)
	return metric{desc, kind}
}

func counter(name, help string, labels ...string) metric {
	return describe(prometheus.CounterValue, name, help, labels)
}

func gauge(name, help string, labels ...string) metric {
	return describe(prometheus.GaugeValue, name, help, labels)
}

func (m metric) send(to chan<- prometheus.Metric, value float64, labels ...string) {
	to <- prometheus.MustNewConstMetric(m.desc, m.kind, value, labels...)
}

// statistic is a metric with the name that memcached has for it.
type statistic struct {
	metric
	name   string
	labels []string
}

// is returns the metric, with these labels, for memcached's statistic of that name.
func (m metric) is(name string, labels ...string) statistic { return statistic{m, name, labels} }

// slabLabel is the label with the number of a slab class.
const slabLabel = "slab"

var (
	memcachedUp      = gauge("up", "1 if memcached has answered, 0 if not.")
	memcachedVersion = gauge("version", "1, with memcached's version.", "version")

	commands      = counter("commands_total", "Commands, by command and status.", "command", "status")
	classCommands = counter("slab_commands_total", "Commands, by slab class, command and status.", slabLabel, "command", "status")
	lruHits       = counter("slab_lru_hits_total", "Reads that found an item, by slab class and LRU.", slabLabel, "lru")

	malloced = gauge("malloced_bytes", "Memory of slab pages.").is("total_malloced")

	// generalStats are in the answer to stats.
	generalStats = append([]statistic{
		commands.is("get_misses", "get", "miss"),
		commands.is("delete_misses", "delete", "miss"),
		commands.is("incr_misses", "incr", "miss"),
		commands.is("decr_misses", "decr", "miss"),
		commands.is("cas_misses", "cas", "miss"),
		commands.is("touch_misses", "touch", "miss"),
		commands.is("cmd_flush", "flush", "hit"),
		counter("uptime_seconds", "Time since memcached started; a warm start goes on counting.").is("uptime"),
		gauge("time_seconds", "memcached's clock, as Unix time.").is("time"),
		counter("process_user_cpu_seconds_total", "CPU time of the process, in user mode.").is("rusage_user"),
		counter("process_system_cpu_seconds_total", "CPU time of the process, in the kernel.").is("rusage_system"),
		gauge("current_bytes", "Bytes of the items.").is("bytes"),
		gauge("limit_bytes", "Bytes that items may take (-m).").is("limit_maxbytes"),
		gauge("current_items", "Items.").is("curr_items"),
		counter("items_total", "Items that were ever stored.").is("total_items"),
		counter("read_bytes_total", "Bytes that clients have sent.").is("bytes_read"),
		counter("written_bytes_total", "Bytes that clients were sent.").is("bytes_written"),
		gauge("current_connections", "Open connections.").is("curr_connections"),
		counter("connections_total", "Connections that were ever opened.").is("total_connections"),
		counter("connections_rejected_total", "Connections that were closed at once, at the limit.").is("rejected_connections"),
		counter("connections_yielded_total", "Times that a connection had to wait after -R requests.").is("conn_yields"),
		counter("connections_listener_disabled_total", "Times that no connection was accepted, at the limit.").is("listen_disabled_num"),
		gauge("accepting_connections", "1 if memcached accepts connections, 0 at the limit.").is("accepting_conns"),
		counter("items_evicted_total", "Items that were removed before their time, to make room.").is("evictions"),
		counter("items_reclaimed_total", "Items that were stored in the place of an expired one.").is("reclaimed"),
		counter("item_too_large_total", "Items that were refused, because they are too large.").is("store_too_large"),
		counter("item_no_memory_total", "Items that were refused for lack of memory.").is("store_no_memory"),
		counter("direct_reclaims_total", "Times that a store had to make room itself.").is("direct_reclaims"),
		counter("lru_crawler_starts_total", "Times that the LRU crawler was started.").is("lru_crawler_starts"),
		counter("lru_crawler_items_checked_total", "Items that the LRU crawler has looked at.").is("crawler_items_checked"),
		counter("lru_crawler_reclaimed_total", "Items that the LRU crawler has removed.").is("crawler_reclaimed"),
		counter("lru_crawler_moves_to_cold_total", "Items that went from HOT or WARM to COLD.").is("moves_to_cold"),
		counter("lru_crawler_moves_to_warm_total", "Items that went from COLD to WARM.").is("moves_to_warm"),
		counter("lru_crawler_moves_within_lru_total", "Items that went to the head of HOT or WARM.").is("moves_within_lru"),
		counter("extstore_compact_lost_total", "Items that a compaction of extstore lost.").is("extstore_compact_lost"),
		counter("extstore_compact_rescued_total", "Items that a compaction of extstore kept.").is("extstore_compact_rescues"),
		counter("extstore_compact_skipped_total", "Items that a compaction of extstore dropped as unused.").is("extstore_compact_skipped"),
		counter("extstore_pages_allocated_total", "Pages of extstore that were taken.").is("extstore_page_allocs"),
		counter("extstore_pages_evicted_total", "Pages of extstore that were evicted.").is("extstore_page_evictions"),
		counter("extstore_pages_reclaimed_total", "Pages of extstore that were freed.").is("extstore_page_reclaims"),
		gauge("extstore_pages_free", "Pages of extstore without items.").is("extstore_pages_free"),
		gauge("extstore_pages_used", "Pages of extstore with items.").is("extstore_pages_used"),
		counter("extstore_objects_evicted_total", "Items that extstore evicted.").is("extstore_objects_evicted"),
		counter("extstore_objects_read_total", "Items that were read from extstore.").is("extstore_objects_read"),
		counter("extstore_objects_written_total", "Items that were written to extstore.").is("extstore_objects_written"),
		gauge("extstore_objects_used", "Items in extstore.").is("extstore_objects_used"),
		counter("extstore_bytes_evicted_total", "Bytes that extstore evicted.").is("extstore_bytes_evicted"),
		counter("extstore_bytes_written_total", "Bytes that were written to extstore.").is("extstore_bytes_written"),
		counter("extstore_bytes_read_total", "Bytes that were read from extstore.").is("extstore_bytes_read"),
		counter("extstore_bytes_used", "Bytes of items in extstore.").is("extstore_bytes_used"),
		gauge("extstore_bytes_fragmented", "Bytes of extstore's pages without items.").is("extstore_bytes_fragmented"),
		gauge("extstore_bytes_limit", "Bytes that extstore may take.").is("extstore_limit_maxbytes"),
		gauge("extstore_io_queue_depth", "Requests that wait for extstore.").is("extstore_io_queue"),
	}, hits(commands)...)

	mostConnections = gauge("max_connections", "Connections that may be open (-c).").is("maxconns")

	// crawlerStats are in the answer to stats settings, and matter if the LRU crawler runs.
	crawlerStats = []statistic{
		gauge("lru_crawler_enabled", "1 if the LRU crawler runs.").is("lru_crawler"),
		gauge("lru_crawler_sleep", "Microseconds that the LRU crawler rests.").is("lru_crawler_sleep"),
		gauge("lru_crawler_to_crawl", "Items that the LRU crawler looks at in one run.").is("lru_crawler_tocrawl"),
		gauge("lru_crawler_maintainer_thread", "1 if a thread maintains the LRUs.").is("lru_maintainer_thread"),
		gauge("lru_crawler_hot_percent", "Share of a class' memory for HOT, in percent.").is("hot_lru_pct"),
		gauge("lru_crawler_warm_percent", "Share of a class' memory for WARM, in percent.").is("warm_lru_pct"),
		gauge("lru_crawler_hot_max_factor", "Age at which HOT gives items up, of COLD's.").is("hot_max_factor"),
		gauge("lru_crawler_warm_max_factor", "Age at which WARM gives items up, of COLD's.").is("warm_max_factor"),
	}

	// itemsStats are those of each class, in the answer to stats items.
	itemsStats = []statistic{
		gauge("slab_current_items", "Items of a class.", slabLabel).is("number"),
		gauge("slab_items_age_seconds", "Time since the last use of a class' oldest item.", slabLabel).is("age"),
		lruHits.is("hits_to_hot", "hot"),
		lruHits.is("hits_to_warm", "warm"),
		lruHits.is("hits_to_cold", "cold"),
		lruHits.is("hits_to_temp", "temporary"),
		counter("slab_items_crawler_reclaimed_total", "Items of a class that the LRU crawler has removed.", slabLabel).is("crawler_reclaimed"),
		counter("slab_items_evicted_total", "Items of a class that were removed before their time.", slabLabel).is("evicted"),
		counter("slab_items_evicted_nonzero_total", "Evicted items that had a time to live.", slabLabel).is("evicted_nonzero"),
		counter("slab_items_evicted_time_seconds", "Time since the last use of the item that was evicted last.", slabLabel).is("evicted_time"),
		counter("slab_items_evicted_unfetched_total", "Evicted items that were never read.", slabLabel).is("evicted_unfetched"),
		counter("slab_items_expired_unfetched_total", "Expired items that were never read.", slabLabel).is("expired_unfetched"),
		counter("slab_items_outofmemory_total", "Items of a class that were refused for lack of memory.", slabLabel).is("outofmemory"),
		counter("slab_items_reclaimed_total", "Items of a class that were stored in the place of an expired one.", slabLabel).is("reclaimed"),
		counter("slab_items_tailrepairs_total", "Items of a class that were freed although they seemed to be in use.", slabLabel).is("tailrepairs"),
		counter("slab_items_moves_to_cold", "Items of a class that went from HOT or WARM to COLD.", slabLabel).is("moves_to_cold"),
		counter("slab_items_moves_to_warm", "Items of a class that went from COLD to WARM.", slabLabel).is("moves_to_warm"),
		counter("slab_items_moves_within_lru", "Items of a class that went to the head of HOT or WARM.", slabLabel).is("moves_within_lru"),
		counter("slab_mem_requested_bytes", "Bytes of the items of a class.", slabLabel).is("mem_requested"),
		gauge("slab_hot_items", "Items of a class in HOT.", slabLabel).is("number_hot"),
		gauge("slab_warm_items", "Items of a class in WARM.", slabLabel).is("number_warm"),
		gauge("slab_cold_items", "Items of a class in COLD.", slabLabel).is("number_cold"),
		gauge("slab_temporary_items", "Items of a class in TEMP.", slabLabel).is("number_temp"),
		gauge("slab_hot_age_seconds", "Age of the oldest item in HOT.", slabLabel).is("age_hot"),
		gauge("slab_warm_age_seconds", "Age of the oldest item in WARM.", slabLabel).is("age_warm"),
	}

	// slabsStats are those of each class, in the answer to stats slabs.
	slabsStats = append([]statistic{
		gauge("slab_chunk_size_bytes", "Bytes of a chunk.", slabLabel).is("chunk_size"),
		gauge("slab_chunks_per_page", "Chunks of a page.", slabLabel).is("chunks_per_page"),
		gauge("slab_current_pages", "Pages of a class.", slabLabel).is("total_pages"),
		gauge("slab_current_chunks", "Chunks of a class.", slabLabel).is("total_chunks"),
		gauge("slab_chunks_used", "Chunks with items.", slabLabel).is("used_chunks"),
		gauge("slab_chunks_free", "Chunks without items.", slabLabel).is("free_chunks"),
		gauge("slab_chunks_free_end", "Chunks at the end of the last page that were never used.", slabLabel).is("free_chunks_end"),
	}, hits(classCommands)...)
)

// hits are the statistics that memcached counts for itself and for each class.
func hits(of metric) []statistic {
	return []statistic{
		of.is("get_hits", "get", "hit"),
		of.is("delete_hits", "delete", "hit"),
		of.is("incr_hits", "incr", "hit"),
		of.is("decr_hits", "decr", "hit"),
		of.is("cas_hits", "cas", "hit"),
		of.is("cas_badval", "cas", "badval"),
		of.is("touch_hits", "touch", "hit"),
	}
}

// maxClass is the number of slab classes that memcached can have.
const maxClass = 63

// collect sends the metrics.
func (s *statistics) collect(to chan<- prometheus.Metric) {
	const longest = 64 // bytes: a version is a text of the user's own image
	memcachedVersion.send(to, 1, strings.ToValidUTF8(fmt.Sprintf("%.*s", longest, s.general["version"]), ""))
	for _, g := range generalStats {
		g.collect(to, s.general, "")
	}
	// memcached counts a cas as a set, too.
	if n, ok := difference(s.general, "", "cmd_set", "cas_misses", "cas_hits", "cas_badval"); ok {
		commands.send(to, n, "set", "hit")
	}
	malloced.collect(to, s.slabs, "")
	mostConnections.collect(to, s.settings, "")
	if s.settings["lru_crawler"] == "yes" {
		for _, c := range crawlerStats {
			c.collect(to, s.settings, "")
		}
	}
	for n := 1; n <= maxClass; n++ {
		s.collectClass(to, strconv.Itoa(n))
	}
}

func (s *statistics) collectClass(to chan<- prometheus.Metric, n string) {
	for _, i := range itemsStats {
		i.collect(to, s.items, "items:"+n+":", n)
	}
	for _, c := range slabsStats {
		c.collect(to, s.slabs, n+":", n)
	}
	if sets, ok := difference(s.slabs, n+":", "cmd_set", "cas_hits", "cas_badval"); ok {
		classCommands.send(to, sets, n, "set", "hit")
	}
}

// collect sends the metric if it is in the answer, with these labels before its own.
func (s statistic) collect(to chan<- prometheus.Metric, answer map[string]string, prefix string, labels ...string) {
	if value, ok := number(answer[prefix+s.name]); ok {
		s.send(to, value, append(labels, s.labels...)...)
	}
}

// number reads a statistic. Settings can be yes or no.
func number(text string) (float64, bool) {
	switch text {
	case "yes":
		return 1, true
	case "no":
		return 0, true
	}
	n, err := strconv.ParseFloat(text, 64)
	return n, err == nil
}

// difference is the first statistic without the others; false if one is missing.
func difference(answer map[string]string, prefix, of string, without ...string) (float64, bool) {
	n, ok := number(answer[prefix+of])
	for _, name := range without {
		less, known := number(answer[prefix+name])
		n, ok = n-less, ok && known
	}
	return n, ok
}
