package ask

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

const interval = 10 * time.Second

// members are the targets in these tests: their answers, and how often they were asked.
type members struct {
	mu     sync.Mutex
	says   map[string]int
	fails  map[string]bool
	silent map[string]bool
	asked  map[string]int
	news   []string
}

func (m *members) ask(ctx context.Context, target string) (int, error) {
	m.mu.Lock()
	m.asked[target]++
	silent, fails, value := m.silent[target], m.fails[target], m.says[target]
	m.mu.Unlock()
	if silent {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	if fails {
		return 0, errors.New("no answer")
	}
	return value, nil
}

func (m *members) changed(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.news = append(m.news, key.Name)
}

func (m *members) set(target string, value int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.says[target] = value
}

func (m *members) told() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.news)
}

func (m *members) times(target string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asked[target]
}

func key(name string) types.NamespacedName { return types.NamespacedName{Namespace: "ns", Name: name} }

// play runs a sampler in a bubble with a clock of its own, until the test returns.
func play(t *testing.T, change func(*samplerOptions[string, int]), test func(*testing.T, *sampler[string, int], *members)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := &members{says: map[string]int{}, fails: map[string]bool{}, silent: map[string]bool{}, asked: map[string]int{}}
		o := samplerOptions[string, int]{
			Ask: m.ask, Changed: m.changed, Timeout: 2 * time.Second, Interval: interval,
			Workers: 4, PerCluster: 2, Targets: 100, Clock: clock.RealClock{},
		}
		if change != nil {
			change(&o)
		}
		s := newSampler(o)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.Start(ctx) }()
		test(t, s, m)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// pass lets time pass until nothing is left to do.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestTargetsThatDoNotAnswerHoldNoOtherUp(t *testing.T) {
	play(t, nil, func(t *testing.T, s *sampler[string, int], m *members) {
		var dead []string
		for i := range 50 {
			name := fmt.Sprintf("dead-%d", i)
			m.silent[name] = true
			dead = append(dead, name)
		}
		m.says["live"] = 7
		began := time.Now()
		s.Want(key("dead"), dead...)
		s.Want(key("live"), "live")
		if d := time.Since(began); d != 0 {
			t.Errorf("the one who asks waited for %s", d)
		}
		pass(0)
		if got := s.Want(key("live"), "live")["live"]; !got.Known || got.Value != 7 {
			t.Errorf("beside 50 targets that don't answer, the one that does: %+v", got)
		}
		pass(50 * time.Second) // two at once, of two seconds each
		for name, got := range s.Want(key("dead"), dead...) {
			if !got.Known || got.Err == "" {
				t.Errorf("%s: %+v", name, got)
			}
		}
	})
}

func TestATargetThatDoesNotAnswerIsAskedLessAndLess(t *testing.T) {
	play(t, nil, func(t *testing.T, s *sampler[string, int], m *members) {
		m.fails["a"] = true
		s.Want(key("c"), "a", "b")
		pass(1000 * interval)
		if n := m.times("a"); n < 60 || n > 70 { // 4 while it slows down, then each 16 intervals
			t.Errorf("one that fails was asked %d times in 1,000 intervals", n)
		}
		if n := m.times("b"); n < 999 || n > 1002 {
			t.Errorf("one that answers was asked %d times in 1,000 intervals", n)
		}
	})
}

func TestNewsComeWhenSomethingChangedAndOncePerInterval(t *testing.T) {
	play(t, nil, func(t *testing.T, s *sampler[string, int], m *members) {
		s.Want(key("c"), "a", "b", "c", "d")
		pass(0)
		if n := m.told(); n != 1 {
			t.Errorf("told %d times of the first answer, want at once, and once", n)
		}
		pass(interval)
		after := m.told()
		if after > 2 {
			t.Errorf("told %d times of the first answers", after)
		}
		pass(20 * interval)
		if n := m.told(); n != after {
			t.Errorf("told %d times although nothing changed", n-after)
		}
		for i := range 10 {
			m.set("a", i+1)
			m.set("b", i+1)
			pass(interval)
		}
		if n := m.told() - after; n < 9 || n > 11 {
			t.Errorf("told %d times of news in 10 intervals", n)
		}
	})
}

