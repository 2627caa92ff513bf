package cli_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.com/memcached-operator/drainer/cli"
	"example.com/memcached-operator/drainer/commandline"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/drainertest"
)

func TestTheInstalledCopyRuns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, ".drainer-1234"), []byte("of one that was killed"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // over a copy that is there, too
		if r := drainertest.RunMain(t, "install", dir); r.Code != 0 {
			t.Fatalf("exit code %d: %s", r.Code, r.Err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(dir, "drainer"))
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, want %d: %v", len(got), len(want), err)
	}
	info, err := os.Stat(filepath.Join(dir, "drainer"))
	if err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if files, _ := os.ReadDir(dir); len(files) != 1 {
		t.Errorf("left behind: %v", files)
	}
}

// A mistake gives one line and exit code 2.
func TestAMistakeInTheCommandLineIsOneLine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	receipt := "--receipt=" + filepath.Join(t.TempDir(), "receipt")
	tests := map[string]struct {
		args []string
		want string
	}{
		"nothing":               {nil, "no command"},
		"unknown command":       {[]string{"frobnicate"}, "unknown command"},
		"install without DIR":   {[]string{"install"}, "directory"},
		"install into nothing":  {[]string{"install", "/no/such/place"}, "/no/such/place"},
		"unknown flag":          {[]string{"drain", "--frobnicate"}, "frobnicate"},
		"bad server":            {[]string{"drain", "--server=x"}, "HOST:PORT"},
		"drain: no directory":   {[]string{"drain", receipt}, "--dir"},
		"drain: no servers":     {[]string{"drain", receipt, "--dir=" + dir, "--client=gomemcache"}, "--server"},
		"drain: no client":      {[]string{"drain", receipt, "--dir=" + dir, "--server=a:1"}, "known are"},
		"drain: bad timeout":    {[]string{"drain", receipt, "--dir=" + dir, "--unreachable-timeout=0"}, "unreachable-timeout"},
		"drain: argument":       {[]string{"drain", "x"}, "unexpected"},
		"owner: no servers":     {[]string{"owner", "--client=gomemcache"}, "--server"},
		"owner: moved to what?": {[]string{"owner", "--client=gomemcache", "--server=a:1", "--moved"}, "--after"},
		"route: no servers":     {[]string{"route", "--client=gomemcache"}, "--server"},
		"route: which ring?":    {[]string{"route", "--client=gomemcache", "--ring-file=x"}, "--ring-file"},
		"route: no threads":     {[]string{"route", "--client=gomemcache", "--server=a:1", "--threads=0"}, "--threads"},
		"owner: after what?":    {[]string{"owner", "--client=gomemcache", "--server=a:1", "--after=b:1"}, "--moved"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := drainertest.RunMain(t, test.args...)
			r.OneLine(t, test.want)
			if r.Code != contract.ExitUsage || r.Out != "" && !strings.Contains(r.Out, `"Done"`) {
				t.Errorf("exit code %d, stdout %q", r.Code, r.Out)
			}
		})
	}
	for _, line := range [][]string{{"help"}, {"--version"}, {"drain", "--help"}} {
		if r := drainertest.RunMain(t, line...); r.Code != 0 || r.Out == "" || r.Err != "" {
			t.Errorf("%v: exit code %d, %q, %q", line, r.Code, r.Out, r.Err)
		}
	}
}

// The command prints each key with its owner's name, in the order of the input.
func TestOwnersAreNamedInTheOrderOfTheKeys(t *testing.T) {
	t.Parallel()
	var out, errs drainertest.Buffer
	line := []string{"owner", "--client=gomemcache", "--server=one=10.0.0.1:1", "--server=b:11211"}
	code := cli.Main(t.Context(), line, commandline.IO{In: strings.NewReader("alpha\n\nbeta\ngamma"), Out: &out, Err: &errs})
	want := "alpha\tone\nbeta\tb:11211\ngamma\tb:11211\n" // crc32 of each, modulo 2
	if code != 0 || out.String() != want {
		t.Errorf("exit code %d, %q, want %q; %s", code, out.String(), want, errs.String())
	}
	if code := cli.Main(t.Context(), line, commandline.IO{In: strings.NewReader(strings.Repeat("k", 1<<20)), Out: &out, Err: &errs}); code != contract.ExitFailed {
		t.Errorf("a line of 1 MiB: exit code %d", code)
	}
}

// Some clients hash the servers' addresses, so the command prints these.
func TestOwnerNamesServersByAddress(t *testing.T) {
	t.Parallel()
	var out, errs drainertest.Buffer
	line := []string{"owner", "--client=evcache", "--server=127.0.0.1:1"}
	code := cli.Main(t.Context(), line, commandline.IO{In: strings.NewReader("alpha"), Out: &out, Err: &errs})
	if want := "alpha\t127.0.0.1/127.0.0.1\n"; code != 0 || out.String() != want {
		t.Errorf("exit code %d, %q, want %q; %s", code, out.String(), want, errs.String())
	}
}

// The keys alpha, beta and gamma hash to 0, 1 and 1 modulo 2.
func TestOwnerCountsWhatMoves(t *testing.T) {
	t.Parallel()
	var out, errs drainertest.Buffer
	line := []string{"owner", "--moved", "--client=gomemcache", "--server=a:1", "--server=b:1", "--after=b:1", "--after=a:1", "--after=c:1"}
	code := cli.Main(t.Context(), line, commandline.IO{In: strings.NewReader("alpha\nbeta\ngamma\n"), Out: &out, Err: &errs})
	// Modulo 3 they hash to 1, 1 and 2: alpha stays with a, beta moves from b to a, which both lists have,
	// and gamma moves from b to c.
	want := "keys\t3\nget another owner\t2\t66.67%\nof these, between servers in both lists\t1\t33.33%\n"
	if code != 0 || out.String() != want {
		t.Errorf("exit code %d, %q, want %q; %s", code, out.String(), want, errs.String())
	}
}
