package memcachedtest

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"iter"
	"math/rand/v2"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/test/wait"
)

// Setting is a way to start memcached that changes the layout of its file.
type Setting struct {
	Args []string
	// Most is the largest value to store, in bytes; it has to leave room for header and key.
	Most int
	// Unmoved means that slab pages keep their class.
	Unmoved bool
	// Evicts means that there is too little memory for all items.
	Evicts bool
}

// Settings returns settings with different layouts of the file.
func Settings() map[string]Setting {
	return map[string]Setting{
		"default":               {Most: 1<<20 - 500},
		"small factor":          {Args: []string{"-f", "1.07"}, Most: 1<<20 - 500},
		"factor with a digit 0": {Args: []string{"-f", "1.250"}, Most: 100000},
		"large factor":          {Args: []string{"-f", "3"}, Most: 100000},
		"small -n":              {Args: []string{"-n", "5"}, Most: 100000},
		"large -n":              {Args: []string{"-n", "1000"}, Most: 100000},
		"small -I":              {Args: []string{"-I", "512k"}, Most: 512<<10 - 500},
		"large -I":              {Args: []string{"-I", "8m", "-m", "400"}, Most: 8<<20 - 500},
		"no CAS":                {Args: []string{"-C"}, Most: 1<<20 - 500},
		"small chunks":          {Args: SmallChunks(), Most: 1<<20 - 500},
		"own slab sizes":        {Args: []string{"-o", "slab_sizes=100-200-1000-10000"}, Most: 1<<20 - 500},
		"one LRU":               {Args: []string{"-o", "no_lru_maintainer"}, Most: 100000},
		"no slab moves":         {Args: []string{"-o", "no_slab_reassign"}, Most: 100000, Unmoved: true},
		"evictions":             {Args: []string{"-m", "48"}, Most: 400000, Evicts: true},
	}
}

// SmallChunks returns the arguments for chunks of at most 16 KiB: a number of bytes, or of kilobytes for
// versions that refuse so many bytes.
func SmallChunks() []string {
	bytes := []string{"-o", "slab_chunk_max=16384"}
	if exec.Command(binary(), append(bytes, "-V")...).Run() == nil {
		return bytes
	}
	return []string{"-o", "slab_chunk_max=16"}
}

// Held is a live item as clients see it.
type Held struct {
	Value string
	Flags uint64
	// ExpireAt is in Unix seconds, 0 means never.
	ExpireAt int64
}

// Population makes every kind of change to items of a server.
type Population struct {
	// Keys are all keys that were ever stored.
	Keys map[string]bool

	tb    testing.TB
	s     *Server
	raw   *Raw
	stats *memcache.Conn
	r     *rand.Rand
	// meta means that the server knows the meta commands in their final form, of 1.6.10.
	meta bool
	// unmoved: the server crashes when it moves a slab page, so none is moved.
	unmoved bool
	// expires has the times of expiry in Unix seconds, 0 for never, if the server doesn't report them.
	expires map[string]int64
	// expiring are keys that expire after a second. Asking for one would take it out of the file.
	expiring map[string]bool
	// placeholders were made by a meta get and never filled.
	placeholders map[string]bool
}

// NewPopulation begins a population on a server; equal seeds make equal ones.
func NewPopulation(tb testing.TB, s *Server, seed uint64) *Population {
	p := &Population{tb: tb, s: s, raw: s.RawFor(tb), stats: s.DialFor(tb), r: rand.New(rand.NewPCG(seed, 0)), meta: s.knowsMeta(tb), unmoved: s.CrashesInPageMoves(),
		Keys: map[string]bool{}, placeholders: map[string]bool{}, expires: map[string]int64{}, expiring: map[string]bool{}}
	if p.unmoved {
		p.raw.Do("slabs automove 0", nil)
	}
	return p
}

// knowsMeta finds out by asking for a key that is not there.
func (s *Server) knowsMeta(tb testing.TB) bool {
	tb.Helper()
	return s.RawFor(tb).Do("ms bm90aGVyZQ== 1 MR b", []byte("v")) == "NS"
}

