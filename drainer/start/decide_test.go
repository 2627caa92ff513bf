package start

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/memcached-operator/drainer/volume"
	"example.com/memcached-operator/drainer/warmfile"
)

// situation describes a start in words: one value of each dimension.
type situation struct {
	mode    string // Mapped, Saved
	file    string // the file that memcached would map: a state of a file
	foreign string // on the volume of a member that maps its own in memory: a state of a file
	save    string // on the volume: a state of a file
	note    string // there, no
	verdict string // on all that is on the volume
	kept    string // the newest generation
	pod     string // new, same
	room    string // enough, short
	savable string // yes, no: a file of another memcached in memory
}

// States of a file: none; memcached resumes from it; memcached refuses it, but others can read it; no reader
// can read it; nothing describes it; nothing describes it because no client was ever answered.
var files = []string{"none", "good", "refused", "corrupt", "undescribed", "unanswered"}

// The values of each dimension.
var (
	// A save may also be incomplete, with the rest of it right; or its completeness is unknown, because its
	// writer was killed or could not bring it to the disk.
	saves       = append([]string{"incomplete", "unended"}, files...)
	modes       = []string{"Mapped", "Saved"}
	notes       = []string{"no", "there"}
	verdicts    = []string{"trusted", "missing", "outdated", "corrupt", "broken"}
	generations = []string{"none", "waiting", "failed"}
	pods        = []string{"new", "same"}
	rooms       = []string{"enough", "short"}
	savables    = []string{"yes", "no"}
)

// possible excludes contradictory situations.
func (s situation) possible() bool {
	onVolume := s.save != "none" || s.foreign != "none" || s.mode == "Mapped" && s.file != "none"
	nothing := !onVolume && s.kept == "none" && s.note == "no"
	switch {
	case s.mode == "Mapped" && (s.foreign != "none" || s.pod == "same"):
		return false
	case s.savable == "no" && (s.mode == "Mapped" || s.file == "none" || s.file == "good"):
		return false
	case s.verdict == "missing":
		return nothing
	case s.verdict == "trusted":
		return onVolume || s.kept != "none"
	case s.verdict == "outdated" || s.verdict == "corrupt":
		return s.note == "there"
	}
	return true
}

var errBroken = errors.New("input/output error")

func makeFile(state string, saved *warmfile.Image, command []string) File {
	f := File{Exists: state != "none"}
	if state == "none" {
		return f
	}
	f.Meta, f.Manifest = saved, &volume.Manifest{State: volume.Saved, Arguments: command, Image: saved}
	f.Ended = state != "incomplete" && state != "unended"
	switch state {
	case "refused":
		f.Manifest.Arguments = []string{"memcached", "-m", "512"}
	case "incomplete":
		f.Incomplete = errors.New("its save was cut short")
	case "corrupt":
		f.Unreadable = warmfile.Refuse(warmfile.ReasonCorrupt, "a damage")
	case "undescribed":
		f.Unreadable = warmfile.Refuse(warmfile.ReasonNodeRestarted, "the node has restarted")
	case "unanswered":
		f.Manifest, f.Unused = &volume.Manifest{State: volume.Starting, Fresh: true}, true
		f.Unreadable = warmfile.Refuse(warmfile.ReasonNoEvidence, "nothing says what it holds")
	}
	return f
}

func (s situation) facts() *Facts {
	saved := &warmfile.Image{MaxBytes: 64 << 20, SlabConfig: "1.25", StopTime: 1000, Version: "1.6.18"}
	command := []string{"memcached", "-m", "64"}
	f := &Facts{Saves: s.mode == "Saved", Command: command, Installed: "1.6.18", InstalledFlags: 4, Now: time.Unix(2000, 0),
		File: makeFile(s.file, saved, command), Foreign: makeFile(s.foreign, saved, command), Save: makeFile(s.save, saved, command),
		InUse: s.note == "there", SamePod: s.pod == "same", Need: 64 << 20, Free: 100 << 20}
	if s.kept != "none" {
		f.Kept = []volume.Generation{{Number: 4, Failed: s.kept == "failed"}, {Number: 2}}
	}
	if s.room == "short" {
		f.Free = 10 << 20
	}
	if s.savable == "no" {
		f.NotSavable = errors.New("it is of another layout")
	}
	switch s.verdict {
	case "missing":
		f.Refused = warmfile.Refuse(warmfile.ReasonMissing, "nothing")
	case "outdated":
		f.Refused = warmfile.Refuse(warmfile.ReasonSaveOutdated, "a member has run since")
	case "corrupt":
		f.Refused = warmfile.Refuse(warmfile.ReasonCorrupt, "the note can't be read")
	case "broken":
		f.Refused = errBroken
	case "trusted":
		f.Current = s.current()
	}
	return f
}

