package commandline

// Form is a list of arguments for tests, and whether it is refused: the supervisor and the API's rules have to
// judge each the same way.
type Form struct {
	Arguments []string
	Refused   bool
}

func refused(arguments ...string) Form { return Form{arguments, true} }

func taken(arguments ...string) Form { return Form{arguments, false} }

// SupervisorsForms returns forms of the options that only the supervisor sets: -e and -d.
func SupervisorsForms() []Form {
	return []Form{
		refused("-e", "/x"), refused("-e/x"), refused("-ve/x"), refused("-ve", "/x"), refused("-We/x"), refused("-vWe", "/x"),
		refused("-AkMrLCFXWe/x"), refused("-v", "-e/x"), refused("-f", "1.5", "-e", "/x"), refused("-e"),
		refused("--memory-file=/x"), refused("--memory-file", "/x"), refused("--memory-f=/x"), refused("--memory-f", "/x"), refused("--memory-f"),
		refused("-d"), refused("-vd"), refused("-Wd"), refused("-dv"), refused("--daemon"), refused("--daem"), refused("--da"),
		taken("-v"), taken("-vW"), taken("-W"), taken("--verbose"), taken("-R", "40"), taken("-vR40"), taken("-o", "modern"),
		taken("-o", "hash_algorithm=xxh3,no_lru_crawler"), taken("--disable-watch"), taken("--slab-min-size=48"), taken("-f1.25"),
	}
}

// ExternalForms returns forms of extstore, from whose file memcached never restarts.
func ExternalForms() []Form {
	return []Form{
		refused("-o", "ext_path=/x:64m"), refused("-oext_path=/x:64m"), refused("-vWoext_path=/x:64m"), refused("--extended=ext_path=/x:64m"),
		refused("--ext", "modern,ext_path=/x:64m"), refused("-o", "ext_item_size=512,ext_path=/x:64m,modern"),
		taken("-o", "modern"), taken("-o", "ext_item_size=512"),
	}
}

// ShortPagesForms returns layouts that memcached never restarts from.
func ShortPagesForms() []Form {
	return []Form{
		refused("-o", "no_modern"), refused("-ono_modern"), refused("-vWono_modern"), refused("--extended=no_modern"), refused("--ext", "no_modern"),
		refused("--ex=modern,no_modern"), refused("-o", "no_modern=1"), refused("-o", "modern,no_modern,hash_algorithm=xxh3"),
		refused("-o", "no_modern", "-o", "modern"), refused("-o", "no_modern,slab_chunk_max=1048576"), refused("-o", "no_modern,no_chunked_items"),
		refused("-o", "no_slab_reassign,slab_chunk_max=1048576"), refused("-o", "no_slab_reassign,slab_chunk_max=1024"),
		refused("-o", "slab_chunk_max=1048576,no_slab_reassign"), refused("-o", "no_slab_reassign", "-oslab_chunk_max=01048576"),
		refused("-o", "no_slab_reassign,no_chunked_items"), refused("-o", "no_slab_reassign,slab_chunk_max=524288,no_chunked_items"),
		taken("-v"), taken("-o", "modern"), taken("-o", "no_slab_reassign"), taken("-o", "no_slab_reassign,slab_chunk_max=524288"),
		taken("-o", "slab_chunk_max=1048576"), taken("-o", "no_chunked_items"), taken("-o", "no_modern,slab_chunk_max=524288"),
		taken("-o", "no_slab_reassign,slab_chunk_max=10240"), taken("-o", "no_slab_automove,no_chunked_items"),
	}
}

