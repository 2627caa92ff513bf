package plan

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// checkSteps fails if a step plans a write that its row of the table doesn't have.
func checkSteps(t *testing.T, observed *Observed) {
	t.Helper()
	o := observed.inOrder()
	if o.Cluster.Plain || o.Cluster.Deleting || o.Cluster.NamespaceTerminating {
		return
	}
	d := decide(o)
	for i := range steps {
		may := map[string]bool{}
		for _, a := range steps[i].writes {
			may[fmt.Sprintf("%T", a)] = true
		}
		for _, a := range steps[i].work(d).Actions {
			if !may[fmt.Sprintf("%T", a)] {
				t.Errorf("the step %q plans %T, which its row doesn't have", steps[i].name, a)
			}
		}
	}
}

func TestTheDocsHaveTheOrderOfTheSteps(t *testing.T) {
	text, err := os.ReadFile("../../../docs/design/steps.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), Order()) {
		t.Errorf("docs/design/steps.md needs this table:\n%s", Order())
	}
}
