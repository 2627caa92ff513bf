package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
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
		if err := c.agree(false, "Go on?"); (err == nil) != agrees {
			t.Errorf("%q: %v", answer, err)
		}
	}
	c := &command{io: genericiooptions.IOStreams{In: strings.NewReader("no\n"), ErrOut: &bytes.Buffer{}}}
	if err := c.agree(true, "Go on?"); err != nil {
		t.Errorf("--yes: %v", err)
	}
}

func TestAnUnknownFormatIsRefused(t *testing.T) {
	var errOut bytes.Buffer
	io := genericiooptions.IOStreams{In: strings.NewReader(""), Out: &bytes.Buffer{}, ErrOut: &errOut}
	if code := Run([]string{"receipts", "cache", "--output=xml"}, io); code != exitFailed || !strings.Contains(errOut.String(), "xml") {
		t.Errorf("it ended with %d: %s", code, &errOut)
	}
}
