package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/cmd/kubectl-mc/internal/kube"
	"example.com/memcached-operator/cmd/kubectl-mc/internal/screen"
	"example.com/memcached-operator/controllers"
)

func TestEachCommandHasAPlaceInTheDocsAndAnExample(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "kubectl-mc.md"))
	if err != nil {
		t.Fatal(err)
	}
	root := newRoot(&command{flags: genericclioptions.NewConfigFlags(true)})
	for _, cmd := range root.Commands() {
		if !strings.Contains(string(text), "`"+cmd.Name()+" ") {
			t.Errorf("docs/kubectl-mc.md doesn't tell of %s", cmd.Name())
		}
		if !strings.Contains(cmd.Example, "kubectl mc "+cmd.Name()) {
			t.Errorf("%s has no example", cmd.Name())
		}
	}
}

func TestOnlyYesAgrees(t *testing.T) {
	for answer, agrees := range map[string]bool{"yes\n": true, "Y\n": true, "yes": true, "no\n": false, "\n": false, "": false, "yesterday\n": false} {
		c := &command{io: genericiooptions.IOStreams{In: strings.NewReader(answer), ErrOut: &bytes.Buffer{}}}
		if err := c.agree(t.Context(), false, "Go on?"); (err == nil) != agrees {
			t.Errorf("%q: %v", answer, err)
		}
	}
	c := &command{io: genericiooptions.IOStreams{In: strings.NewReader("no\n"), ErrOut: &bytes.Buffer{}}}
	if err := c.agree(t.Context(), true, "Go on?"); err != nil {
		t.Errorf("--yes: %v", err)
	}
	never, _ := io.Pipe()
	c = &command{io: genericiooptions.IOStreams{In: never, ErrOut: &bytes.Buffer{}}}
	interrupted, interrupt := context.WithCancel(t.Context())
	interrupt()
	coded := (*exit)(nil)
	if err := c.agree(interrupted, false, "Go on?"); !errors.As(err, &coded) || coded.code != exitRefused {
		t.Errorf("an interrupt: %v", err)
	}
}

func TestAnUnknownFormatIsRefused(t *testing.T) {
	var errOut bytes.Buffer
	streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: &bytes.Buffer{}, ErrOut: &errOut}
	if code := Run([]string{"receipts", "cache", "--output=xml"}, streams); code != exitFailed || !strings.Contains(errOut.String(), "xml") {
		t.Errorf("it ended with %d: %s", code, &errOut)
	}
}

// Messages come from containers and admission, and must not steer the terminal of the person who reads them.
func TestAMessageDoesNotSteerTheTerminal(t *testing.T) {
	const bad = "\x1b]0;title\x07\x1b[2J\x1b[8m\r\u0085\u009b2J\u202etxt\nnext"
	d := &cachev1alpha1.StatefulSetDrain{}
	d.Status.Drains = []cachev1alpha1.MemberDrain{{Claims: []string{"data-db-2"}, Phase: cachev1alpha1.DrainFailed, Reason: "DrainFailed", Message: bad}}
	d.Status.LastDrains = []cachev1alpha1.MemberDrained{{Message: bad}}
	colours := screen.Style{Colours: true}
	for name, lines := range map[string]func() []string{
		"status":   func() []string { return screen.DrainLines(d, 0, colours, time.Now()) },
		"receipts": func() []string { return screen.DrainReceipts(d, time.Now()) },
		"logs":     func() []string { return []string{logLine(&kube.Line{From: "pod db-2", Text: bad})} },
	} {
		var out bytes.Buffer
		c := &command{io: genericiooptions.IOStreams{Out: &out}}
		if err := c.print("", nil, lines); err != nil {
			t.Fatal(err)
		}
		text := regexp.MustCompile(`\x1b\[([012]|3[123])m`).ReplaceAllString(out.String(), "")
		if i := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 || !strings.Contains(text, "title") {
			t.Errorf("%s: %q at %d", name, text, i)
		}
		if name == "status" && !strings.Contains(out.String(), "\x1b[1m") {
			t.Errorf("%s has no colour: %q", name, out.String())
		}
	}
}

