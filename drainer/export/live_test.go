package export

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/warmfile"
	"example.com/memcached-operator/test/tier"
)

func TestMain(m *testing.M) { memcachedtest.Main(m, 2) }

// Clients overwrite, increment, append, touch, delete, mark and flush items of all sizes, memcached evicts
// and its slab mover moves, while the file is read. Each accepted item
//
//   - has exactly the value that its key had when it had this CAS,
//   - was not replaced, deleted or flushed before the pass began.
func TestEveryCopyIsWhole(t *testing.T) {
	drainertest.ForSeeds(t, 4, func(t *testing.T, seed uint64) {
		if problems := newTrial(t, seed).run(true); len(problems) > 0 {
			t.Errorf("%d copies are wrong: %s", len(problems), strings.Join(problems[:min(3, len(problems))], "; "))
		}
	})
}

// The test notices a reader that doesn't read the header again.
func TestWithoutTheSecondHeader(t *testing.T) {
	tier.Second(t, "TestACopyOfAnItemThatChangesMeanwhileIsNotAccepted")
	for seed := uint64(1); seed < 20; seed++ {
		if problems := newTrial(t, seed).run(false); len(problems) > 0 {
			t.Logf("seed %d: %d copies are wrong, as they should be: %s", seed, len(problems), problems[0])
			return
		}
	}
	t.Error("no copy is wrong")
}

// trial is a memcached that clients use.
type trial struct {
	t      *testing.T
	r      *rand.Rand
	m      *memcachedtest.Mapped
	users  []*user
	byKey  map[string]*record
	probed atomic.Uint64 // the CAS before the last flush
}

// record has the known facts about a key.
type record struct {
	user *user
	key  string
	// sums are the sums of the values by their CAS, which grows; unknown if the client could not read the
	// value.
	mu    sync.Mutex
	cas   []uint64
	sums  []uint64
	least uint64 // the CAS of the present value, or the next one
	seen  map[uint64]uint64
}

// user is a client with its own keys.
type user struct {
	trial *trial
	r     *rand.Rand
	c     *memcache.Conn
	keys  []*record
}

const usersOfTrial, keysOfUser = 3, 300

// opsOfUser returns fewer operations in the first tier.
func opsOfUser() int {
	if tier.All() {
		return 4000
	}
	return 1000
}

func newTrial(t *testing.T, seed uint64) *trial {
	t.Helper()
	tr := &trial{t: t, r: rand.New(rand.NewPCG(seed, 8)), byKey: map[string]*record{}}
	tr.m = memcachedtest.StartMapped(t, filepath.Join(t.TempDir(), "file"), "-m", "48", "-f", "2", "-t", "2", "-o", "slab_automove=0")
	for n := range usersOfTrial {
		u := &user{trial: tr, r: rand.New(rand.NewPCG(seed, uint64(n))), c: tr.m.DialFor(t)}
		for i := range keysOfUser {
			k := &record{user: u, key: fmt.Sprintf("key:%d:%d", n, i), seen: map[uint64]uint64{}}
			u.keys, tr.byKey[k.key] = append(u.keys, k), k
		}
		tr.users = append(tr.users, u)
	}
	return tr
}

// run lets the clients work and reads meanwhile; it returns the problems.
func (tr *trial) run(second bool) (problems []string) {
	tr.t.Helper()
	var work sync.WaitGroup
	var busy atomic.Int64
	for _, u := range tr.users {
		busy.Add(1)
		work.Go(func() {
			defer busy.Add(-1)
			for range opsOfUser() {
				if err := u.do(); err != nil {
					tr.t.Errorf("%v", err)
					return
				}
			}
		})
	}
	defer work.Wait()
	file, err := os.Open(tr.m.Path)
	if err != nil {
		tr.t.Fatal(err)
	}
	defer file.Close()
	c, passes, accepted, asked := tr.m.DialFor(tr.t), 0, 0, 0
	for busy.Load() > 0 {
		least, flushed := tr.least(), tr.probed.Load()
		b := tr.pass(c, file, second)
		passes, accepted, asked = passes+1, accepted+b.Items, asked+len(b.asks)
		problems = append(problems, tr.take(b, least, flushed)...)
	}
	work.Wait()
	stats, err := c.Stats("")
	if err != nil {
		tr.t.Fatal(err)
	}
	tr.t.Logf("%d passes: %d accepted, %d to be asked for; %s evictions, %s items and %s pages moved",
		passes, accepted, asked, stats["evictions"], stats["slab_reassign_rescues"], stats["slabs_moved"])
	return append(problems, tr.compare()...)
}

