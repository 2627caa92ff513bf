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
		refused("-o", "slab_chunk_max=1048576,no_slab_reassign"), refused("-o", "no_slab_reassign", "-oslab_chunk_max= +01048576"),
		refused("-o", "no_slab_reassign,no_chunked_items"), refused("-o", "no_slab_reassign,slab_chunk_max=524288,no_chunked_items"),
		taken("-v"), taken("-o", "modern"), taken("-o", "no_slab_reassign"), taken("-o", "no_slab_reassign,slab_chunk_max=524288"),
		taken("-o", "slab_chunk_max=1048576"), taken("-o", "no_chunked_items"), taken("-o", "no_modern,slab_chunk_max=524288"),
		taken("-o", "no_slab_reassign,slab_chunk_max=10240"), taken("-o", "no_slab_automove,no_chunked_items"),
	}
}
