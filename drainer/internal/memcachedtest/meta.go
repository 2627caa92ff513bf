package memcachedtest

// Meta is the file that memcached writes beside a file of its items (restart.c), beginning with the tag of
// the items' own settings.
const Meta = `Tmain
Kslab_config 1.25
Kmaxbytes 67108864
Kchunk_size 48
Kitem_size_max 1048576
Kslab_chunk_size_max 524288
Kslab_page_size 1048576
Kuse_cas true
Kslab_reassign true
Kcurrent_time 65
Kprocess_started 1795202756
Kstop_time 1795202824
Kcurrent_cas 1000051
Koldest_cas 7
Klogger_gid 1
Khashpower 18
Koldest_live 3
Kmmap_oldbase 0x7fdef0800000
`
