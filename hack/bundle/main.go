// Command bundle makes an OLM bundle, in the format of operator-sdk, of the manifests of a release, and checks it by the
// library of OLM:
//
//	bundle --version=v1.2.3 --samples=FOLDER --created=TIME INSTALL.YAML FOLDER
//
// FOLDER gets manifests/, metadata/, tests/ and bundle.Dockerfile. Objects that OLM's bundles can't have are left out, and
// named: the ValidatingAdmissionPolicy, which the cluster's administrator applies, and the Namespace, which OLM makes.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/operator-framework/api/pkg/manifests"
	"github.com/operator-framework/api/pkg/validation"
	"sigs.k8s.io/yaml"
)

const name = "memcached-operator"

type object = map[string]any

func main() {
	version := flag.String("version", "", "the release's version, v1.2.3")
	samples := flag.String("samples", "config/samples", "folder with example objects")
	created := flag.String("created", "", "time of the release, RFC 3339")
	flag.Parse()
	if err := run(*version, *created, *samples, flag.Arg(0), flag.Arg(1)); err != nil {
		fmt.Fprintln(os.Stderr, "bundle:", err)
		os.Exit(1)
	}
}

func run(version, created, samples, install, folder string) error {
	if version == "" || created == "" || folder == "" {
		return errors.New("usage: bundle --version=v1.2.3 --created=TIME [--samples=FOLDER] INSTALL.YAML FOLDER")
	}
	all, err := read(install)
	if err != nil {
		return err
	}
	examples, err := exampleObjects(samples)
	if err != nil {
		return err
	}
	csv, err := clusterServiceVersion(all, version, created, examples)
	if err != nil {
		return err
	}
	files := map[string]object{
		"manifests/" + name + ".clusterserviceversion.yaml": csv,
		"metadata/annotations.yaml":                         {"annotations": annotations()},
		"tests/scorecard/config.yaml":                       scorecard(),
	}
	for _, o := range all {
		switch o["kind"] {
		case "CustomResourceDefinition":
			files["manifests/"+nameOf(o)+".yaml"] = o
		case "Service":
			delete(o["metadata"].(object), "namespace")
			files["manifests/"+nameOf(o)+"_service.yaml"] = o
		case "ClusterRole":
			if !bound(all, o) { // for people, not for the operator
				files["manifests/"+nameOf(o)+"_clusterrole.yaml"] = o
			}
		case "ValidatingAdmissionPolicy", "NetworkPolicy":
			fmt.Printf("not in the bundle, since OLM takes none: %v %s\n", o["kind"], nameOf(o))
		}
	}
	if err := write(folder, files); err != nil {
		return err
	}
	return check(folder)
}

// read returns the objects of a YAML stream.
func read(file string) ([]object, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var all []object
	for document := range strings.SplitSeq("\n"+string(text), "\n---\n") {
		var o object
		if err := yaml.Unmarshal([]byte(document), &o); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if o != nil {
			all = append(all, o)
		}
	}
	return all, nil
}

func nameOf(o object) string {
	text, _ := at(o, "metadata", "name").(string)
	return text
}

// at follows keys; it returns nil where one is missing.
func at(o object, path ...string) any {
	var value any = o
	for _, key := range path {
		inner, _ := value.(object)
		value = inner[key]
	}
	return value
}

// exampleObjects are the samples of our kinds, as JSON: a console offers them for a start.
func exampleObjects(folder string) (string, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil || len(files) == 0 {
		return "", errors.Join(err, fmt.Errorf("%s has no samples", folder))
	}
	seen := map[any]bool{}
	var examples []object
	for _, file := range files {
		all, err := read(file)
		if err != nil {
			return "", err
		}
		for _, o := range all {
			if group, _ := o["apiVersion"].(string); strings.HasPrefix(group, "cache.example.com/") && !seen[o["kind"]] {
				seen[o["kind"]] = true
				examples = append(examples, o)
			}
		}
	}
	text, err := json.MarshalIndent(examples, "", "  ")
	return string(text), err
}

// clusterServiceVersion returns the object by which OLM installs the operator: its Deployment and its rights.
func clusterServiceVersion(all []object, version, created, examples string) (object, error) {
	var deployment object
	var owned, cluster, namespaced []any
	account := ""
	for _, o := range all {
		switch o["kind"] {
		case "Deployment":
			deployment = o
		case "ServiceAccount":
			account = nameOf(o)
		case "CustomResourceDefinition":
			owned = append(owned, ownedCRD(o))
		}
	}
	for _, o := range all {
		switch {
		case o["kind"] == "ClusterRole" && bound(all, o):
			cluster = append(cluster, o["rules"].([]any)...)
		case o["kind"] == "Role":
			namespaced = append(namespaced, o["rules"].([]any)...)
		}
	}
	if deployment == nil || account == "" || len(owned) == 0 {
		return nil, errors.New("the manifests have no Deployment, ServiceAccount or CRD")
	}
	image := at(deployment, "spec", "template", "spec", "containers").([]any)[0].(object)["image"]
	permissions := func(rules []any) []any { return []any{object{"serviceAccountName": account, "rules": rules}} }
	return object{
		"apiVersion": "operators.coreos.com/v1alpha1",
		"kind":       "ClusterServiceVersion",
		"metadata": object{
			"name": name + "." + version, "namespace": "placeholder",
			"annotations": object{
				"alm-examples": examples, "capabilities": "Deep Insights", "categories": "Database", "containerImage": image,
				"createdAt": created, "support": name, "repository": "https://example.com/memcached-operator",
				"description": "Scales stateful things down without losing what is in them",
			},
		},
		"spec": object{
			"displayName": "Memcached Operator", "version": strings.TrimPrefix(version, "v"), "maturity": "alpha", "minKubeVersion": "1.34.0",
			"description": "Memcached clusters that keep their cache when they are scaled, upgraded or restarted, and scale-downs of any StatefulSet\n" +
				"that lose no data: a Job drains the volume of a departed member, and its claim goes only when that has succeeded.",
			"keywords": []any{"memcached", "cache", "statefulset"}, "provider": object{"name": name},
			"maintainers": []any{object{"name": name, "email": "maintainers@example.com"}},
			"links":       []any{object{"name": "Documentation", "url": "https://example.com/memcached-operator"}},
			"icon":        []any{object{"base64data": icon, "mediatype": "image/svg+xml"}},
			"installModes": []any{
				object{"type": "OwnNamespace", "supported": false}, object{"type": "SingleNamespace", "supported": false},
				object{"type": "MultiNamespace", "supported": false}, object{"type": "AllNamespaces", "supported": true},
			},
			"install": object{"strategy": "deployment", "spec": object{
				"clusterPermissions": permissions(cluster), "permissions": permissions(namespaced),
				"deployments": []any{object{"name": nameOf(deployment), "label": at(deployment, "metadata", "labels"), "spec": deployment["spec"]}},
			}},
			"customresourcedefinitions": object{"owned": owned},
		},
	}, nil
}

