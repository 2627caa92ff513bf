package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/memcached-operator/test/statefulsets/drainer"
	"example.com/memcached-operator/test/wait"
)

// A test runs this program as a process of its own, which can be killed.
const asProgram = "SPOOL_RUNS"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// member is one that stays.
type member struct {
	*spool
	*httptest.Server
}

func newMember(t *testing.T) *member {
	t.Helper()
	m := &member{}
	var err error
	if m.spool, err = open(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	m.Server = httptest.NewServer(m.spool)
	t.Cleanup(m.Close)
	return m
}

func address(s *httptest.Server) string { return strings.TrimPrefix(s.URL, "http://") }

// volume is that of a member that has left, with so many files that wait.
func volume(t *testing.T, n int) string {
	t.Helper()
	s, err := open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if _, err := s.take(name(i), strings.NewReader(content(i))); err != nil {
			t.Fatal(err)
		}
	}
	return s.dir
}

func name(i int) string    { return fmt.Sprintf("file-%04d", i) }
func content(i int) string { return fmt.Sprint("content of ", i) }

type run struct {
	*testing.T
	*exec.Cmd
	message string
	output  strings.Builder
}

func start(t *testing.T, dir, unreachable string, members ...*httptest.Server) *run {
	t.Helper()
	r := &run{T: t, message: filepath.Join(t.TempDir(), "message")}
	var addresses []string
	for _, m := range members {
		addresses = append(addresses, address(m))
	}
	r.Cmd = exec.Command(os.Args[0], "drain", "--dir="+dir, "--message="+r.message, "--unreachable="+unreachable, "--members="+strings.Join(addresses, ","))
	r.Env = append(os.Environ(), asProgram+"=1")
	r.Stdout = &r.output
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *run) ends() (count drainer.Count, code int) {
	r.Helper()
	_ = r.Wait()
	text, err := os.ReadFile(r.message)
	if err == nil {
		err = json.Unmarshal(text, &count)
	}
	if err != nil {
		r.Fatalf("its message is %q: %v", text, err)
	}
	return count, r.ProcessState.ExitCode()
}

// eachFileIsThereOnce fails unless each of the files waits, unchanged, at one of the members.
func eachFileIsThereOnce(t *testing.T, n int, members ...*member) {
	t.Helper()
	var got, want []string
	for i := range n {
		want = append(want, name(i)+": "+content(i))
	}
	for _, m := range members {
		names, err := files(m.dir, waiting)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			text, err := os.ReadFile(m.path(waiting, name))
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, name+": "+string(text))
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files that wait (-want +got):\n%s", diff)
	}
}

func TestADrainOfASpoolGivesEachFileToAMember(t *testing.T) {
	t.Parallel()
	const n = 50
	a, b := newMember(t), newMember(t)
	dir := volume(t, n)
	r := start(t, dir, "1m", a.Server, b.Server)
	count, code := r.ends()
	if want := (drainer.Count{Found: n, Moved: n}); code != 0 || count != want {
		t.Errorf("exit code %d, %+v, want %+v", code, count, want)
	}
	eachFileIsThereOnce(t, n, a, b)
	if want := fmt.Sprintf(`{"done":%d,"total":%[1]d}`+"\n", n); !strings.HasSuffix(r.output.String(), want) {
		t.Errorf("its output is %q, want it to end with %q", r.output.String(), want)
	}
}

// The drainer is killed when a member has a file and has not said so, and is run again.
func TestADrainOfASpoolThatIsKilledLosesNothing(t *testing.T) {
	t.Parallel()
	const n, before = 50, 20
	m := newMember(t)
	dir := volume(t, n)
	taken, killed, files := make(chan struct{}), make(chan struct{}), 0
	deaf := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if files++; files <= before { // one request at a time
			m.ServeHTTP(w, r)
			return
		}
		if _, err := m.take(r.URL.Path[1:], r.Body); err != nil {
			t.Error(err)
		}
		close(taken)
		<-killed
	}))
	t.Cleanup(deaf.Close)
	r := start(t, dir, "1h", deaf)
	wait.Receive(t, "the member has the file", taken)
	if err := r.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = r.Wait()
	close(killed)
	count, code := start(t, dir, "1m", m.Server).ends()
	if want := (drainer.Count{Found: n - before, Moved: n - before - 1, Skipped: 1}); code != 0 || count != want {
		t.Errorf("exit code %d, %+v, want %+v", code, count, want)
	}
	eachFileIsThereOnce(t, n, m)
}

// A file that a member has consumed would be consumed twice.
func TestAFileThatAMemberHasConsumedIsNotTakenAgain(t *testing.T) {
	t.Parallel()
	m := newMember(t)
	dir := volume(t, 1)
	if err := os.WriteFile(m.path(consumed, name(0)), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	count, code := start(t, dir, "1m", m.Server).ends()
	if want := (drainer.Count{Found: 1, Skipped: 1}); code != 0 || count != want {
		t.Errorf("exit code %d, %+v, want %+v", code, count, want)
	}
	eachFileIsThereOnce(t, 0, m)
}

// A drain fails if a member can't take a file; the files that it has not moved are still there for the next
// attempt.
func TestADrainOfASpoolKeepsWhatNoMemberTakes(t *testing.T) {
	t.Parallel()
	const n = 10
	m := newMember(t)
	dir := volume(t, n)
	full := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		http.Error(w, "no space left", http.StatusInternalServerError)
	}))
	t.Cleanup(full.Close)
	count, code := start(t, dir, "0s", full).ends()
	if code != 1 || count.Found != n || count.Moved != 0 || !strings.Contains(count.Error, "no space left") {
		t.Errorf("exit code %d, %+v, want a failure that says why", code, count)
	}
	if count, code = start(t, dir, "1m", m.Server).ends(); code != 0 || count.Moved != n {
		t.Errorf("exit code %d, %+v", code, count)
	}
	eachFileIsThereOnce(t, n, m)
}

func TestAMemberTakesNoFileWithThePathOfAnother(t *testing.T) {
	t.Parallel()
	m := newMember(t)
	for _, path := range []string{"/../consumed/a", "/.hidden", "/a/b", "/" + strings.Repeat("a", 201)} {
		w := httptest.NewRecorder()
		m.ServeHTTP(w, httptest.NewRequest(http.MethodPut, "http://spool"+path, strings.NewReader("x")))
		if w.Code != http.StatusBadRequest {
			t.Errorf("PUT %s: %d", path, w.Code)
		}
	}
}