// Populate stores many items and makes every change that affects a file, as the setting says. Populate
// checks that all of this has happened.
func (p *Population) Populate(steps int, setting Setting) {
	p.tb.Helper()
	const mostSteps = 20000
	p.spare()
	for n := 0; n < steps || setting.Evicts && p.stat("evictions") == 0; n++ {
		if n == mostSteps {
			p.tb.Fatalf("no evictions after %d items", n)
		}
		p.Step(setting.Most)
	}
	for n := 0; !setting.Unmoved && !p.unmoved && p.stat("slabs_moved") == 0; n++ {
		if n == mostSteps {
			p.tb.Fatal("no slab page was moved")
		}
		p.movePage()
	}
	if p.meta && len(p.placeholders) == 0 && steps > 300 {
		p.tb.Errorf("%d steps and no placeholder", steps)
	}
}

// spare gives a slab class a few more pages than it needs, so that some can be moved.
func (p *Population) spare() {
	p.tb.Helper()
	for i := range 1500 {
		key := "spare" + strconv.Itoa(i)
		p.Keys[key] = true
		p.raw.Must("STORED", "set "+key+" 0 0 3000", make([]byte, 3000))
		if i%3 > 0 {
			p.raw.Must("DELETED", "delete "+key, nil)
		}
	}
}

// stat returns one of the server's numbers, 0 if the server doesn't have it.
func (p *Population) stat(name string) int64 {
	p.tb.Helper()
	stats, err := p.stats.Stats("")
	if err != nil {
		p.tb.Fatal(err)
	}
	n, err := strconv.ParseInt(cmp.Or(stats[name], "0"), 10, 64)
	if err != nil {
		p.tb.Fatal(err)
	}
	return n
}

// Reconnect continues with the same server after a restart.
func (p *Population) Reconnect() { p.raw, p.stats = p.s.RawFor(p.tb), p.s.DialFor(p.tb) }

// key returns a new key: text, or bytes that have to be sent in base64.
func (p *Population) key() (key, form, flag string) {
	n := 2 + p.r.IntN(40)
	if p.r.IntN(20) == 0 {
		n = 150 + p.r.IntN(30)
	}
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('a' + p.r.IntN(26))
	}
	b = fmt.Appendf(b, "%d", len(p.Keys)) // so that all keys end differently
	form, flag = string(b), ""
	if !p.meta {
		p.Keys[form] = true
		return form, form, ""
	}
	switch p.r.IntN(10) {
	case 0, 1:
		b[0], b[1] = "\x00\n\r"[p.r.IntN(3)], ' '
		fallthrough
	case 2: // text that a client encodes nevertheless
		form, flag = base64.StdEncoding.EncodeToString(b), " b"
	}
	p.Keys[string(b)] = true
	return string(b), form, flag
}

func (p *Population) value(most int) []byte {
	n := 0
	switch p.r.IntN(12) {
	case 0:
	case 1:
		n = p.r.IntN(most)
	case 2, 3, 4:
		n = p.r.IntN(min(most, 20000))
	default:
		n = p.r.IntN(min(most, 600))
	}
	v := make([]byte, n)
	for i := range v {
		v[i] = byte(p.r.Uint32())
	}
	return v
}