// least returns the lowest CAS that a copy of each key can have now.
func (tr *trial) least() map[string]uint64 {
	all := map[string]uint64{}
	for key, k := range tr.byKey {
		k.mu.Lock()
		all[key] = k.least
		k.mu.Unlock()
	}
	return all
}

func (tr *trial) pass(c *memcache.Conn, file *os.File, second bool) *Batch {
	tr.t.Helper()
	r := tr.reader(c, file)
	defer r.Close()
	r.second = second
	b := &Batch{}
	for page := range r.Pages() {
		if err := r.Read(page, everything, func([]byte) bool { return true }, b); err != nil {
			tr.t.Fatal(err)
		}
	}
	return b
}

// reader returns a reader with memcached's present answers.
func (tr *trial) reader(c *memcache.Conn, file *os.File) *Reader {
	tr.t.Helper()
	image := &warmfile.Image{}
	if err := image.Ask(c, tr.m.PID(), tr.m.Path, tr.m.Args); err != nil {
		tr.t.Fatal(err)
	}
	live, err := image.Live(image.Clock)
	if err != nil {
		tr.t.Fatal(err)
	}
	r, err := NewReader(file, live)
	if err != nil {
		tr.t.Fatal(err)
	}
	return r
}

var seed = maphash.MakeSeed()

// take records the accepted items.
func (tr *trial) take(b *Batch, least map[string]uint64, flushed uint64) (problems []string) {
	tr.t.Helper()
	var it item.Item
	for rest := b.Records; len(rest) > 0; {
		var err error
		if rest, err = NextItem(rest, &it); err != nil {
			tr.t.Fatal(err)
		}
		k, known := tr.byKey[string(it.Key)]
		if !known {
			if !bytes.HasPrefix(it.Key, []byte("probe")) {
				problems = append(problems, fmt.Sprintf("no client has stored %.60q", it.Key))
			}
			continue
		}
		if it.CAS < least[k.key] || it.CAS <= flushed {
			problems = append(problems, fmt.Sprintf("%s of CAS %d was replaced or deleted (CAS %d) or flushed (CAS %d) before the pass", k.key, it.CAS, least[k.key], flushed))
		}
		sum := maphash.Bytes(seed, it.Value)
		if other, twice := k.seen[it.CAS]; twice && other != sum {
			problems = append(problems, fmt.Sprintf("%s of CAS %d was read with two values", k.key, it.CAS))
		}
		k.seen[it.CAS] = sum
	}
	return problems
}

// compare compares the accepted items with the values of each key.
func (tr *trial) compare() (problems []string) {
	for _, k := range tr.byKey {
		for cas, sum := range k.seen {
			// The slab mover of versions before 1.6.27 gives an item a new CAS.
			i, exact := slices.BinarySearch(k.cas, cas)
			if !exact {
				i--
			}
			if i < 0 || k.sums[i] != sum && k.sums[i] != unknown {
				problems = append(problems, fmt.Sprintf("%s of CAS %d has a value that it never had", k.key, cas))
			}
		}
	}
	return problems
}

// do does one operation of a client.
func (u *user) do() error {
	k := u.keys[u.r.IntN(len(u.keys))]
	switch n := u.r.IntN(100); {
	case n < 45:
		return u.store(k, "ms "+k.key+" %d c F"+strconv.Itoa(u.r.IntN(3)), u.value(k))
	case n < 60:
		return u.add(k)
	case n < 68:
		return u.store(k, "ms "+k.key+" %d c M"+string("AP"[u.r.IntN(2)]), bytes.Repeat([]byte("x"), u.r.IntN(2000)))
	case n < 75:
		return u.say("touch "+k.key+" "+strconv.Itoa(1000+u.r.IntN(1000)), nil, nil)
	case n < 87:
		return u.remove(k)
	case n < 90:
		return u.mark(k)
	case n < 95:
		return u.say(fmt.Sprintf("slabs reassign %d %d", 1+u.r.IntN(12), 1+u.r.IntN(12)), nil, nil)
	case n < 96 && u.r.IntN(40) == 0:
		return u.flush()
	default:
		_, err := u.get(k)
		return err
	}
}