// current tells whether the newest that may be served is no generation.
func (s situation) current() bool {
	return s.verdict == "trusted" && (s.save != "none" || s.foreign != "none" || s.mode == "Mapped" && s.file != "none")
}

// row is a row of the table: the words that a situation must have ("a|b" is one of them; other dimensions may
// have any word), and the decision.
type row struct {
	when  situation
	how   How // "" is an error
	steps []Step
}

// table says how a member starts; the first row that fits counts.
var table = []row{
	{situation{mode: "Mapped", file: "good"}, Resume, nil},
	{situation{mode: "Mapped", file: "unanswered", kept: "waiting"}, Replay, []Step{DropFile}},
	{situation{mode: "Mapped", file: "unanswered"}, Cold, []Step{DropFile}},
	{situation{mode: "Mapped", file: "undescribed"}, Cold, []Step{DropAll}},
	{situation{mode: "Mapped", file: "refused|corrupt", room: "short"}, Cold, []Step{DropAll}},
	{situation{mode: "Mapped", file: "refused"}, Replay, []Step{MakeRoom, Keep}},
	{situation{mode: "Mapped", file: "corrupt"}, Cold, []Step{MakeRoom, KeepAsFailed}},
	// In the rows from here on there is no warm file on the volume. A member of mode Saved may have used it.
	{situation{mode: "Mapped", note: "no", save: "none", kept: "waiting"}, Replay, nil},
	{situation{mode: "Mapped", note: "no", save: "none"}, Cold, nil},
	{situation{mode: "Mapped", verdict: "outdated"}, Cold, []Step{DropAll, DropNote}},
	{situation{mode: "Mapped", verdict: "corrupt", save: "good|unended|refused|incomplete|corrupt|undescribed|unanswered"}, Cold, []Step{KeepAsFailed, DropNote}},
	{situation{mode: "Mapped", verdict: "corrupt", kept: "waiting"}, Cold, []Step{GiveUpNewest, DropNote}},
	{situation{mode: "Mapped", verdict: "corrupt"}, Cold, []Step{DropNote}},
	{situation{mode: "Mapped", verdict: "broken"}, "", nil},
	{situation{mode: "Mapped", save: "none", kept: "waiting"}, Replay, []Step{DropNote}},
	{situation{mode: "Mapped", save: "none"}, Cold, []Step{DropNote}},
	{situation{mode: "Mapped", room: "short"}, Cold, []Step{DropAll, DropNote}},
	{situation{mode: "Mapped"}, Replay, []Step{MakeRoom, Keep, DropNote}},

	{situation{mode: "Saved", file: "good"}, Resume, nil},
	{situation{mode: "Saved", file: "undescribed"}, Cold, []Step{DropAll, DropFile}},
	{situation{mode: "Saved", file: "refused|corrupt", room: "short"}, Cold, []Step{DropAll, DropFile}},
	{situation{mode: "Saved", file: "refused"}, Replay, []Step{SaveFile, DropFile, Keep}},
	{situation{mode: "Saved", file: "corrupt"}, Cold, []Step{SaveFile, DropFile, KeepAsFailed}},
	// In the rows from here on nothing is in memory. A member of mode Mapped may have used the volume.
	{situation{mode: "Saved", foreign: "good|refused"}, Replay, []Step{Keep, DropForeignManifest}},
	{situation{mode: "Saved", foreign: "corrupt"}, Cold, []Step{KeepAsFailed, DropForeignManifest}},
	{situation{mode: "Saved", foreign: "undescribed"}, Cold, []Step{DropAll}},
	{situation{mode: "Saved", foreign: "unanswered", kept: "waiting"}, Replay, []Step{DropForeign}},
	{situation{mode: "Saved", foreign: "unanswered"}, Cold, []Step{DropForeign}},
	{situation{mode: "Saved", verdict: "missing"}, Cold, nil},
	{situation{mode: "Saved", verdict: "outdated", pod: "same", kept: "waiting"}, Replay, nil},
	{situation{mode: "Saved", verdict: "outdated", pod: "same"}, Cold, nil},
	{situation{mode: "Saved", verdict: "outdated"}, Cold, []Step{DropAll}},
	{situation{mode: "Saved", verdict: "corrupt", save: "good|unended|refused|incomplete|corrupt|undescribed|unanswered"}, Cold, []Step{KeepAsFailed}},
	{situation{mode: "Saved", verdict: "corrupt", kept: "waiting"}, Cold, []Step{GiveUpNewest}},
	{situation{mode: "Saved", verdict: "corrupt"}, Cold, nil},
	{situation{mode: "Saved", verdict: "broken"}, "", nil},
	{situation{mode: "Saved", save: "none", kept: "waiting"}, Replay, nil},
	{situation{mode: "Saved", save: "none"}, Cold, nil},
	{situation{mode: "Saved", save: "good|unended"}, Load, []Step{LoadSave}},
	{situation{mode: "Saved", save: "refused|incomplete"}, Replay, []Step{Keep}},
	{situation{mode: "Saved", save: "corrupt"}, Cold, []Step{KeepAsFailed}},
	{situation{mode: "Saved", save: "undescribed"}, Cold, []Step{DropAll}},
	{situation{mode: "Saved", save: "unanswered", kept: "waiting"}, Replay, []Step{DropSave}},
	{situation{mode: "Saved", save: "unanswered"}, Cold, []Step{DropSave}},
}