// NeverStartsForms returns values with which memcached exits or crashes at once, or never answers, and the nearest ones
// with which it runs.
func NeverStartsForms() []Form {
	all := []Form{
		refused("-f", "1"), refused("-f1.0"), refused("-vf", "0"), refused("-f", ".5"), refused("-f", "-2"), refused("-f", "x"), refused("--slab-growth=1"),
		refused("--slab-growth-factor", "0.9"), refused("-n", "0"), refused("-n", "-1"), refused("-n4294967295"), refused("-n0x"), refused("-n", "x"), refused("--slab-min-size=0"),
		refused("-R", "0"), refused("-R", "-1"), refused("-vR-1"), refused("-R4294967295"), refused("--max-reqs-per-event=-1"), refused("-vR0"), refused("--max-r", "0"), refused("-v", "-f", "1", "-R", "20"),
		taken("-f", "1.001"), taken("-f", "+1.5"), taken("-f10"), taken("-n", "1"), taken("-R007"), taken("--max-reqs-per-event=1"),
		taken("-f", "1.25", "-n", "48", "-R", "20"), taken("-o", "modern,hash_algorithm=murmur3"),
	}
	for pair, tooMuch := range map[[2]string]bool{{"50", "31"}: true, {"79", "79"}: true, {"40", "40"}: false, {"79", "1"}: false} {
		all = append(all, Form{[]string{"-o", "hot_lru_pct=" + pair[0] + ",warm_lru_pct=" + pair[1]}, tooMuch})
	}
	all = append(all, refused("-o", "hot_lru_pct=41"), taken("-o", "hot_lru_pct=40"), refused("-o", "modern,warm_lru_pct=61"), taken("-o", "warm_lru_pct=60"))
	// All count, the last one for what only two of them exceed together.
	all = append(all, refused("-o", "hot_lru_pct=20,hot_lru_pct=90"), refused("-o", "hot_lru_pct=20,hot_lru_pct=70"), refused("-o", "hot_lru_pct=20", "-ohot_lru_pct=70"),
		taken("-o", "hot_lru_pct=70,hot_lru_pct=20"), taken("-ohot_lru_pct=70", "-o", "warm_lru_pct=10"), taken("-o", "warm_lru_pct=70,hot_lru_pct=30,warm_lru_pct=50"))
	all = append(all, refused("-o", "proxy_config=routelib"), refused("-o", "proxy_config=/config/routes.lua,proxy_arg=/config/pools"), refused("-vo", "modern,proxy_uring"))
	for _, name := range []string{"slab_sizes", "sock_cookie_id", "slab_chunk_max", "hashpower", "hash_algorithm", "temporary_ttl", "idle_timeout", "hot_max_factor", "proxy_config", "proxy_arg", "ssl_min_version"} { // without a value
		all = append(all, refused("-o", name), refused("-omodern,"+name+",track_sizes"))
	}
	for name, values := range map[string]struct{ refused, taken []string }{
		"hashpower":            {[]string{"0", "-1", "12", "33", "100", "x", "", "0.5"}, []string{"13", "016"}},
		"lru_crawler_sleep":    {[]string{"-1", "x", "", "2000000", "2147483647"}, []string{"0", "100", "1000000"}},
		"lru_crawler_tocrawl":  {[]string{"-1", "x", "", "0.5", "99999999999999999999"}, []string{"0", "100"}},
		"read_buf_mem_limit":   {[]string{"-1", "x", ""}, []string{"0", "16"}},
		"slab_chunk_max":       {[]string{"0", "00", "-1", "x", "", "512k", "4294967295"}, []string{"1", "09", "512", "524288"}},
		"watcher_logbuf_size":  {[]string{"-1", "x", "", "0.5"}, []string{"0", "256"}},
		"worker_logbuf_size":   {[]string{"0", "1", "47", "-1", "x", "", "600000", "2147483647"}, []string{"48", "64", "524288"}},
		"slab_sizes":           {[]string{"x", "", "-5-10", "100-x", "0", "0-96", "96-00", "96-0-200", "47-96", "40-80", "10000000"}, []string{"48", "100", "100-200", "100-1000"}},
		"hash_algorithm":       {[]string{"0", "", "x", "j", "jenkins1", "murmur", "xxh", "xxh32"}, []string{"jenkins", "murmur3", "xxh3"}},
		"ssl_min_version":      {[]string{"4", "10", "-1", "x", ""}, []string{"0", "3", "03"}},
		"ext_item_size":        {[]string{"-1", "x", ""}, []string{"0", "512"}},
		"ext_io_depth":         {[]string{"-1", "x", ""}, []string{"1"}},
		"ext_threads":          {[]string{"-1", "x", ""}, []string{"1"}},
		"hot_lru_pct":          {[]string{"0", "80", "-1", "100", "x", ""}, []string{"1", "20"}},
		"warm_lru_pct":         {[]string{"0", "80", "-1", "100", "x", ""}, []string{"1", "40"}},
		"tail_repair_time":     {[]string{"0", "9", "-1", "x", "", "0.5", "4294967295"}, []string{"10", "0100"}},
		"slab_automove_window": {[]string{"0", "2", "x", "", "-1", "2147483647", "0.5"}, []string{"3", "30"}},
		"slab_automove_ratio":  {[]string{"0", "0.0", "2", "10", "1.5", "1.01", "-1", "x"}, []string{"0.5", "1", "1.0", ".8"}},
		"slab_automove":        {[]string{"3", "10", "-1"}, []string{"0", "2"}},
		"hot_max_factor":       {[]string{"0", "0.0", "-1", "x", ""}, []string{"0.1", "2"}},
		"warm_max_factor":      {[]string{"0", "0.0", "-1", "x", ""}, []string{"0.1", "2"}},
	} {
		for _, v := range values.refused {
			all = append(all, refused("-o", name+"="+v), refused("-vomodern,"+name+"="+v))
		}
		for _, v := range values.taken {
			all = append(all, taken("-o", name+"="+v+",modern"))
		}
	}
	return all
}