// Step stores an item of at most most bytes, and usually changes it.
func (p *Population) Step(most int) {
	p.tb.Helper()
	if !p.meta {
		p.classicStep(most)
		return
	}
	key, form, binary := p.key()
	value := p.value(most)
	flags := ""
	if p.r.IntN(2) == 0 {
		flags = fmt.Sprintf(" F%d", p.r.Uint32())
	}
	ttl := []string{"", " T1", " T1000", " T100000", " T100000000"}[p.r.IntN(5)]
	if got := p.raw.Do(fmt.Sprintf("ms %s %d%s%s%s", form, len(value), binary, flags, ttl), value); got != "HD" {
		p.tb.Fatalf("store %d bytes: %s", len(value), got)
	}
	action := p.r.IntN(18)
	if ttl == " T1" && (action < 1 || action > 5) { // the other actions change its time
		p.expiring[key] = true
	}
	switch action {
	case 0:
		p.raw.Do("md "+form+binary, nil)
	case 1:
		p.raw.Do("md "+form+" I T1000"+binary, nil)
	case 2:
		if more := p.value(most); len(more)+len(value) < most/2 {
			p.raw.Do(fmt.Sprintf("ms %s %d MA%s", form, len(more), binary), more)
		}
	case 3:
		p.raw.Do("mg "+form+" t T5000"+binary, nil)
	case 4:
		p.raw.Do(fmt.Sprintf("ms %s 3%s%s", form, binary, flags), []byte("999"))
		p.raw.Do("ma "+form+" D5"+binary, nil)
		p.raw.Do("ma "+form+" MD D998"+binary, nil)
	case 5:
		p.raw.Do(fmt.Sprintf("ms %s %d%s", form, len(value)/2, binary), value[:len(value)/2])
	case 6:
		key, form, binary := p.key()
		p.raw.Do("mg "+form+" s N1000"+binary, nil)
		p.placeholders[key] = true
	case 7:
		if more := p.value(most); len(more)+len(value) < most/2 {
			p.raw.Do(fmt.Sprintf("ms %s %d MP%s", form, len(more), binary), more)
		}
	case 8:
		p.movePage()
	}
}

// classicStep is Step for a server that doesn't know the meta commands.
func (p *Population) classicStep(most int) {
	p.tb.Helper()
	_, key, _ := p.key()
	value, flags := p.value(most), p.r.Uint32()
	ttl := []int64{0, 1, 1000, 100000}[p.r.IntN(4)]
	set := func(value []byte) {
		p.tb.Helper()
		p.expires[key] = p.expiry(ttl, func() {
			p.raw.Must("STORED", fmt.Sprintf("set %s %d %d %d", key, flags, ttl, len(value)), value)
		})
	}
	set(value)
	action := p.r.IntN(12)
	if ttl == 1 && action != 3 {
		p.expiring[key] = true
	}
	switch action {
	case 0:
		p.raw.Do("delete "+key, nil)
	case 1, 2:
		if more := p.value(most); len(more)+len(value) < most/2 {
			p.raw.Do(fmt.Sprintf("%s %s 0 0 %d", []string{"append", "prepend"}[p.r.IntN(2)], key, len(more)), more)
		}
	case 3:
		there := false
		at := p.expiry(5000, func() { there = p.raw.Do("touch "+key+" 5000", nil) == "TOUCHED" })
		if there {
			p.expires[key] = at
		}
	case 4:
		set([]byte("999"))
		p.raw.Do("incr "+key+" 5", nil)
		p.raw.Do("decr "+key+" 998", nil)
	case 5:
		set(value[:len(value)/2])
	case 6:
		p.movePage()
	}
}

// expiry gives an item so many seconds, and returns when it expires, or a second earlier; 0 is never. If the
// server's clock goes on by more meanwhile, expiry gives the seconds again.
func (p *Population) expiry(seconds int64, give func()) int64 {
	p.tb.Helper()
	if seconds == 0 {
		give()
		return 0
	}
	for {
		before := p.stat("time")
		give()
		if p.stat("time") <= before+1 {
			return before + seconds
		}
	}
}

// movePage gives a page to another slab class, and waits until that is done: a move may lose items, which
// must not happen while the test looks.
func (p *Population) movePage() {
	p.tb.Helper()
	if p.unmoved {
		return
	}
	do := func(command string) string { return p.raw.Do(command, nil) }
	// memcached refuses it if there is nothing to move, which is fine.
	do("slabs reassign -1 " + strconv.Itoa(1+p.r.IntN(8)))
	waitForMoves(do, 3*time.Second)
}