// An API server that hangs is named, after a bound.
func TestAnAPIServerThatHangsIsNamed(t *testing.T) {
	ends := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-ends:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(func() { close(ends); server.Close() })
	for _, args := range [][]string{{"status"}, {"plan", "cache", "--size=2"}, {"logs", "cache"}, {"hold", "data-cache-2"}} {
		var errOut bytes.Buffer
		streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: &bytes.Buffer{}, ErrOut: &errOut}
		args = append(args, "--server="+server.URL, "--kubeconfig="+os.DevNull, "--request-timeout=100ms")
		if code := Run(args, streams); code != exitFailed || !strings.Contains(errOut.String(), strings.TrimPrefix(server.URL, "http://")+" has not answered for 100ms") {
			t.Errorf("%v: it ended with %d: %s", args, code, &errOut)
		}
	}
}

func TestOtherManagersOfAFieldAreNamed(t *testing.T) {
	entry := func(manager string, operation metav1.ManagedFieldsOperationType, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: operation, FieldsV1: metav1.NewFieldsV1(fields)}
	}
	const size = `{"f:spec":{"f:size":{},"f:routing":{"f:client":{}}}}`
	managed := []metav1.ManagedFieldsEntry{
		entry("flux", metav1.ManagedFieldsOperationApply, size),
		entry("kubectl-edit", metav1.ManagedFieldsOperationUpdate, size),
		entry("kubectl", metav1.ManagedFieldsOperationApply, `{"f:spec":{"f:memory":{}}}`),
		{Manager: "kube-controller-manager", Operation: metav1.ManagedFieldsOperationUpdate, Subresource: "scale", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:size":{}}}`)},
		{Manager: "operator", Operation: metav1.ManagedFieldsOperationApply, Subresource: "status", FieldsV1: metav1.NewFieldsV1(size)},
	}
	const ends = ", and may set it back: change it there, too"
	for patch, want := range map[string][]string{
		`{"spec":{"size":2}}`:                                {"flux also manages spec.size" + ends, "kube-controller-manager also manages spec.size" + ends},
		`{"spec":{"memory":null}}`:                           {"kubectl also manages spec.memory" + ends},
		`{"spec":{"routing":{"client":"pymemcache"}}}`:       {"flux also manages spec.routing.client" + ends},
		`{"spec":{"routing":{"patience":"1s"},"image":"a"}}`: nil,
		`{}`: nil,
	} {
		if got, err := otherManagers(managed, []byte(patch)); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v", patch, got, err)
		}
	}
}

// Scripts rely on these codes.
func TestAPlanEndsWithTheDocumentedCode(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "kubectl-mc.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocked := &controllers.Reason{Reason: "WaitingForDrain"}
	for _, test := range []struct {
		forecast controllers.Forecast
		code     int
		words    string
	}{
		{controllers.Forecast{}, 0, "0: done."},
		{controllers.Forecast{Lost: controllers.Holds{Items: 1}, Blocked: blocked}, 3, "3: items would be given up."},
		{controllers.Forecast{Evicted: controllers.Holds{Bytes: 1}}, 3, "3: items would be given up."},
		{controllers.Forecast{Uncounted: []string{"cache-2"}}, 3, "3: items would be given up."},
		{controllers.Forecast{Blocked: blocked}, 4, "4: something has to happen first."},
	} {
		code := 0
		if coded := (*exit)(nil); errors.As(ends(&test.forecast), &coded) {
			code = coded.code
		}
		if code != test.code || !strings.Contains(string(text), test.words) {
			t.Errorf("%+v ends with %d, want %d; the docs say %q: %v", test.forecast, code, test.code, test.words, strings.Contains(string(text), test.words))
		}
	}
}

// Several StatefulSetDrains in one answer have to be told apart.
func TestAStatefulSetDrainHasItsNameInJSON(t *testing.T) {
	d := &cachev1alpha1.StatefulSetDrain{ObjectMeta: metav1.ObjectMeta{Name: "queue", Namespace: "shop"}}
	d.Spec.StatefulSetName, d.Status.Replicas = "rabbit", 3
	f := &statusFlags{command: &command{}}
	view, _, err := f.show(t.Context(), nil, d, 0, 0)
	text, err2 := json.Marshal(view)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`"namespace":"shop"`, `"name":"queue"`, `"statefulSet":"rabbit"`, `"replicas":3`} {
		if !strings.Contains(string(text), part) {
			t.Errorf("%s is not in %s", part, text)
		}
	}
}
