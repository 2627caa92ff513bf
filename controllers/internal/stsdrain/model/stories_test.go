package model

import (
	"slices"
	"strings"
	"testing"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/stsdrain"
)

// operator is a reconcile in a story, and denied one whose first write is denied.
const (
	operator = "the operator"
	denied1  = "the operator, whose first write is denied"
)

// Stories that once broke a promise. The explorations find them in the second tier, among all others.
func TestStoriesThatOnceBrokeAPromise(t *testing.T) {
	one, two := []string{"data"}, []string{"data", "log"}
	leaves := []string{"a person scales to 1", "the StatefulSet's controller ends member 1", "pod queue-1 has ended"}
	const data, log = "claim data-queue-1", "claim log-queue-1"
	again := slices.Concat(leaves, []string{operator, operator, "no pod uses " + data, operator, "claim data-queue-1-aside-?????? is bound", operator,
		"a person deletes the StatefulSetDrain", operator, operator, operator, "a person makes the StatefulSetDrain again", operator, operator, operator})
	again2 := slices.Concat(leaves, []string{operator, operator, "no pod uses " + data, "no pod uses " + log, operator,
		"claim data-queue-1-aside-?????? is bound", "claim log-queue-1-aside-?????? is bound", operator, operator,
		"a person deletes the StatefulSetDrain", operator, operator, operator, "a person makes the StatefulSetDrain again", operator, operator, operator})
	const retry = `a person annotates claim data-queue-1-aside-?????? with "retry"`
	for what, test := range map[string]struct {
		Options
		story []string
	}{
		"the StatefulSetDrain is made again in mid-drain":     {Options{templates: one}, again},
		"and a person retries":                                {Options{templates: one}, append(slices.Clone(again), retry)},
		"and the member returns, and a person retries":        {Options{templates: one}, append(slices.Clone(again), "a person scales to 2", retry)},
		"and a person retries one of two":                     {Options{templates: two}, append(slices.Clone(again2), retry)},
		"and a person retries one of two, with a denial":      {Options{templates: two}, append(slices.Clone(again2), retry, denied1)},
		"a person skips one deleted claim of two":             {Options{templates: two}, []string{"a person deletes " + data, `a person annotates ` + data + ` with "skip"`}},
		"one claim of two is deleted before the mark":         {Options{templates: two}, append(slices.Clone(leaves), "a person deletes "+data, "no pod uses "+data)},
		"the mark of one claim of two is denied":              {Options{templates: two}, append(slices.Clone(leaves), denied1)},
		"the mark of one is denied, and the other is deleted": {Options{templates: two}, append(slices.Clone(leaves), denied1, "a person deletes "+log)},
		"a person retries one retained claim of two": {Options{templates: two, policy: cachev1alpha1.PolicyRetain},
			append(slices.Clone(leaves), operator, `a person annotates `+data+` with "retry"`)},
		"an aside claim of two is deleted": {Options{templates: two}, append(slices.Clone(leaves), operator, operator, "no pod uses "+data, "no pod uses "+log, operator,
			"claim data-queue-1-aside-?????? is bound", "a person deletes claim data-queue-1-aside-??????")},
		"the StatefulSetDrain is deleted before a volume is set aside":        {Options{templates: one}, append(slices.Clone(leaves), operator, operator, "a person deletes the StatefulSetDrain", operator)},
		"the StatefulSetDrain is deleted when one volume of two is set aside": {Options{templates: two}, append(slices.Clone(leaves), operator, operator, "no pod uses "+data, "a person deletes the StatefulSetDrain", operator)},
		"a person skips a claim that is left over, and its member returns":    {Options{templates: one, unprotected: true}, append(slices.Clone(leaves), operator, operator, `a person annotates `+data+` with "skip"`, "a person scales to 2")},
		"a member returns that a person has given up":                         {Options{templates: one}, []string{"a person scales to 1", operator, `a person annotates ` + data + ` with "skip"`, "a person scales to 2"}},
		"the release of one claim is denied at the end":                       {Options{templates: two}, []string{"a person deletes the StatefulSetDrain", denied1}},
		"the claim of a running member is deleted":                            {Options{templates: one}, []string{"a person deletes " + data}},
		"the member is gone before the mark":                                  {Options{templates: one}, leaves},
		"both claims of a hand-over are skipped at the end": {Options{templates: one}, append(slices.Clone(leaves), operator, operator, "no pod uses "+data, operator,
			`a person annotates `+data+` with "skip"`, operator, "a person deletes the StatefulSetDrain", operator, "claim data-queue-1-aside-?????? is bound")},
		"a member returns and leaves again after its drain, unseen": {Options{templates: one, noVolumes: true}, slices.Concat(leaves, []string{operator, operator,
			"the Job controller makes the drainer's pod", "pod data-queue-1-drain-??????-pod starts", "the drainer succeeds", "a person scales to 2",
			"the StatefulSet's controller makes member 1", "pod queue-1 starts"}, leaves)},
		"a wanted member's claim comes back with a request, and is deleted": {Options{templates: one, onlyBack: true, skips: true}, slices.Concat(
			[]string{`a person annotates ` + data + ` with "skip"`}, leaves, []string{"a backup brings " + data + " back", "a person scales to 2", "a person deletes " + data})},
		"a claim that came back is a member's, and leaves again": {Options{templates: one, onlyBack: true}, append(slices.Clone(leaves),
			"a backup brings "+data+" back", operator, "a person scales to 2", operator, "a person scales to 1")},
		"the namespace is deleted in a hand-over": {Options{templates: one}, append(slices.Clone(leaves), operator, operator, "no pod uses "+data, operator,
			"a person deletes the namespace", operator, operator)},
	} {
		m := &model{Options: test.Options}
		judge := func(before, after *state) {
			for _, wrong := range m.check(before, after) {
				t.Errorf("%s: %s", what, wrong)
			}
		}
		s := m.first()
		for _, next := range test.story {
			s = m.tell(t, s, next, judge)
		}
		s = m.rest(t, what, s, judge)
		for _, c := range s.claims() {
			if is, _ := stsdrain.ParseClaimName(name, c.Name); is.Aside && strings.Contains(what, "retries") {
				t.Errorf("%s: claim %s is there", what, c.Name)
			}
		}
	}
}