// Expected asks the server itself for every key that can be there. Items that were stored for a second must
// have expired.
func (p *Population) Expected() map[string]Held {
	p.tb.Helper()
	if !p.meta {
		return p.classicExpected()
	}
	c := p.s.DialFor(p.tb)
	want := map[string]Held{}
	for key := range p.Keys {
		if p.expiring[key] {
			continue
		}
		v, err := c.Get([]byte(key))
		if err != nil {
			p.tb.Fatalf("get %q: %v", key, err)
		}
		if v == nil || v.Stale || p.placeholders[key] {
			continue
		}
		want[key] = Held{Value: string(v.Data), Flags: v.Flags, ExpireAt: ExpireAt(p.tb, c, key)}
	}
	return want
}

// classicExpected is Expected for a server that doesn't report times.
func (p *Population) classicExpected() map[string]Held {
	p.tb.Helper()
	want := map[string]Held{}
	for key := range p.Keys {
		if p.expiring[key] {
			continue
		}
		if value, flags, ok := p.raw.get(key); ok {
			want[key] = Held{Value: value, Flags: flags, ExpireAt: p.expires[key]}
		}
	}
	return want
}

// ExpireAt asks a server when the item of a key expires, in Unix seconds; 0 if never, or if the item doesn't
// exist.
func ExpireAt(tb testing.TB, c *memcache.Conn, key string) int64 {
	tb.Helper()
	for {
		before := Clock(tb, c)
		v, err := c.Get([]byte(key))
		switch {
		case err != nil:
			tb.Fatalf("get %q: %v", key, err)
		case v == nil || v.TTL < 0:
			return 0
		case Clock(tb, c) == before: // otherwise the second ended in between
			return before + v.TTL
		}
	}
}

// Clock returns a server's clock, by which its items expire, in Unix seconds.
func Clock(tb testing.TB, c *memcache.Conn) int64 {
	tb.Helper()
	stats, err := c.Stats("")
	if err != nil {
		tb.Fatal(err)
	}
	n, err := strconv.ParseInt(stats["time"], 10, 64)
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

// WaitSecond returns when the server's clock has moved on by more than a second.
func (s *Server) WaitSecond(tb testing.TB) {
	tb.Helper()
	c := s.DialFor(tb)
	end := Clock(tb, c) + 2
	wait.For(tb, "the server's clock", func() error {
		if now := Clock(tb, c); now < end {
			return fmt.Errorf("it shows %d, not yet %d", now, end)
		}
		return nil
	})
}

// ReadAll returns the live items of a reader and the number of all items.
func ReadAll(tb testing.TB, items iter.Seq2[*item.Item, error]) (map[string]Held, int64) {
	tb.Helper()
	live, n := map[string]Held{}, int64(0)
	for it, err := range items {
		if err != nil {
			tb.Fatal(err)
		}
		n++
		if it.State != item.Live {
			continue
		}
		if _, twice := live[string(it.Key)]; twice {
			tb.Errorf("%q is there twice", it.Key)
		}
		live[string(it.Key)] = Held{string(it.Value), it.Flags, it.ExpireAt}
	}
	return live, n
}

// Compare reports how two sets differ. Times may differ by a second, the resolution of the server's clock.
func Compare(tb testing.TB, got, want map[string]Held) {
	tb.Helper()
	problems := 0
	report := func(format string, args ...any) {
		if problems++; problems <= 5 {
			tb.Errorf(format, args...)
		}
	}
	for key, w := range want {
		g, ok := got[key]
		switch d := g.ExpireAt - w.ExpireAt; {
		case !ok:
			report("%.60q is missing", key)
		case g.Value != w.Value:
			report("%.60q: %d bytes, want %d; first difference at %d", key, len(g.Value), len(w.Value), difference(g.Value, w.Value))
		case g.Flags != w.Flags:
			report("%.60q: flags %d, want %d", key, g.Flags, w.Flags)
		case (g.ExpireAt == 0) != (w.ExpireAt == 0) || d < -1 || d > 1:
			report("%.60q: expires at %d, want %d", key, g.ExpireAt, w.ExpireAt)
		}
	}
	for key := range got {
		if _, ok := want[key]; !ok {
			report("%.60q should not be there", key)
		}
	}
	if problems > 0 {
		tb.Errorf("%d differences between %d items read and %d held", problems, len(got), len(want))
	}
}

func difference(a, b string) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}