// value returns a text or a number, followed by enough bytes that reading and writing take a while.
func (u *user) value(k *record) []byte {
	size := []int{1, 10, 100, 1000, 20_000, 100_000, 200_000}[u.r.IntN(7)]
	head := []string{"text of " + k.key, "1", "18446744073709551600", "95 "}[u.r.IntN(4)]
	fill := bytes.Repeat([]byte{byte('a' + u.r.IntN(26))}, u.r.IntN(size)+1)
	return append([]byte(head+[]string{"", " "}[u.r.IntN(2)]), fill...)
}

// say sends a command, and reads the answer.
func (u *user) say(command string, data []byte, take func(line string) error) error {
	request := append([]byte(command), "\r\n"...)
	if data != nil {
		request = append(append(request, data...), "\r\n"...)
	}
	if err := u.c.Send(request); err != nil {
		return err
	}
	line, err := u.c.Line()
	if err == nil && take != nil {
		err = take(string(line))
	}
	return err
}

// casOf returns the CAS in an answer, 0 if nothing was stored.
func casOf(line string) (uint64, error) {
	_, token, ok := strings.Cut(line, " c")
	if !ok || strings.HasPrefix(line, "N") || strings.HasPrefix(line, "SERVER_ERROR") {
		return 0, nil
	}
	token, _, _ = strings.Cut(token, " ")
	return strconv.ParseUint(token, 10, 64)
}

// get returns the server's value; no other client changes it.
func (u *user) get(k *record) (*memcache.Value, error) { return u.c.Get([]byte(k.key)) }

// store stores a value, and records the key's value after that.
func (u *user) store(k *record, command string, data []byte) error {
	return u.say(fmt.Sprintf(command, len(data)), data, func(line string) error {
		cas, err := casOf(line)
		if err != nil || cas == 0 {
			return err
		}
		if strings.Contains(command, " M") {
			v, err := u.get(k)
			if err != nil {
				return err
			}
			k.hasSeen(cas, v)
			return nil
		}
		k.has(cas, data)
		return nil
	})
}

// unknown is the sum of a value that was evicted before its client could read it. A reader may have copied
// it.
const unknown = 0

// hasSeen records the value that the client reads after its command, nil if it was evicted.
func (k *record) hasSeen(cas uint64, v *memcache.Value) {
	if v != nil {
		k.has(cas, v.Data)
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cas, k.sums, k.least = append(k.cas, cas), append(k.sums, unknown), cas
}

func (k *record) has(cas uint64, data []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cas, k.sums, k.least = append(k.cas, cas), append(k.sums, maphash.Bytes(seed, data)), cas
}

// add increments or decrements.
func (u *user) add(k *record) error {
	return u.say(fmt.Sprintf("ma %s M%c D%d c v", k.key, "ID"[u.r.IntN(2)], 1+u.r.IntN(100)), nil, func(line string) error {
		if !strings.HasPrefix(line, "VA ") {
			return nil
		}
		cas, err := casOf(line)
		if err != nil {
			return err
		}
		size, err := strconv.Atoi(strings.Fields(line)[1])
		if err != nil {
			return err
		}
		data := make([]byte, size+2)
		if _, err := io.ReadFull(u.c, data); err != nil {
			return err
		}
		v, err := u.get(k) // the answer to ma has the number without the blanks after it
		if err == nil {
			k.hasSeen(cas, v)
		}
		return err
	})
}

func (u *user) remove(k *record) error {
	return u.say("delete "+k.key, nil, func(string) error {
		k.mu.Lock()
		defer k.mu.Unlock()
		if n := len(k.cas); n > 0 {
			k.least = k.cas[n-1] + 1
		}
		return nil
	})
}

// mark marks an item as stale: it keeps its value, with another CAS.
func (u *user) mark(k *record) error {
	return u.say("md "+k.key+" I T1000", nil, func(line string) error {
		if !strings.HasPrefix(line, "HD") {
			return nil
		}
		v, err := u.get(k)
		switch n := len(k.cas); {
		case err != nil:
		case v != nil:
			k.has(v.CAS, v.Data)
		case n > 0: // its CAS isn't known, either
			k.hasSeen(k.cas[n-1]+1, nil)
		}
		return err
	})
}

// probe stores an item, and returns its CAS: items that were stored before have a lower one.
func (u *user) probe() (cas uint64, err error) {
	err = u.say("ms probe 1 c", []byte("x"), func(line string) (err error) {
		cas, err = casOf(line)
		return err
	})
	return cas, err
}

func (u *user) flush() error {
	cas, err := u.probe()
	if err != nil || cas == 0 {
		return err
	}
	return u.say("flush_all", nil, func(string) error {
		u.trial.probed.Store(max(cas, u.trial.probed.Load()))
		return nil
	})
}