// tell lets one event of a story happen. A hash in its name may be any.
func (m *model) tell(t *testing.T, s *state, what string, judge func(before, after *state)) *state {
	t.Helper()
	switch what {
	case operator:
		return m.reconcile(s, fault{at: -1}, judge).to
	case denied1:
		to := m.reconcile(s, fault{at: 1, failure: denied}, judge).to
		return to
	}
	begins, ends, _ := strings.Cut(what, "??????")
	for _, e := range slices.Concat(m.kubernetes(s), m.people(s)) {
		if e.what == what || strings.Contains(what, "??????") && strings.HasPrefix(e.what, begins) && strings.HasSuffix(e.what, ends) {
			return m.after(s, e, judge)
		}
	}
	t.Fatalf("there is no event %q", what)
	return nil
}

func (m *model) after(s *state, e event, judge func(before, after *state)) *state {
	to := s.clone()
	e.do(to)
	m.settle(to)
	judge(s, to)
	return to
}

// rest lets all happen that happens by itself, and checks the state that is left.
func (m *model) rest(t *testing.T, what string, s *state, judge func(before, after *state)) *state {
	t.Helper()
	const most = 200
	for range most {
		r := m.reconcile(s, fault{at: -1}, judge)
		for _, wrong := range r.wrong {
			t.Errorf("%s: %s", what, wrong)
		}
		events := m.kubernetes(s)
		switch {
		case r.writes > 0:
			s = r.to
		case len(events) > 0:
			s = m.after(s, events[0], judge)
		default:
			for _, wrong := range m.atRest(s, r) {
				t.Errorf("%s: %s\n%s", what, wrong, s.text())
			}
			return s
		}
	}
	t.Errorf("%s: it never comes to rest", what)
	return s
}