func TestNewsOfAllTogetherComeAtOnceWhenTheLastHasAnswered(t *testing.T) {
	play(t, func(o *samplerOptions[string, int]) { o.Together = true }, func(t *testing.T, s *sampler[string, int], m *members) {
		m.silent["b"] = true
		s.Want(key("c"), "a", "b")
		pass(time.Second)
		if n := m.told(); n != 0 {
			t.Errorf("told %d times before the last answer", n)
		}
		pass(time.Second)
		if n := m.told(); n != 1 {
			t.Errorf("told %d times when all are known", n)
		}
	})
}

func TestATargetThatIsNoLongerWantedIsForgotten(t *testing.T) {
	play(t, nil, func(t *testing.T, s *sampler[string, int], m *members) {
		m.silent["b"] = true
		s.Want(key("c"), "a", "b")
		pass(interval)
		s.Want(key("c"), "b")
		a := m.times("a")
		pass(10 * interval)
		if n := m.times("a"); n != a {
			t.Errorf("asked %d times although no reconcile wants to know", n-a)
		}
		s.Want(key("c"))
		b := m.times("b")
		pass(100 * interval)
		if n := m.times("b"); n != b || len(s.clusters) != 0 || s.targets != 0 {
			t.Errorf("asked %d times of a cluster that is forgotten; %d clusters, %d targets are remembered", n-b, len(s.clusters), s.targets)
		}
	})
}

func TestATargetIsAskedOnceHoweverOftenItIsWanted(t *testing.T) {
	play(t, nil, func(t *testing.T, s *sampler[string, int], m *members) {
		for range 100 {
			s.Want(key("c"), "a", "a")
		}
		pass(interval / 2)
		if n := m.times("a"); n != 1 {
			t.Errorf("asked %d times", n)
		}
		for range 100 { // each time it may be asked again, but then once per interval
			s.Want(key("c"))
			s.Want(key("c"), "a")
		}
		pass(interval / 2)
		before := m.times("a")
		pass(10 * interval)
		if n := m.times("a") - before; n != 10 {
			t.Errorf("after it was forgotten and wanted many times, it was asked %d times in 10 intervals", n)
		}
	})
}

func TestNoMoreTargetsAreRememberedThanTheBound(t *testing.T) {
	play(t, func(o *samplerOptions[string, int]) { o.Targets = 3 }, func(t *testing.T, s *sampler[string, int], m *members) {
		known := s.Want(key("c"), "a", "b", "c", "d")
		if d := known["d"]; !d.Known || d.Err != tooMany || s.targets != 3 {
			t.Errorf("the fourth of three: %+v, %d are remembered", d, s.targets)
		}
		pass(interval)
		if m.times("d") != 0 {
			t.Error("the fourth of three was asked")
		}
		s.Want(key("c"), "b", "c")
		if d := s.Want(key("c"), "b", "c", "d")["d"]; d.Err == tooMany {
			t.Error("there is room again, and it is not asked")
		}
	})
}

func TestNoSamplerKnowsNothing(t *testing.T) {
	var s *sampler[string, int]
	if known := s.Want(key("c"), "a"); known != nil {
		t.Errorf("it knows %v", known)
	}
}

// An answer that a reconcile waits for is asked for, and told, sooner: but not for long.
func TestAnAnswerThatIsWaitedForIsToldSooner(t *testing.T) {
	const soon, lasts = time.Second, 15 * time.Second
	play(t, func(o *samplerOptions[string, int]) {
		o.Soon, o.SoonInterval, o.SoonFor = func(v int) bool { return v < 10 }, soon, lasts
	}, func(t *testing.T, s *sampler[string, int], m *members) {
		m.says["a"], m.says["b"] = 1, 1
		s.Want(key("c"), "a", "b")
		pass(0)
		m.set("a", 10)
		pass(soon)
		m.set("b", 10)
		pass(soon)
		if got := s.Want(key("c"), "a", "b"); m.told() != 3 || got["b"].Value != 10 {
			t.Errorf("after two seconds there were %d news, and b says %d", m.told(), got["b"].Value)
		}
		m.set("a", 11)          // no cluster waits for this answer
		pass(interval - 2*soon) // it is asked again after an interval
		if m.told() != 3 {
			t.Errorf("%d news within an interval", m.told())
		}
		m.set("slow", 1)
		s.Want(key("d"), "slow")
		pass(lasts + 3*interval)
		if n := m.times("slow"); n < 15 || n > 19 {
			t.Errorf("one that keeps others waiting was asked %d times", n)
		}
	})
}