func (s situation) words() []string {
	return []string{s.mode, s.file, s.foreign, s.save, s.note, s.verdict, s.kept, s.pod, s.room, s.savable}
}

// fits tells whether a situation has the words of a row.
func (s situation) fits(when situation) bool {
	words := s.words()
	for i, want := range when.words() {
		if want != "" && !slices.Contains(strings.Split(want, "|"), words[i]) {
			return false
		}
	}
	return true
}

// worthless tells whether memcached doesn't resume from the file in memory and the file is not to be saved:
// the volume already has it, no client was ever told of it, or it can't be saved and the volume may have a
// part of it.
func (s situation) worthless() bool {
	switch {
	case s.mode != "Saved" || s.file == "none" || s.file == "good":
		return false
	case s.file == "unanswered", s.savable == "no":
		return true
	case s.file == "undescribed" || s.room == "short":
		return s.current()
	}
	return s.current() && s.save != "incomplete" && s.save != "unended"
}

// expected returns the row for a situation, and its steps.
func (s situation) expected() (at int, how How, steps []Step) {
	looked := s
	if s.worthless() {
		looked.file = "none" // it is removed first, and then the volume counts
	}
	at = slices.IndexFunc(table, func(r row) bool { return looked.fits(r.when) })
	if at < 0 {
		return at, "", nil
	}
	how, steps = table[at].how, table[at].steps
	if s.worthless() && how != "" {
		steps = append([]Step{DropFile}, steps...)
	}
	return at, how, steps
}

// situations returns all possible situations.
func situations() (all []situation) {
	for _, mode := range modes {
		for _, file := range files {
			for _, foreign := range files {
				for _, save := range saves {
					for _, note := range notes {
						for _, verdict := range verdicts {
							for _, kept := range generations {
								for _, pod := range pods {
									for _, room := range rooms {
										for _, savable := range savables {
											s := situation{mode, file, foreign, save, note, verdict, kept, pod, room, savable}
											if s.possible() {
												all = append(all, s)
											}
										}
									}
								}
							}
						}
					}
				}
			}
		}
	}
	return all
}

// The test goes through every situation, in both storage modes. Each is decided as the table says, and each
// row of the table decides some situation.
func TestEverySituationIsDecidedAsTheTableSays(t *testing.T) {
	used := make([]bool, len(table))
	for _, s := range situations() {
		at, how, steps := s.expected()
		if at < 0 {
			t.Fatalf("no row for %+v", s)
		}
		used[at] = true
		d, err := Decide(s.facts())
		if how == "" {
			if !errors.Is(err, errBroken) {
				t.Errorf("%+v: %+v, %v; want an error", s, d, err)
			}
			continue
		}
		if err != nil || d.How != how || !slices.Equal(d.Steps, steps) {
			t.Errorf("%+v: %+v, %v; want %s by %q", s, d, err, how, steps)
		}
	}
	for i, r := range table {
		if !used[i] {
			t.Errorf("row %d decides nothing: %+v", i, r.when)
		}
	}
}