// icon is a drop that stays: an SVG of one path.
const icon = "PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIHZpZXdCb3g9IjAgMCAzMiAzMiI+PHBhdGggZD0iTTE2IDMgQzIyIDEyIDI2IDE2IDI2IDIxIEExMCAxMCAwIDAgMSA2IDIxIEM2IDE2IDEwIDEyIDE2IDNaIiBmaWxsPSIjMmE3Ii8+PC9zdmc+Cg=="

func ownedCRD(crd object) object {
	kind, _ := at(crd, "spec", "names", "kind").(string)
	description := map[string]string{
		"Memcached":        "A cluster of memcached servers that keeps its cache",
		"StatefulSetDrain": "Drains the volumes of a StatefulSet's members that a scale-down removes",
	}[kind]
	return object{
		"name": nameOf(crd), "kind": kind, "displayName": kind, "description": description,
		"version": at(crd, "spec", "versions").([]any)[0].(object)["name"],
	}
}

// bound tells whether one of the bindings gives a ClusterRole to the operator.
func bound(all []object, role object) bool {
	return slices.ContainsFunc(all, func(o object) bool {
		return o["kind"] == "ClusterRoleBinding" && at(o, "roleRef", "name") == nameOf(role)
	})
}

// annotations returns the bundle's annotations: where its parts are, and in which channel it is.
func annotations() object {
	const prefix = "operators.operatorframework.io.bundle."
	return object{
		prefix + "mediatype.v1": "registry+v1", prefix + "manifests.v1": "manifests/", prefix + "metadata.v1": "metadata/",
		prefix + "package.v1": name, prefix + "channels.v1": "alpha", prefix + "channel.default.v1": "alpha",
		"operators.operatorframework.io.test.mediatype.v1": "scorecard+v1", "operators.operatorframework.io.test.config.v1": "tests/scorecard/",
	}
}

// scorecard names the tests of operator-sdk's scorecard.
func scorecard() object {
	var tests []any
	for _, one := range []string{"basic-check-spec", "olm-bundle-validation", "olm-crds-have-validation", "olm-crds-have-resources",
		"olm-spec-descriptors", "olm-status-descriptors"} {
		suite := strings.SplitN(one, "-", 2)[0]
		tests = append(tests, object{"entrypoint": []any{"scorecard-test", one}, "image": "quay.io/operator-framework/scorecard-test:v1.41.1",
			"labels": object{"suite": suite, "test": one + "-test"}})
	}
	return object{"apiVersion": "scorecard.operatorframework.io/v1alpha3", "kind": "Configuration", "metadata": object{"name": "config"},
		"stages": []any{object{"parallel": true, "tests": tests}}}
}

func write(folder string, files map[string]object) error {
	for path, o := range files {
		text, err := yaml.Marshal(o)
		if err != nil {
			return err
		}
		path = filepath.Join(folder, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, text, 0o644)); err != nil {
			return err
		}
	}
	var recipe bytes.Buffer
	recipe.WriteString("FROM scratch\n")
	labels := annotations()
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		fmt.Fprintf(&recipe, "LABEL %s=%s\n", key, labels[key])
	}
	recipe.WriteString("COPY manifests /manifests/\nCOPY metadata /metadata/\nCOPY tests/scorecard /tests/scorecard/\n")
	return os.WriteFile(filepath.Join(folder, "bundle.Dockerfile"), recipe.Bytes(), 0o644)
}

// check validates the bundle by OLM's library: the bundle as a whole, its CSV, its CRDs, and OperatorHub's
// rules.
func check(folder string) error {
	bundle, err := manifests.GetBundleFromDir(folder)
	if err != nil {
		return err
	}
	objects := []any{bundle, bundle.CSV}
	for _, crd := range bundle.V1CRDs {
		objects = append(objects, crd)
	}
	var failed error
	results := validation.AllValidators.WithValidators(validation.OperatorHubValidator).Validate(objects...)
	for _, result := range results {
		for _, e := range result.Errors {
			failed = errors.Join(failed, e)
		}
		for _, w := range result.Warnings {
			fmt.Println("warning:", w)
		}
	}
	return failed
}
