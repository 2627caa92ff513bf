// Command chart compares the Helm chart with the objects that kustomize makes of config/, or prints the
// objects that the chart renders:
//
//	chart [--set=NAME=VALUE…] CHART KUSTOMIZED
//	chart [--set=NAME=VALUE…] [--release=NAME] [--namespace=NAME] [--hook=NAME] CHART
//
// CHART is the chart's folder, KUSTOMIZED a file with the objects that the release memcached-operator must
// consist of. Command chart prints all differences between the two sets, and fails if there is one. Objects
// of Helm's hooks are not among them: --hook=pre-delete prints those of a hook.
package main

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	chartutil "helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"helm.sh/helm/v4/pkg/strvals"
	"sigs.k8s.io/yaml"
)

// release is one of the chart: its names, and the values that a person sets.
type release struct {
	name, namespace string
	values          map[string]any
}

const hookAnnotation = "helm.sh/hook"

func main() {
	r := release{values: map[string]any{}}
	flag.Func("set", "a value of the chart, NAME=VALUE; may be given again", func(s string) error { return strvals.ParseInto(s, r.values) })
	flag.StringVar(&r.name, "release", "memcached-operator", "the release's name")
	flag.StringVar(&r.namespace, "namespace", "memcached-operator-system", "the release's namespace")
	hook := flag.String("hook", "", "print what Helm runs at this point, such as pre-delete")
	flag.Parse()
	var err error
	if flag.NArg() == 1 {
		err = r.print(flag.Arg(0), *hook)
	} else {
		err = r.compareWith(flag.Arg(0), flag.Arg(1))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

func (r release) compareWith(chart, kustomized string) error {
	got, err := r.render(chart, "")
	if err != nil {
		return fmt.Errorf("render %s: %w", chart, err)
	}
	text, err := os.ReadFile(kustomized)
	if err != nil {
		return err
	}
	want, err := objects(text)
	if err != nil {
		return fmt.Errorf("read %s: %w", kustomized, err)
	}
	// Helm makes the namespace: --create-namespace.
	delete(want, "v1 Namespace /"+r.namespace)
	if diff := compare(want, got); len(diff) > 0 {
		return fmt.Errorf("%s differs from config/ (-kustomize +chart):\n%s", chart, strings.Join(diff, "\n"))
	}
	fmt.Printf("%s is what config/ is: %d objects\n", filepath.Base(chart), len(got))
	return nil
}

// print prints the objects that a release consists of, or those of a hook in their order.
func (r release) print(chart, hook string) error {
	rendered, err := r.render(chart, hook)
	if err != nil {
		return fmt.Errorf("render %s: %w", chart, err)
	}
	weight := func(key string) int {
		text, _ := annotations(rendered[key])[hookAnnotation+"-weight"].(string)
		n, _ := strconv.Atoi(text) // an empty weight is 0, as for Helm
		return n
	}
	keys := slices.SortedFunc(maps.Keys(rendered), func(a, b string) int {
		return cmp.Or(cmp.Compare(weight(a), weight(b)), cmp.Compare(a, b))
	})
	for _, key := range keys {
		text, err := yaml.Marshal(rendered[key])
		if err != nil {
			return err
		}
		fmt.Printf("---\n%s", text)
	}
	return nil
}

func annotations(object map[string]any) map[string]any {
	meta, _ := object["metadata"].(map[string]any)
	found, _ := meta["annotations"].(map[string]any)
	return found
}

// render returns the objects that a release of the chart consists of, or those of a
// hook.
func (r release) render(dir, hook string) (map[string]map[string]any, error) {
	chart, err := loader.Load(dir)
	if err != nil {
		return nil, err
	}
	all, err := chartutil.ToRenderValues(chart, r.values,
		common.ReleaseOptions{Name: r.name, Namespace: r.namespace, IsInstall: true}, common.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(chart, all)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	for name, content := range files {
		if filepath.Ext(name) == ".yaml" {
			fmt.Fprintf(&text, "---\n%s\n", content)
		}
	}
	found, err := objects(text.Bytes())
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(found, func(_ string, o map[string]any) bool {
		at, _ := annotations(o)[hookAnnotation].(string)
		return at != hook
	})
	for _, o := range found {
		// This annotation is for Helm, and not a part of the object.
		delete(annotations(o), "helm.sh/resource-policy")
	}
	return found, nil
}

// objects returns those of a YAML stream, by group, kind, namespace and name.
func objects(text []byte) (map[string]map[string]any, error) {
	out := map[string]map[string]any{}
	for document := range strings.SplitSeq("\n"+string(text), "\n---") {
		var o map[string]any
		if err := yaml.Unmarshal([]byte(document), &o); err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%w in\n%s", err, document)
		}
		if len(o) == 0 {
			continue
		}
		meta, _ := o["metadata"].(map[string]any)
		space, _ := meta["namespace"].(string)
		key := fmt.Sprintf("%v %v %s/%v", o["apiVersion"], o["kind"], space, meta["name"])
		if out[key] != nil {
			return nil, fmt.Errorf("%s is there twice", key)
		}
		out[key] = o
	}
	return out, nil
}

func compare(want, got map[string]map[string]any) []string {
	var diff []string
	for key := range want {
		if got[key] == nil {
			diff = append(diff, "- "+key)
		} else {
			differences(key, want[key], got[key], &diff)
		}
	}
	for key := range got {
		if want[key] == nil {
			diff = append(diff, "+ "+key)
		}
	}
	slices.Sort(diff)
	return diff
}

// differences adds the paths at which two values differ.
func differences(path string, want, got any, diff *[]string) {
	w, isMap := want.(map[string]any)
	g, areMaps := got.(map[string]any)
	if !isMap || !areMaps {
		if !reflect.DeepEqual(want, got) {
			*diff = append(*diff, fmt.Sprintf("%s: -%v +%v", path, want, got))
		}
		return
	}
	keys := map[string]bool{}
	for k := range w {
		keys[k] = true
	}
	for k := range g {
		keys[k] = true
	}
	for k := range keys {
		differences(path+"."+k, w[k], g[k], diff)
	}
}