// In every situation, items that do not come back are also reported.
func TestNothingOutdatedComesBack(t *testing.T) {
	n := 0
	for _, s := range situations() {
		d, err := Decide(s.facts())
		if err != nil {
			continue
		}
		n++
		has := func(steps ...Step) bool {
			return slices.ContainsFunc(d.Steps, func(step Step) bool { return slices.Contains(steps, step) })
		}
		resumes := d.How == Resume || d.How == Load
		switch {
		case d.How == Resume && s.file != "good", d.How == Load && s.save != "good" && s.save != "unended":
			t.Errorf("%+v: memcached would not resume: %+v", s, d)
		case s.mode == "Saved" && s.verdict == "outdated" && s.pod == "new" && s.file == "none" && s.foreign == "none" && d.How != Cold:
			t.Errorf("%+v: what is outdated comes back: %+v", s, d)
		case has(DropAll) && d.How != Cold, has(GiveUpNewest, KeepAsFailed) && d.How != Cold:
			t.Errorf("%+v: older items come back without the newest: %+v", s, d)
		case has(DropAll, GiveUpNewest, Keep, KeepAsFailed) && d.Reason == "":
			t.Errorf("%+v: no message says why: %+v", s, d)
		case resumes && (d.Reason != "" || d.Fresh()), !resumes && !d.Fresh():
			t.Errorf("%+v: %+v", s, d)
		case s.mode == "Saved" && s.file == "refused" && (s.save == "incomplete" || s.save == "unended") && s.room != "short" && s.savable == "yes" && !has(SaveFile):
			t.Errorf("%+v: the file in memory is dropped for a part of it: %+v", s, d)
		case s.mode == "Saved" && slices.Equal(d.Steps, []Step{Keep}) && s.save == "incomplete" && (d.Warning == nil || d.Warning.SaveIncomplete == ""):
			t.Errorf("%+v: no message says that items are missing: %+v", s, d)
		case s.room == "short" && s.mode == "Mapped" && has(Keep, KeepAsFailed) && s.file != "none":
			t.Errorf("%+v: there is no room for a second file: %+v", s, d)
		}
	}
	if n < 1000 {
		t.Errorf("%d situations", n)
	}
}

// The message about a start names the cause and the items' fate.
func TestAStartNamesItsCauseAndWhatBecomesOfTheItems(t *testing.T) {
	mapped := situation{"Mapped", "refused", "none", "none", "no", "trusted", "none", "new", "enough", "yes"}
	for want, change := range map[string]func(s *situation){
		`memcached would start cold: it ran with other arguments: ["-m" "512"], now ["-m" "64"]; the items are replayed from generation-1`: func(*situation) {},
		`memcached would start cold: it ran with other arguments: ["-m" "512"], now ["-m" "64"]; the items are replayed from generation-5`: func(s *situation) {
			s.kept = "waiting"
		},
		`memcached starts cold: it ran with other arguments: ["-m" "512"], now ["-m" "64"]; to replay its items, the volume lacks 54 MiB of room for a second file of 64 MiB`: func(s *situation) {
			s.room = "short"
		},
		`memcached starts cold: it ran with other arguments: ["-m" "512"], now ["-m" "64"]; to replay its items, the volume lacks 54 MiB of room for a save of 64 MiB`: func(s *situation) {
			s.mode, s.room, s.verdict, s.note = "Saved", "short", "outdated", "there"
		},
		`memcached starts cold: the warm file can't be read: a damage; the file stays in generation-1.failed for a drain to look at`: func(s *situation) { s.file = "corrupt" },
		`memcached starts cold: nothing of its warm file can be read: the warm file can't be read: the node has restarted`:           func(s *situation) { s.file = "undescribed" },
		`memcached starts cold: the warm file can't be read: a member has run since`:                                                 func(s *situation) { s.mode, s.file, s.verdict, s.note = "Saved", "none", "outdated", "there" },
		`memcached would start cold: its items are in a save of a member of mode Saved; the items are replayed from generation-1`:    func(s *situation) { s.file, s.save = "none", "good" },
		`memcached would start cold: its save was cut short; the items are replayed from generation-1`: func(s *situation) {
			s.mode, s.file, s.save = "Saved", "none", "incomplete"
		},
		`memcached would start cold: its warm file on the volume is of a member of mode Mapped; the items are replayed from generation-1`: func(s *situation) { s.mode, s.file, s.foreign = "Saved", "none", "good" },
	} {
		s := mapped
		change(&s)
		d, err := Decide(s.facts())
		if err != nil {
			t.Errorf("%+v: %v", s, err)
			continue
		}
		if diff := cmp.Diff(want, d.Reason); diff != "" {
			t.Errorf("%+v: -want +got:\n%s", s, diff)
		}
	}
}

