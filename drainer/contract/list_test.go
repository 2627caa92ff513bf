package contract

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestListIsParsedAsItIsWritten(t *testing.T) {
	want := &List{Version: 12, Nodes: []Node{{"cache-0.cache.shop.svc", "10.0.0.1", 11211}, {"cache-1.cache.shop.svc", "fd00::1", 65535}}}
	const text = "12\ncache-0.cache.shop.svc|10.0.0.1|11211 cache-1.cache.shop.svc|fd00::1|65535\n"
	if want.String() != text {
		t.Errorf("%q", want.String())
	}
	got, err := ParseList(text)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v: -want +got:\n%s", err, diff)
	}
}

func TestAListOfAnotherFormIsRefused(t *testing.T) {
	for name, text := range map[string]string{
		"empty":                "",
		"no servers":           "1\n\n",
		"one line":             "1\n",
		"no end":               "1\na|10.0.0.1|11211",
		"a third line":         "1\na|10.0.0.1|11211\n\n",
		"no version":           "x\na|10.0.0.1|11211\n",
		"version 0":            "0\na|10.0.0.1|11211\n",
		"a negative version":   "-1\na|10.0.0.1|11211\n",
		"no address":           "1\na||11211\n",
		"a name as address":    "1\na|b|11211\n",
		"no name":              "1\n|10.0.0.1|11211\n",
		"port 0":               "1\na|10.0.0.1|0\n",
		"a large port":         "1\na|10.0.0.1|65536\n",
		"four parts":           "1\na|10.0.0.1|11211|x\n",
		"too many servers":     "1\n" + strings.Repeat("a|10.0.0.1|11211 ", 513) + "\n",
		"a name without end":   "1\n" + strings.Repeat("a", MaxList) + "|10.0.0.1|11211\n",
		"an answer of its own": "1\na|10.0.0.1|11211\nEND\r\n",
	} {
		if l, err := ParseList(text); err == nil {
			t.Errorf("%s: %v", name, l)
		}
	}
}

func FuzzList(f *testing.F) {
	f.Add("12\na|10.0.0.1|11211 b|fd00::1|65535\n")
	f.Add("1\n\n")
	f.Fuzz(func(t *testing.T, text string) {
		l, err := ParseList(text)
		if err != nil {
			return
		}
		again, err := ParseList(l.String())
		if diff := cmp.Diff(l, again); err != nil || diff != "" {
			t.Errorf("%q: %v\n%s", text, err, diff)
		}
	})
}
