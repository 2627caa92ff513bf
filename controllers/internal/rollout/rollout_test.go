package rollout

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTheCauseOfATemplatesChangeDecidesWhenItIsApplied(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	begun, old := &Turn{Since: now.Add(-time.Second)}, &Turn{Since: now.Add(-time.Hour)}
	unready, oldUnready := &Turn{Since: now.Add(-time.Second), Unready: true}, &Turn{Since: now.Add(-time.Hour), Unready: true}
	same, resized, other := &Record{Generation: 2, Spec: "a"}, &Record{Generation: 1, Spec: "a"}, &Record{Generation: 1, Spec: "b"}
	for name, test := range map[string]struct {
		members Members
		turn    *Turn
		want    Step
	}{
		"nothing changed": {Members{Recorded: same, Ready: true}, nil, Apply},
		"nothing changed, and members aren't ready": {Members{Recorded: same}, nil, Apply},
		"an upgrade":                                   {Members{Differs: true, Recorded: same, Ready: true}, nil, Ask},
		"an upgrade, and members aren't ready":         {Members{Differs: true, Recorded: same}, nil, Ask},
		"an upgrade, and another size":                 {Members{Differs: true, Recorded: resized, Ready: true}, nil, Ask},
		"an upgrade that reads the spec otherwise":     {Members{Differs: true, Recorded: &Record{Generation: 2, Spec: "b"}, Ready: true}, nil, Ask},
		"an upgrade, and the record is lost":           {Members{Differs: true, Ready: true}, nil, Ask},
		"the spec":                                     {Members{Differs: true, Recorded: other, Ready: true}, nil, Apply},
		"the spec, during a roll-out by an upgrade":    {Members{Differs: true, Recorded: other}, begun, GoOn},
		"no members":                                   {Members{Differs: true, Recorded: same, None: true}, nil, Apply},
		"no members any more":                          {Members{Differs: true, Recorded: same, None: true}, begun, Apply},
		"a roll-out goes on":                           {Members{Recorded: same}, begun, GoOn},
		"a roll-out is done":                           {Members{Recorded: same, Ready: true}, begun, Apply},
		"a roll-out is stuck":                          {Members{Recorded: same}, old, GoOn},
		"a roll-out is stuck, and an upgrade fixes it": {Members{Differs: true, Recorded: same}, old, GoOn},
		"one that began unready goes on":               {Members{Recorded: same}, unready, GoOn},
		"one that began unready has had its time":      {Members{Recorded: same}, oldUnready, Apply},
		"it has, and there is another upgrade":         {Members{Differs: true, Recorded: same}, oldUnready, GoOn},
	} {
		test.members.Generation, test.members.Spec = 2, "a"
		if got := Next(&test.members, test.turn, now); got != test.want {
			t.Errorf("%s: got %d, want %d", name, got, test.want)
		}
	}
}

func TestARecordIsReadAsItWasWritten(t *testing.T) {
	for _, want := range []Record{
		{}, {Generation: 7, Spec: "0123456789abcdef"},
		{Generation: 7, Turn: &Turn{Since: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC), Unready: true}},
	} {
		if diff := cmp.Diff(&want, Parse(want.String())); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
	for _, text := range []string{"", "x", "[]", `{"generation":"x"}`, `{"rollout":{}}`, `{"rollout":{"since":"never"}}`, `{"spec":"` + strings.Repeat("x", 1<<20) + `"}`} {
		if got := Parse(text); got != nil {
			t.Errorf("%.40s: %+v", text, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(Record{Generation: 7, Spec: "a", Turn: &Turn{Since: time.Unix(1000, 0).UTC()}}.String())
	f.Fuzz(func(t *testing.T, text string) {
		if r := Parse(text); r != nil && len(r.String()) > 8*MaxRecord {
			t.Errorf("%d bytes", len(r.String()))
		}
	})
}
