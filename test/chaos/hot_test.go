package main

import (
	"testing"
	"time"
)

func TestAReadFindsAValueOfItsTime(t *testing.T) {
	now := time.Now()
	set := func(h *hot) {
		_, n, _ := h.begin(false)
		h.acknowledge(n, false, span{now, now})
	}
	lost := func(h *hot) {
		h.begin(false)
		h.unanswered(time.Time{}, false)
	}
	deleted := func(h *hot) {
		_, n, _ := h.begin(true)
		h.acknowledge(n, true, span{now, now})
	}
	deletes := func(h *hot) { h.begin(true) }
	writes := func(h *hot) { h.begin(false) }
	nothing := func(*hot) {}
	const none = -1
	for name, test := range map[string]struct {
		before []func(*hot)
		during func(*hot)
		found  int64
		want   finding
	}{
		"the last value":                           {[]func(*hot){set, set}, nothing, 2, right},
		"the one before":                           {[]func(*hot){set, set}, nothing, 1, old},
		"one that was never sent":                  {[]func(*hot){set, set}, nothing, 3, foreign},
		"nothing":                                  {[]func(*hot){set, set}, nothing, none, missing},
		"nothing yet":                              {nil, nothing, none, right},
		"one that is under way":                    {[]func(*hot){set}, writes, 2, right},
		"the one before, under way":                {[]func(*hot){set}, set, 1, right},
		"nothing while one is set":                 {[]func(*hot){set}, set, none, missing},
		"one that got no answer":                   {[]func(*hot){set, lost}, nothing, 2, right},
		"the one before that":                      {[]func(*hot){set, lost}, nothing, 1, right},
		"nothing of either":                        {[]func(*hot){set, lost}, nothing, none, right},
		"one without an answer, after a set":       {[]func(*hot){set, lost, set}, nothing, 2, old},
		"nothing after a set made it sure":         {[]func(*hot){set, lost, set}, nothing, none, missing},
		"nothing, unsure meanwhile":                {[]func(*hot){set}, func(h *hot) { lost(h); set(h) }, none, right},
		"nothing after a delete":                   {[]func(*hot){set, deleted}, nothing, none, right},
		"the deleted one":                          {[]func(*hot){set, deleted}, nothing, 1, old},
		"a new one after a delete":                 {[]func(*hot){set, deleted, set}, nothing, 3, right},
		"the deleted one, after a new one":         {[]func(*hot){set, deleted, set}, nothing, 1, old},
		"nothing, after a new one":                 {[]func(*hot){set, deleted, set}, nothing, none, missing},
		"nothing while it is deleted":              {[]func(*hot){set}, deletes, none, right},
		"nothing, deleted and set meanwhile":       {[]func(*hot){set}, func(h *hot) { deleted(h); set(h) }, none, right},
		"nothing while a delete is under way":      {[]func(*hot){set, deletes}, func(h *hot) { h.acknowledge(2, true, span{}); set(h) }, none, right},
		"a value while it is deleted":              {[]func(*hot){set}, deletes, 1, right},
		"a value after a delete without an answer": {[]func(*hot){set, func(h *hot) { deletes(h); h.unanswered(time.Time{}, false) }}, nothing, 1, right},
		"nothing after a refused delete":           {[]func(*hot){set, func(h *hot) { deletes(h); h.refuse() }}, nothing, none, missing},
		"an old one of an abandoned key":           {[]func(*hot){set, set, func(h *hot) { writes(h); h.unanswered(time.Time{}, true) }}, nothing, 1, right},
		"what was never sent to an abandoned key":  {[]func(*hot){set, func(h *hot) { writes(h); h.unanswered(time.Time{}, true) }}, nothing, 3, foreign},
	} {
		h := &hot{key: "hot", facts: facts{gone: true}}
		for _, do := range test.before {
			do(h)
		}
		before := h.look()
		test.during(h)
		if got := judge(before, h.look(), test.found, test.found != none); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestAKeyRestsAfterAWriteWithoutAnAnswer(t *testing.T) {
	h, now := &hot{key: "hot"}, time.Now()
	h.begin(false)
	h.unanswered(now, false)
	h.rested(now.Add(unansweredRests / 2))
	if _, _, ok := h.begin(false); ok {
		t.Error("it is written at once")
	}
	h.rested(now.Add(unansweredRests))
	if _, n, ok := h.begin(false); !ok || n != 2 {
		t.Errorf("later: %v, number %d", ok, n)
	}
	h.unanswered(time.Time{}, true)
	h.rested(now.Add(time.Hour))
	if _, _, ok := h.begin(false); ok {
		t.Error("an abandoned key is written")
	}
}

func TestHotValues(t *testing.T) {
	for _, h := range []*hot{{key: "hot-1"}, {key: "hot-2", counts: true}} {
		if n, ok := h.numberOf(h.value(17)); n != 17 || !ok {
			t.Errorf("%s: %d, %v", h.key, n, ok)
		}
		for _, value := range []string{"", "x", "hot-3=17", "hot-1=", "hot-2=17"} {
			if n, ok := h.numberOf([]byte(value)); ok {
				t.Errorf("%s: %q is %d", h.key, value, n)
			}
		}
	}
}
