package apply

import (
	"context"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/observe"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/controllers/internal/ring"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/test/tier"
)

// annotated is an API server with a Memcached whose annotations change.
type annotated struct {
	client.Client
	live *cachev1alpha1.Memcached
}

func (s *annotated) Get(_ context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	s.live.DeepCopyInto(object.(*cachev1alpha1.Memcached))
	return nil
}

func (s *annotated) Patch(_ context.Context, object client.Object, _ client.Patch, _ ...client.PatchOption) error {
	object.(*cachev1alpha1.Memcached).DeepCopyInto(s.live)
	return nil
}

// warmedAs is a run about a cluster whose warming has this record, and six failures.
func warmedAs(record *action.WarmRecord) (*run, *annotated, *events.FakeRecorder) {
	c := apitest.MakeMemcached("cache").Storage("1Gi").With(func(s *cachev1alpha1.MemcachedSpec) {
		s.WarmFrom = &cachev1alpha1.WarmSource{Servers: []string{"old:11211"}}
	}).Defaulted().Obj()
	c.UID = "memcached"
	record.UID, record.Source = c.UID, build.WarmSource(c)
	c.Annotations = map[string]string{cachev1alpha1.AnnotationWarmed: record.String(), cachev1alpha1.AnnotationAttempts: "6 job"}
	s, recorder := &annotated{live: c.DeepCopy()}, events.NewFakeRecorder(9)
	a := &Applier{Client: s, Reader: &observe.Reader{Live: s}, Events: recorder, Clock: testingclock.NewFakePassiveClock(time.Unix(2e9, 0))}
	return a.run(c, &observe.Objects{}), s, recorder
}

// Only a receipt of a copy says that something was copied, and when.
func TestOnlyAReceiptIsTheEndOfACopy(t *testing.T) {
	tier.Second(t, "TestAWarmingComesAfterAllThatIsNewerAndIsRecorded")
	target := ring.WarmTarget("made", 3, ring.Record{})
	receipt := plan.ReceiptOf(&contract.Receipt{Version: 1, Source: ring.Source("memcached", target), Complete: true, Passes: 1})
	counted := plan.ReceiptOf(&contract.Receipt{Version: 1, Source: ring.Source("memcached", target), Complete: true, Demand: []int64{1}})
	at := time.Unix(1e9, 0).UTC()
	for name, test := range map[string]struct {
		before action.WarmResult
		do     func(*action.RecordWarm)
		ended  bool
		note   bool
		event  string
	}{
		"a copy":         {action.WarmOpen, func(a *action.RecordWarm) { a.Record.Result, a.Record.Jobs, a.Receipt = action.WarmCopied, 4, receipt }, true, false, "Warmed"},
		"another copy":   {action.WarmCopied, func(a *action.RecordWarm) { a.Record.Jobs, a.Receipt, a.Answers = 4, receipt, "again" }, true, false, "Warmed"},
		"a count":        {action.WarmOpen, func(a *action.RecordWarm) { a.Receipt = counted }, false, false, ""},
		"a note":         {action.WarmOpen, func(a *action.RecordWarm) { a.Record.Since = at }, false, true, ""},
		"skipped":        {action.WarmOpen, func(a *action.RecordWarm) { a.Record.Result, a.Answers = action.WarmSkipped, "skip" }, false, false, "WarmingSkipped"},
		"given up":       {action.WarmOpen, func(a *action.RecordWarm) { a.Record.Result, a.Record.Why = action.WarmGivenUp, "SourceNotThere" }, false, false, "WarmingGivenUp"},
		"on miss":        {action.WarmOpen, func(a *action.RecordWarm) { a.Record.Result = action.WarmOnMiss }, false, false, "WarmedOnMiss"},
		"on miss, still": {action.WarmOnMiss, func(a *action.RecordWarm) { a.Answers = "again" }, false, false, "WarmedOnMiss"},
		"none are left":  {action.WarmOpen, func(a *action.RecordWarm) { a.Record.Result = action.WarmCopied }, false, false, "Warmed"},
	} {
		t.Run(name, func(t *testing.T) {
			r, s, recorder := warmedAs(&action.WarmRecord{Result: test.before, Jobs: 3, At: at})
			before := observe.WarmRecord(s.live)
			a := action.RecordWarm{Claim: action.ClaimRef{Name: "cache", UID: "memcached"}, Target: target, Before: before, Record: before}
			test.do(&a)
			if err := r.recordWarm(t.Context(), a); err != nil {
				t.Fatal(err)
			}
			if is := observe.WarmRecord(s.live); is.At.Equal(at) == test.ended || (is.Jobs == 4) != test.ended {
				t.Errorf("the record is %+v", is)
			}
			if _, failed := s.live.Annotations[cachev1alpha1.AnnotationAttempts]; failed != test.note {
				t.Errorf("its failures are still there: %t", failed)
			}
			event := ""
			if len(recorder.Events) > 0 {
				event = strings.Fields(<-recorder.Events)[1]
			}
			if event != test.event {
				t.Errorf("event %q, want %q", event, test.event)
			}
		})
	}
}

// A source that is named again later has its whole patience.
func TestARemovedSourceLeavesNoFailureBehind(t *testing.T) {
	tier.Second(t, "TestAWarmingComesAfterAllThatIsNewerAndIsRecorded")
	for name, test := range map[string]struct {
		from *cachev1alpha1.WarmSource
		kept bool
	}{
		"removed":  {nil, false},
		"replaced": {&cachev1alpha1.WarmSource{Servers: []string{"new:11211"}}, false},
		"the same": {&cachev1alpha1.WarmSource{Servers: []string{"old:11211"}}, true},
	} {
		r, s, _ := warmedAs(&action.WarmRecord{Result: action.WarmGivenUp, Jobs: 3, Since: time.Unix(1e9, 0)})
		s.live.Spec.WarmFrom = test.from
		if err := r.clearWarm(t.Context(), action.ClearWarm{Claim: action.ClaimRef{Name: "cache", UID: "memcached"}}); err != nil {
			t.Fatal(err)
		}
		is, err := action.ParseWarmRecord(s.live.Annotations[cachev1alpha1.AnnotationWarmed])
		if err != nil || is.Since.IsZero() == test.kept || is.Result != action.WarmGivenUp || is.Jobs != 3 {
			t.Errorf("%s: %v, %+v", name, err, is)
		}
	}
}
