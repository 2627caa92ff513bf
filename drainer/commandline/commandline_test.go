package commandline_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/memcached-operator/drainer/commandline"
)

// This tests each form that getopt_long takes.
func TestArgumentsMeanWhatTheyMeanToMemcached(t *testing.T) {
	type options = commandline.Options
	for line, want := range map[string]options{
		"":                              nil,
		"-v":                            {{'v', ""}},
		"-vvm 64":                       {{'v', ""}, {'v', ""}, {'m', "64"}},
		"-vWm64 -t 2":                   {{'v', ""}, {'W', ""}, {'m', "64"}, {'t', "2"}},
		"-ve/x":                         {{'v', ""}, {'e', "/x"}},
		"-m -e/x":                       {{'m', "-e/x"}},
		"-o -e -e":                      {{'o', "-e"}, {commandline.Unknown, "-e"}},
		"-o":                            {{commandline.Unknown, "-o"}},
		"-vQe/x":                        {{'v', ""}, {commandline.Unknown, "-vQe/x"}},
		"--memory-file=/x":              {{'e', "/x"}},
		"--memory-f /x":                 {{'e', "/x"}},
		"--memory-l=9":                  {{'m', "9"}},
		"--mem=9":                       {{commandline.Unknown, "--mem=9"}},
		"--p=1":                         {{commandline.Unknown, "--p=1"}},
		"--port=1":                      {{'p', "1"}},
		"--verbose -d":                  {{'v', ""}, {'d', ""}},
		"--verb=3":                      {{'v', ""}},
		"--daem":                        {{'d', ""}},
		"--daemon=yes":                  {{commandline.Unknown, "--daemon=yes"}},
		"--slab-growth 1.5 -f1.250":     {{'f', "1.5"}, {'f', "1.250"}},
		"--extended":                    {{commandline.Unknown, "--extended"}},
		"word - -v":                     {{'v', ""}},
		"-v -- -e /x":                   {{'v', ""}},
		"--ext=modern -omodern -vo a=b": {{'o', "modern"}, {'o', "modern"}, {'v', ""}, {'o', "a=b"}},
	} {
		if diff := cmp.Diff(want, commandline.Parse(strings.Fields(line))); diff != "" {
			t.Errorf("%q: %s", line, diff)
		}
	}
}

// As in memcached, the last of several equal options counts.
func TestTheLastOneCounts(t *testing.T) {
	o := commandline.Parse(strings.Fields("-m 64 -vm128 -I 2m -o slab_sizes=96-128,modern --ext=no_modern=1"))
	if limit := o.MemoryLimit(); limit != 128<<20 {
		t.Errorf("MemoryLimit is %d", limit)
	}
	if limit := commandline.Parse(nil).MemoryLimit(); limit != 64<<20 {
		t.Errorf("MemoryLimit is %d by default", limit)
	}
	want := []commandline.Suboption{{"slab_sizes", "96-128"}, {"modern", ""}, {"no_modern", "1"}}
	if got := o.Suboptions(); !slices.Equal(got, want) {
		t.Errorf("the suboptions are %q", got)
	}
}

// The arguments alone show such a layout. The tests of the API's rules use the same table.
func TestLayoutsThatMemcachedNeverRestartsFrom(t *testing.T) {
	for _, f := range commandline.ShortPagesForms() {
		if got := commandline.Parse(f.Arguments).ShortPages(); got != f.Refused {
			t.Errorf("%q: short pages %t, want %t", f.Arguments, got, f.Refused)
		}
	}
}

// The same holds for extstore.
func TestExtstoreIsFoundInEachForm(t *testing.T) {
	for _, f := range commandline.ExternalForms() {
		if got := commandline.Parse(f.Arguments).External(); got != f.Refused {
			t.Errorf("%q: extstore %t, want %t", f.Arguments, got, f.Refused)
		}
	}
}

// The supervisor's options are found in each form, and other options are not. The tests of the API's rules
// use the same table.
func TestOptionsOfTheSupervisorAreFound(t *testing.T) {
	for _, f := range commandline.SupervisorsForms() {
		o := commandline.Parse(f.Arguments)
		if got := slices.ContainsFunc(o, commandline.Option.IsSupervisors); got != f.Refused {
			t.Errorf("%q: the supervisor's %t, want %t: %v", f.Arguments, got, f.Refused, o)
		}
	}
}

// A value with which memcached exits at once is found, and its neighbour isn't. The tests of the API's rules use the
// same table.
func TestValuesWithWhichMemcachedNeverStarts(t *testing.T) {
	for _, f := range commandline.NeverStartsForms() {
		if got := commandline.NeverStarts(f.Arguments); got != f.Refused {
			t.Errorf("%q: %t, want %t", f.Arguments, got, f.Refused)
		}
	}
}
