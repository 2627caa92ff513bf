package main

import (
	"slices"
	"testing"
)

func TestDifferencesAreTold(t *testing.T) {
	parse := func(text string) map[string]map[string]any {
		o, err := objects([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	const one = "apiVersion: v1\nkind: Service\nmetadata: {name: a, namespace: ns}\nspec: {ports: [{port: 1}]}\n"
	for name, test := range map[string]struct {
		got  string
		want []string
	}{
		"the same":                {one, nil},
		"the same in other words": {"---\n# said otherwise\nkind: Service\napiVersion: v1\nspec:\n  ports:\n    - port: 1\nmetadata:\n  namespace: ns\n  name: a\n", nil},
		"another value":           {"apiVersion: v1\nkind: Service\nmetadata: {name: a, namespace: ns}\nspec: {ports: [{port: 2}]}\n", []string{"v1 Service ns/a.spec.ports: -[map[port:1]] +[map[port:2]]"}},
		"one more field":          {one + "status: {}\n", []string{"v1 Service ns/a.status: -<nil> +map[]"}},
		"one object more":         {one + "---\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\n", []string{"+ v1 Secret /s"}},
		"none":                    {"", []string{"- v1 Service ns/a"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := compare(parse(one), parse(test.got)); !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