func TestAGenerationIsNewerThanAllThatAreLeft(t *testing.T) {
	for name, test := range map[string]struct {
		kept    []volume.Generation
		victims int
		want    int
	}{
		"nothing is kept":     {nil, 0, 1},
		"two are":             {[]volume.Generation{{Number: 4}, {Number: 2}}, 0, 5},
		"the oldest has gone": {[]volume.Generation{{Number: 4}, {Number: 2}}, 1, 5},
		"both have gone":      {[]volume.Generation{{Number: 4}, {Number: 2}}, 2, 1},
	} {
		f := situation{"Mapped", "refused", "none", "none", "no", "trusted", "none", "new", "enough", "yes"}.facts()
		f.Kept, f.Victims = test.kept, test.victims
		if d, err := Decide(f); err != nil || d.Number != test.want {
			t.Errorf("%s: %+v, %v; want number %d", name, d, err, test.want)
		}
		f = situation{"Saved", "none", "none", "refused", "no", "trusted", "none", "new", "enough", "yes"}.facts()
		f.Kept, f.Victims = test.kept, test.victims
		if d, err := Decide(f); err != nil || d.Number != len(test.kept)/2*4+1 {
			t.Errorf("%s, where no room has to be made: %+v, %v", name, d, err)
		}
	}
}

// Memcached resumes from an intact save at any time of the node's clock. If memcached would refuse the save's time,
// the time is corrected before.
func TestNoClockMatters(t *testing.T) {
	for now, set := range map[int64]bool{900: true, 1000: true, 1001: false, 2000: false, 5000: false} {
		for _, s := range []situation{
			{"Mapped", "good", "none", "none", "no", "trusted", "none", "new", "short", "yes"},
			{"Saved", "good", "none", "none", "no", "trusted", "none", "same", "short", "yes"},
			{"Saved", "none", "none", "good", "no", "trusted", "none", "new", "short", "yes"},
		} {
			f := s.facts()
			f.Now = time.Unix(now, 0)
			d, err := Decide(f)
			if err != nil || d.How != Resume && d.How != Load || slices.Contains(d.Steps, SetClock) != set {
				t.Errorf("at %d: %+v: %+v, %v", now, s, d, err)
			}
		}
	}
}

func TestEverythingThatMemcachedComparesIsComparedBefore(t *testing.T) {
	for name, test := range map[string]struct {
		change func(f *Facts)
		want   string // "" if memcached resumes
	}{
		"as it was":            {func(*Facts) {}, ""},
		"a newer memcached":    {func(f *Facts) { f.Installed = "1.6.29" }, ""},
		"an older memcached":   {func(f *Facts) { f.Installed = "1.6.9" }, `memcached "1.6.18" saved, "1.6.9" is installed`},
		"one that won't tell":  {func(f *Facts) { f.Installed = "" }, `memcached "1.6.18" saved, "" is installed`},
		"one that isn't there": {func(f *Facts) { f.Installed, f.VersionUnknown = "", true }, ""},
		"as it was built":      {func(f *Facts) { f.File.FlagsBytes = 4 }, ""},
		"another build":        {func(f *Facts) { f.File.FlagsBytes = 8 }, "client flags of 8 bytes saved, the installed one's have 4"},
		"who knows which":      {func(f *Facts) { f.File.FlagsBytes, f.InstalledFlags = 4, 0 }, "the installed one's have 0"},
		"free arguments":       {func(f *Facts) { f.Command = append(f.Command, "-t", "8", "-vv") }, ""},
		"other arguments":      {func(f *Facts) { f.Command = append(f.Command, "-C") }, "it ran with other arguments"},
		"another clock":        {func(f *Facts) { f.Now = time.Unix(900, 0) }, ""},
		"the very second":      {func(f *Facts) { f.Now = time.Unix(1000, 0) }, ""},
		"no .meta":             {func(f *Facts) { f.File.Meta, f.File.MetaErr = nil, errors.New("gone") }, "it had not saved: gone"},
		"no manifest":          {func(f *Facts) { f.File.Manifest = nil }, "no manifest"},
		"a manifest that knows nothing": {func(f *Facts) { f.File.Manifest = &volume.Manifest{State: volume.Starting} },
			"no manifest"},
		"another .meta": {func(f *Facts) {
			other := *f.File.Meta
			other.UseCAS = true
			f.File.Meta = &other
		}, ".meta is not what memcached ran with"},
	} {
		t.Run(name, func(t *testing.T) {
			f := situation{"Mapped", "good", "none", "none", "no", "trusted", "none", "new", "enough", "yes"}.facts()
			test.change(f)
			if got := fmt.Sprint(f.suits(&f.File)); test.want == "" && got != "<nil>" || !strings.Contains(got, test.want) {
				t.Errorf("%s, want %q", got, test.want)
			}
		})
	}
}
